"""An exponential moving average (EMA) of a model's weights.

`torch.optim.swa_utils.AveragedModel` reads its counter on the device in every step, which waits for a GPU, and it rounds
integer buffers.
"""

import copy

import torch
from torch import Tensor, nn


class Average:
    """The moving average of a model's weights and floating-point buffers. Integer buffers are copied.

    Call `update` after every step of the optimizer, and evaluate `average.model`. `step` counts optimizer steps from 0. In
    the first steps the decay is lower (`decay_at`), so that the initial weights have no lasting effect::

        average = outspan.Average(model, decay=0.999)
        for step in range(steps):
            ...
            optimizer.step()
            average.update(step)
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay must lie in [0, 1), got {decay}")
        self.decay = decay
        self.model = copy.deepcopy(model).requires_grad_(False).eval()
        pairs = zip(self.model.state_dict().values(), model.state_dict().values(), strict=True)
        own = {average.data_ptr(): (average, tensor) for average, tensor in pairs}.values()  # tied weights once
        self._floats = [pair for pair in own if pair[0].is_floating_point()]
        self._others = [pair for pair in own if not pair[0].is_floating_point()]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move the average towards the model after step `step`, counted from 0."""
        averages, tensors = zip(*self._floats, strict=True)
        torch._foreach_lerp_(averages, tensors, 1 - decay_at(step, self.decay))  # pyright: ignore[reportPrivateImportUsage]
        for average, tensor in self._others:
            average.copy_(tensor)

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors that a checkpoint must store."""
        return self.model.state_dict()

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Continue from the tensors of `state_dict`."""
        self.model.load_state_dict(tensors)


def decay_at(step: int, decay: float) -> float:
    """Return the decay of a step. It rises with the steps up to `decay`, so that the initial weights have no lasting effect.

    >>> [round(decay_at(step, 0.99), 2) for step in (0, 10, 100, 10_000)]
    [0.1, 0.55, 0.92, 0.99]
    """
    return min(decay, (1 + step) / (10 + step))
