"""Noise inside a network that differs between forward and backward, one pass over the values each; nothing waits for a device.

The generator is the device's own, which the training loop seeds by address at every step, so noise is the same after a restart.
"""

from typing import Any

import torch
from torch import Tensor


class Scale(torch.autograd.Function):
    """`there * values`, with the gradient of `back * values`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, there: Tensor, back: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the scaled values."""
        ctx.save_for_backward(back)
        return there * values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the gradient, otherwise scaled."""
        (back,) = ctx.saved_tensors
        return back * gradient, None, None


class Mix(torch.autograd.Function):
    """A share `there` of the first and the rest of the second, with the gradient of a share `back`."""

    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, there: Tensor, back: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the mixed values."""
        ctx.save_for_backward(back)
        return torch.lerp(second, first, there)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return each one's share of the gradient."""
        (back,) = ctx.saved_tensors
        return back * gradient, (1 - back) * gradient, None, None


def uniform(values: Tensor, low: float, high: float) -> Tensor:
    """Return one number an image, uniform over [low, high)."""
    return torch.rand(len(values), 1, 1, 1, device=values.device, dtype=values.dtype) * (high - low) + low


def shake_shake(first: Tensor, second: Tensor, training: bool) -> Tensor:
    """Mix two branches: by a random share an image, by another one on the way back, half and half in evaluation."""
    if not training:
        return (first + second) * 0.5
    alpha, beta = uniform(first, 0.0, 1.0), uniform(first, 0.0, 1.0)
    return Mix.apply(first, second, alpha, beta)  # pyright: ignore[reportReturnType]


def shake_drop(values: Tensor, survival: float, training: bool) -> Tensor:
    """Let a block pass with its survival, else scale it: by U(-1, 1) an image, by U(0, 1) on the way back."""
    if not training:
        return values * survival  # the expectation: U(-1, 1) has mean 0
    passes = (torch.rand((), device=values.device) < survival).to(values.dtype)
    alpha, beta = uniform(values, -1.0, 1.0), uniform(values, 0.0, 1.0)
    return Scale.apply(values, passes + (1 - passes) * alpha, passes + (1 - passes) * beta)  # pyright: ignore[reportReturnType]
