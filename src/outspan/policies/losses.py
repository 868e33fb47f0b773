"""The training loss on soft targets, and label smoothing."""

import torch
from torch import Tensor


def soft_cross_entropy(logits: Tensor, targets: Tensor, *, reduction: str = "mean") -> Tensor:
    """Return the mean cross entropy against soft targets [B, classes]. With reduction="none", return one loss per sample."""
    return torch.nn.functional.cross_entropy(logits, targets, reduction=reduction)


def smooth(targets: Tensor, smoothing: float) -> Tensor:
    """Return targets [..., classes] with label smoothing: the fraction `smoothing` is spread evenly over the classes."""
    return (1 - smoothing) * targets + smoothing / targets.shape[-1] if smoothing else targets
