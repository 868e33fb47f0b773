"""An exponential moving average (EMA) of a model's weights.

`torch.optim.swa_utils.AveragedModel` reads its counter on the device in every step, which waits for a GPU, and it rounds
integer buffers.
"""

import copy

import torch
from torch import Tensor, nn

from outspan.messages import shown


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
        if not isinstance(model, nn.Module):
            raise ValueError(f"model must be a torch module, got {type(model).__name__}")
        if isinstance(decay, bool) or not isinstance(decay, int | float) or not 0 <= decay < 1:
            raise ValueError(f"decay must be a number in [0, 1), got {shown(decay)}")
        self.decay = decay
        self.model = copy.deepcopy(model).requires_grad_(False).eval()
        self._source = model

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move the average towards the model after step `step`, counted from 0. Both must be on the same device."""
        # Collect the tensors in every call, because moving a model may replace them.
        averages, tensors = ([*model.parameters(), *model.buffers()] for model in (self.model, self._source))
        floats = [pair for pair in zip(averages, tensors, strict=True) if pair[0].is_floating_point()]
        if floats:
            torch._foreach_lerp_(*zip(*floats, strict=True), 1 - decay_at(step, self.decay))  # pyright: ignore
        for average, tensor in zip(averages, tensors, strict=True):
            if not average.is_floating_point():
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
