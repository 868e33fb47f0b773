"""Noise inside a network that differs between forward and backward, in plain operations: nothing here waits for a device.

The generator is the device's own, which the training loop seeds by address at every step, so noise is the same after a restart.
"""

import torch
from torch import Tensor


def scale(values: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
    """Return `forward * values`, with the gradient of `backward * values`."""
    kept = backward * values
    return kept + (forward * values - kept).detach()


def uniform(values: Tensor, low: float, high: float) -> Tensor:
    """Return one number an image, uniform over [low, high)."""
    return torch.rand(len(values), 1, 1, 1, device=values.device, dtype=values.dtype) * (high - low) + low


def shake_shake(first: Tensor, second: Tensor, training: bool) -> Tensor:
    """Mix two branches: by a random share an image, by another one on the way back, half and half in evaluation."""
    if not training:
        return (first + second) * 0.5
    alpha, beta = uniform(first, 0.0, 1.0), uniform(first, 0.0, 1.0)
    return scale(first, alpha, beta) + scale(second, 1 - alpha, 1 - beta)


def shake_drop(values: Tensor, survival: float, training: bool) -> Tensor:
    """Let a block pass with its survival, else scale it: by U(-1, 1) an image, by U(0, 1) on the way back."""
    if not training:
        return values * survival  # the expectation: U(-1, 1) has mean 0
    passes = (torch.rand((), device=values.device) < survival).to(values.dtype)
    alpha, beta = uniform(values, -1.0, 1.0), uniform(values, 0.0, 1.0)
    return scale(values, passes + (1 - passes) * alpha, passes + (1 - passes) * beta)
