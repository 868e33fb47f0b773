"""BatchNorm with the mean and variance of the whole batch, over all ranks. torch's own `SyncBatchNorm` needs a GPU."""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from outspan.training.distributed import Ranks

_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class _Sum(torch.autograd.Function):
    """The sum of a tensor over all ranks. Its gradient is the sum of the gradients of all ranks."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks, total = ranks, values.clone()
        ranks.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].clone()
        ctx.ranks.all_reduce(total)
        return total, None


class _SyncBatchNorm(_BatchNorm):
    """A layer for inputs of any number of axes. In evaluation it is the usual one."""

    ranks: Ranks

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        axes = [axis for axis in range(input.ndim) if axis != 1]
        shape = [1, -1, *[1] * (input.ndim - 2)]
        x = input.float()
        count = x.new_full((1,), x.numel() / x.shape[1])
        *sums, rows = self._sum(torch.cat([x.sum(axes), count])).split([x.shape[1], 1])
        mean = sums[0] / rows
        centred = x - mean.view(shape)
        variance = self._sum(centred.square().sum(axes)) / rows
        if self.running_mean is not None and self.running_var is not None:
            with torch.no_grad():
                assert self.num_batches_tracked is not None
                self.num_batches_tracked.add_(1)
                momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean, momentum)
                self.running_var.lerp_(variance * (rows / (rows - 1)), momentum)
        result = centred * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            result = result * self.weight.view(shape) + self.bias.view(shape)
        return result.to(input.dtype)

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept all inputs: the layer was checked before it was changed."""

    def _sum(self, values: Tensor) -> Tensor:
        return _Sum.apply(values, self.ranks)  # pyright: ignore[reportReturnType]


def synchronize(model: nn.Module, ranks: Ranks) -> None:
    """Let all BatchNorm layers of a model use the statistics of the whole batch. Their parameters stay the same objects."""
    for name, module in model.named_modules():
        if type(module) in _PLAIN:
            module.__class__ = _SyncBatchNorm
            cast(_SyncBatchNorm, module).ranks = ranks
        elif isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm):
            allowed = ", ".join(layer.__name__ for layer in _PLAIN)
            raise ValueError(f"sync_bn is for the layers {allowed}, got {type(module).__name__} ({name}): set sync_bn to 0")
