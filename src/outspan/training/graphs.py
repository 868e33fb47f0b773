"""CUDA graphs: the launches of a step are recorded once and replayed as one, so that the host does not set the pace."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from outspan.policies.losses import smooth, soft_cross_entropy

_MOST = 4  # shapes that are recorded: a full batch and the last one of an epoch, and some to spare


class Recorded:
    """A function of tensors on a GPU, recorded for each of the first few shapes and replayed; its outputs are overwritten.

    `keep` is asked, after a recording, for whatever else the function leaves behind.
    """

    def __init__(self, function: Callable[..., Tensor], keep: Callable[[], Any] = lambda: None) -> None:
        self.function, self.keep = function, keep
        self.made: dict[Any, tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor, Any]] = {}

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        """Return the function's output, and what was kept."""
        if _key(inputs) not in self.made:
            return self.function(*inputs), self.keep()
        graph, places, output, kept = self.made[_key(inputs)]
        for place, tensor in zip(places, inputs, strict=True):
            place.copy_(tensor)
        graph.replay()
        return output, kept

    def is_new(self, *inputs: Tensor) -> bool:
        """Whether these shapes are not recorded yet, and there is room for them."""
        return len(self.made) < _MOST and _key(inputs) not in self.made

    def record(self, *inputs: Tensor) -> None:
        """Record the function for these shapes. It is run on them, several times."""
        places = [tensor.clone() for tensor in inputs]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # algorithms are tried and memory is taken before, not while recording
                self.function(*places)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # others may pin memory meanwhile
            output = self.function(*places)
        self.made[_key(inputs)] = graph, places, output, self.keep()


def _key(inputs: tuple[Tensor, ...]) -> Any:
    return tuple((tensor.shape, tensor.stride(), tensor.dtype) for tensor in inputs)


class Learner:
    """Forward and backward: `learner(images, targets)` returns every image's loss, and leaves the mean's gradients behind.

    A batch goes through in `parts`, whose gradients add up to its own. Where `forward` gives the logits of several models,
    [models, B, classes], it is the mean of each.
    """

    def __init__(
        self,
        model: nn.Module,
        label_smoothing: float,
        *,
        graphs: bool,
        parts: int = 1,
        forward: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.model, self.label_smoothing, self.parts, self.forward = model, label_smoothing, parts, forward or model
        self.parameters = list(model.parameters())
        self.recorded = Recorded(self._learn, lambda: [p.grad for p in self.parameters]) if graphs else None

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        if self.recorded is None:
            return self._learn(images, targets)
        if self.recorded.is_new(images, targets):
            buffers, drawn = [buffer.clone() for buffer in self.model.buffers()], torch.cuda.get_rng_state()
            self.recorded.record(images, targets)
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
            torch.cuda.set_rng_state(drawn)
        losses, gradients = self.recorded(images, targets)
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        return losses.clone()

    def _learn(self, images: Tensor, targets: Tensor) -> Tensor:
        targets = smooth(targets, self.label_smoothing)
        for parameter in self.parameters:
            parameter.grad = None  # so that a recording writes its gradients, and does not add to others
        found = []
        for some, aims in zip(images.chunk(self.parts), targets.chunk(self.parts), strict=True):
            losses = self._losses(some, aims)
            (losses.mean(-1).sum() * (len(some) / len(images))).backward()
            found.append(losses.detach())
        return torch.cat(found)

    def _losses(self, images: Tensor, targets: Tensor) -> Tensor:
        device = images.device.type
        # A cast that was remembered from before a recording would be replayed for ever: none is remembered.
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda", cache_enabled=False):
            logits = self.forward(images)
        losses = soft_cross_entropy(logits.float().flatten(0, -2), targets.flatten(0, -2), reduction="none")
        return losses.view(targets.shape[:-1])


class Replayed(nn.Module):
    """A model whose evaluation on a GPU is recorded and replayed; all else is the model itself."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.recorded = Recorded(self._evaluate)

    def forward(self, images: Tensor) -> Tensor:
        if self.training or torch.is_grad_enabled() or not images.is_cuda:
            return self.model(images)
        if self.recorded.is_new(images):
            self.recorded.record(images)
        return self.recorded(images)[0].clone()

    def _evaluate(self, images: Tensor) -> Tensor:
        enabled = torch.is_autocast_enabled("cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=enabled, cache_enabled=False):
            return self.model(images)
