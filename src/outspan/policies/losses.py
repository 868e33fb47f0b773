"""The training loss on soft targets, its excess over the lowest possible loss, and label smoothing."""

import torch
from torch import Tensor


def soft_cross_entropy(logits: Tensor, targets: Tensor, *, reduction: str = "mean") -> Tensor:
    """Return the mean cross entropy against soft targets [B, classes]. With reduction="none", return one loss per sample."""
    return torch.nn.functional.cross_entropy(logits, targets, reduction=reduction)


def excess_loss(losses: Tensor, targets: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Return losses [B] minus the lowest loss that soft targets [B, classes] allow: their entropy, 0 for a single class.

    This is the Kullback-Leibler divergence of the prediction from the target. `smoothing` is the label smoothing of the losses.
    """
    return losses.detach().float() - entropy(smooth(targets, smoothing))


def entropy(targets: Tensor) -> Tensor:
    """Return the entropy of soft targets [B, classes]: 0 for a single class, up to 0.69 for two mixed classes."""
    return -torch.xlogy(targets, targets).sum(1)


def smooth(targets: Tensor, smoothing: float) -> Tensor:
    """Return targets [..., classes] with label smoothing: the fraction `smoothing` is spread evenly over the classes."""
    return (1 - smoothing) * targets + smoothing / targets.shape[-1] if smoothing else targets
