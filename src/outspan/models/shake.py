"""Noise inside a network that differs between the forward and the backward pass.

It is drawn on the device, without waiting, from a generator that the training loop seeds at every step. So it is the same
after a restart.
"""

from typing import Any

import torch
from torch import Tensor


class Join(torch.autograd.Function):
    """`shortcut + forward_factor * values`, with the gradient of `shortcut + backward_factor * values`."""

    @staticmethod
    def forward(ctx: Any, shortcut: Tensor, values: Tensor, forward_factor: Tensor, backward_factor: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the sum."""
        ctx.save_for_backward(backward_factor)
        return torch.addcmul(shortcut, values, forward_factor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the gradient unchanged for `shortcut`, and scaled for `values`."""
        (backward_factor,) = ctx.saved_tensors
        return gradient, backward_factor * gradient, None, None


class Mix(torch.autograd.Function):
    """`factor * first + (1 - factor) * second`, with another factor in the backward pass."""

    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, forward_factor: Tensor, backward_factor: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the mixed values."""
        ctx.save_for_backward(backward_factor)
        return torch.lerp(second, first, forward_factor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the gradients of both inputs."""
        (backward_factor,) = ctx.saved_tensors
        return backward_factor * gradient, (1 - backward_factor) * gradient, None, None


def uniform(values: Tensor) -> Tensor:
    """Return one number per image, uniform over [0, 1)."""
    return values.new_empty(len(values), 1, 1, 1).uniform_()


def shake_shake(first: Tensor, second: Tensor, training: bool) -> Tensor:
    """Mix two branches: by a random weight per image, another one in the backward pass, and 0.5 in evaluation."""
    if not training:
        return (first + second) * 0.5
    alpha, beta = uniform(first), uniform(first)
    return Mix.apply(first, second, alpha, beta)  # pyright: ignore[reportReturnType]


def draw_drops(values: Tensor, survival: Tensor) -> Tensor:
    """Return ShakeDrop's forward and backward factors, [2, blocks, B, 1, 1, 1]: 1 if a block survives, else U(-1, 1), U(0, 1).

    It is one draw for the whole network: several launches per block would slow down a network without CUDA graphs.
    """
    drawn = values.new_empty(2, len(survival), len(values), 1, 1, 1).uniform_()
    drawn[0].mul_(2).sub_(1)
    return drawn.masked_fill_((torch.rand_like(survival) < survival).view(-1, 1, 1, 1, 1), 1.0)


def shake_drop(shortcut: Tensor, values: Tensor, forward_factor: Tensor, backward_factor: Tensor) -> Tensor:
    """Add a block to its shortcut, scaled by a number per image, and by another one in the backward pass."""
    return Join.apply(shortcut, values, forward_factor, backward_factor)  # pyright: ignore[reportReturnType]
