"""What a model is trained for: one label per sample (cross entropy), or any number of labels (binary cross entropy)."""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt

import torch
from torch import Tensor
from torch.nn import functional

from outspan.policies.losses import entropy, smooth, soft_cross_entropy
from outspan.shapes import Float32


@dataclass(frozen=True)
class Objective:
    """A loss, and what belongs to it. Targets are [..., classes]."""

    loss: Callable[..., Tensor]  # of logits and targets, with `reduction`; sum over classes if a sample has several labels
    entropy: Callable[[Tensor], Tensor]  # of targets: the lowest possible loss
    smooth: Callable[[Tensor, float], Tensor]  # label smoothing
    probabilities: Callable[[Tensor], Tensor]  # of the classes, from logits
    weighted: Callable[[Tensor, Tensor, Tensor], Tensor]  # the loss per sample of logits and targets, with class weights
    balance: Callable[[Tensor, int], Tensor]  # class weights from the number of samples per class, and of all samples
    correct: Callable[[Tensor, Tensor], Tensor]  # whether the prediction is right, bool [N], from logits and labels
    guess: Callable[[int], float]  # the loss of a model that knows nothing, by number of classes
    scale: Callable[[int], float]  # by number of classes, the factor of the loss in training

    def excess(self, losses: Tensor, targets: Tensor, *, smoothing: float = 0.0) -> Tensor:
        """Return losses [B] minus the lowest loss that targets [B, classes] allow."""
        return losses.detach().float() - self.entropy(self.smooth(targets, smoothing))


def binary_cross_entropy(logits: Tensor, targets: Tensor, *, reduction: str = "mean") -> Tensor:
    """Return the binary cross entropy, summed over classes, mean over samples; with reduction="none", one loss per sample."""
    losses = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(-1)
    return losses.mean() if reduction == "mean" else losses


def _binary_entropy(targets: Tensor) -> Float32[Tensor, " B"]:
    return -(torch.xlogy(targets, targets) + torch.xlogy(1 - targets, 1 - targets)).sum(-1)


def _smooth_binary(targets: Tensor, smoothing: float) -> Tensor:
    return (1 - smoothing) * targets + smoothing / 2 if smoothing else targets


def _weighted(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    return functional.cross_entropy(logits, targets, weight=weights, reduction="none")


def _weighted_binary(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    of_present, of_absent = weights
    losses = of_present * targets * functional.logsigmoid(logits) + of_absent * (1 - targets) * functional.logsigmoid(-logits)
    return -losses.sum(-1)


def _balance(counts: Tensor, samples: int) -> Tensor:
    return samples / ((counts > 0).sum() * counts)


def _balance_binary(counts: Tensor, samples: int) -> Tensor:
    """Return the weights of samples with a class, and of those without it: their sums over all samples are equal."""
    return torch.stack([samples / (2 * counts), samples / (2 * (samples - counts).clamp(min=1))])


def _binary_scale(classes: int) -> float:
    """Return the factor with which the gradient of the logits is as large as that of the cross entropy, at the start.

    There all probabilities are equal. The squared norm of the gradient is then K / 4 for K classes, and that of the cross
    entropy 1 - 1 / K. So the same learning rates are right, with few and with many classes.
    """
    return 2 * sqrt(classes - 1) / classes


def _is_largest(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.argmax(1) == labels


def _are_all_right(logits: Tensor, labels: Tensor) -> Tensor:
    return ((logits > 0) == labels).all(1)


SINGLE_LABEL = Objective(
    loss=soft_cross_entropy,
    entropy=entropy,
    smooth=smooth,
    probabilities=lambda logits: logits.softmax(-1),
    weighted=_weighted,
    balance=_balance,
    correct=_is_largest,
    guess=log,
    scale=lambda classes: 1.0,
)
MULTI_LABEL = Objective(
    loss=binary_cross_entropy,
    entropy=_binary_entropy,
    smooth=_smooth_binary,
    probabilities=torch.sigmoid,
    weighted=_weighted_binary,
    balance=_balance_binary,
    correct=_are_all_right,
    guess=lambda classes: classes * log(2),
    scale=_binary_scale,
)


def objective_for(*, multi_label: bool) -> Objective:
    """Return the objective for one label per sample, or for any number of labels."""
    return MULTI_LABEL if multi_label else SINGLE_LABEL


def find_objective(labels: Tensor) -> Objective:
    """Return the objective for labels: class indices, soft labels, or multi-hot labels of dtype bool."""
    return objective_for(multi_label=labels.dtype == torch.bool)
