"""CUDA graphs: the kernel launches of a step are recorded once and replayed, so that the GPU does not wait for the host."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_MAX_SHAPES = 4  # number of recorded shapes: a full batch, the last batch of an epoch, and two in reserve


class RecordedFunction:
    """A function of tensors on a GPU that is recorded for the first few input shapes and then replayed.

    A replay overwrites the outputs of the one before. `keep` is called after a recording; it returns what else the function
    produces, such as gradients.
    """

    def __init__(self, function: Callable[..., Tensor], keep: Callable[[], Any] = lambda: None) -> None:
        self.function, self.keep = function, keep
        self.graphs: dict[Any, tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor, Any]] = {}

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        """Return the output of the function, and what `keep` returned."""
        if _key(inputs) not in self.graphs:
            return self.function(*inputs), self.keep()
        graph, buffers, output, kept = self.graphs[_key(inputs)]
        for buffer, tensor in zip(buffers, inputs, strict=True):
            buffer.copy_(tensor)
        graph.replay()
        return output, kept

    def is_new(self, *inputs: Tensor) -> bool:
        """Return whether these shapes are not recorded yet and can still be recorded."""
        return len(self.graphs) < _MAX_SHAPES and _key(inputs) not in self.graphs

    def forget(self) -> None:
        """Forget what was recorded: the function computes something else from now on."""
        self.graphs.clear()

    def record(self, *inputs: Tensor) -> None:
        """Record the function for these shapes, after running it several times on them."""
        buffers = [tensor.clone() for tensor in inputs]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # choose algorithms and allocate memory before recording
                self.function(*buffers)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # another thread may pin memory meanwhile
            output = self.function(*buffers)
        self.graphs[_key(inputs)] = graph, buffers, output, self.keep()


def _key(inputs: tuple[Tensor, ...]) -> Any:
    return tuple((tensor.shape, tensor.stride(), tensor.dtype) for tensor in inputs)


class GraphModel(nn.Module):
    """A model whose evaluation on a GPU is recorded and replayed; training and the CPU call the model directly."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.recorded = RecordedFunction(self._evaluate)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training or torch.is_grad_enabled() or not inputs.is_cuda:
            return self.model(inputs)
        if self.recorded.is_new(inputs):
            self.recorded.record(inputs)
        return self.recorded(inputs)[0].clone()

    def _evaluate(self, inputs: Tensor) -> Tensor:
        enabled = torch.is_autocast_enabled("cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=enabled, cache_enabled=False):
            return self.model(inputs)
