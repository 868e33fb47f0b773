"""Numbers about predicted class probabilities: accuracy, F1, AUROC, calibration, scores per class, and confidence intervals.

All are functions of probabilities [N, classes] and labels [N]. Where scikit-learn has the same number, they are equal to it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from outspan.limits import check_whole
from outspan.shapes import Int64, Num, describe
from outspan.training.label_metrics import bootstrap

BINS = 15  # of confidence, for the calibration: as in arXiv:1706.04599
_TOP = 5
_TOLERANCE = 1e-3  # of the sum of the probabilities of a sample
_MAX_RANKED = 1_000_000_000  # values that the interval of the AUROC may count, over all draws


@dataclass(frozen=True)
class Metrics:
    """Numbers about the predictions for some samples, as fractions."""

    accuracy: float
    top5: float | None  # accuracy of the five most likely classes; None for at most five classes
    balanced_accuracy: float  # mean recall over the classes that occur among the labels
    macro_f1: float  # mean over the classes that occur among the labels or the predictions
    weighted_f1: float  # mean over the classes, weighted by their number of samples
    auroc: float | None  # each class against the rest, mean over the classes that occur; None if only one does
    ece: float  # expected calibration error: mean distance of confidence and accuracy, over 15 bins of confidence


METRIC_NAMES = tuple(field.name for field in fields(Metrics))


class ClassScores(NamedTuple):
    """How well one class is predicted, as fractions. What is not defined is None."""

    precision: float | None  # None if the class is never predicted
    recall: float | None  # None if no sample has the class
    f1: float | None  # None if both
    support: int  # number of samples of the class


class Bin(NamedTuple):
    """The samples whose confidence, the probability of the predicted class, lies in one interval."""

    low: float  # excluded, except 0
    high: float
    samples: int
    confidence: float | None  # mean; None without samples
    accuracy: float | None


@dataclass(frozen=True, eq=False)
class _Facts:
    """What the metrics count: one value per sample."""

    labels: np.ndarray
    predicted: np.ndarray  # of equally likely classes the first
    in_top: np.ndarray  # whether the label is among the five most likely classes
    confidence: np.ndarray
    bins: np.ndarray
    probabilities: np.ndarray  # float64 [N, classes]

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.probabilities.shape[1]


def compute_metrics(probabilities: Num[Tensor, "N classes"], labels: Int64[Tensor, " N"]) -> Metrics:
    """Return the metrics of predictions.

    Ties are broken as in scikit-learn: of equally likely classes the first is predicted, and the last is first in the top five.

    >>> compute_metrics(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1])).accuracy
    0.5
    """
    facts = _find_facts(probabilities, labels)
    weights = np.ones(len(labels))
    counted = _count(facts, weights)
    values = {**counted, "auroc": _mean_auroc(map(_rank, facts.probabilities.T), facts.labels, weights)}
    return Metrics(**{name: None if np.isnan(value) else float(value) for name, value in values.items()})  # pyright: ignore


def mean_scores(predicted: Int64[Tensor, " N"], labels: Int64[Tensor, " N"]) -> dict[str, float]:
    """Return the accuracy, the balanced accuracy and the macro F1 of predicted classes, as `compute_metrics` does.

    >>> mean_scores(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1]))["balanced_accuracy"]
    0.75
    """
    classes = int(torch.maximum(predicted, labels).max()) + 1
    hits, support, named = (
        part.bincount(minlength=classes).double() for part in (labels[predicted == labels], labels, predicted)
    )
    either = support + named
    return {
        "accuracy": hits.sum().item() / len(labels),
        "balanced_accuracy": (hits / support)[support > 0].mean().item(),
        "macro_f1": (2 * hits / either)[either > 0].mean().item(),
    }


def compute_intervals(
    probabilities: Num[Tensor, "N classes"],
    labels: Int64[Tensor, " N"],
    *,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Return bootstrap confidence intervals of the metrics that are defined, over samples.

    They show how the metrics would vary with other samples from the same distribution, not with another seed of the training.
    The interval of the AUROC is left out if it would take minutes: above 1,000,000 probabilities with 1,000 draws.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level}")
    check_whole("draws", draws, 1)
    facts, size = _find_facts(probabilities, labels), len(labels)
    has_auroc = draws * probabilities.numel() <= _MAX_RANKED
    ranks = [_rank(column) for column in facts.probabilities.T] if has_auroc else []

    def count(weights: np.ndarray) -> Mapping[str, float]:
        return {**_count(facts, weights), "auroc": _mean_auroc(ranks, facts.labels, weights)}

    return bootstrap(count, METRIC_NAMES, size, level=level, draws=draws, seed=seed)


def confusion_matrix(probabilities: Num[Tensor, "N classes"], labels: Int64[Tensor, " N"]) -> Int64[Tensor, "classes classes"]:
    """Return how often each class is predicted for each true class: rows are true classes, columns predicted ones."""
    facts = _find_facts(probabilities, labels)
    counts = np.bincount(facts.labels * facts.classes + facts.predicted, minlength=facts.classes**2)
    return torch.from_numpy(counts).view(facts.classes, facts.classes)


def scores_by_class(confusion: Int64[Tensor, "classes classes"]) -> list[ClassScores]:
    """Return the scores of each class from a confusion matrix.

    >>> scores_by_class(torch.tensor([[3, 1], [0, 0]]))[1]
    ClassScores(precision=0.0, recall=None, f1=0.0, support=0)
    """
    hits, support, predicted = confusion.diag().tolist(), confusion.sum(1).tolist(), confusion.sum(0).tolist()
    rows = zip(hits, support, predicted, strict=True)
    return [ClassScores(_ratio(hit, p), _ratio(hit, s), _ratio(2 * hit, s + p), s) for hit, s, p in rows]


def calibration_bins(probabilities: Num[Tensor, "N classes"], labels: Int64[Tensor, " N"]) -> list[Bin]:
    """Return 15 bins of equal width, each with the mean confidence and the accuracy of its samples."""
    facts = _find_facts(probabilities, labels)
    counts = np.bincount(facts.bins, minlength=BINS).tolist()
    hits = np.bincount(facts.bins, facts.predicted == facts.labels, BINS).tolist()
    sums = np.bincount(facts.bins, facts.confidence, BINS).tolist()
    edges = np.linspace(0, 1, BINS + 1).tolist()
    rows = zip(edges, edges[1:], counts, sums, hits, strict=False)
    return [Bin(low, high, count, _ratio(total, count), _ratio(hit, count)) for low, high, count, total, hit in rows]


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _find_facts(probabilities: Tensor, labels: Tensor) -> _Facts:
    values, rows = _checked(probabilities, labels), np.arange(len(labels))
    known = labels.cpu().numpy()
    of_label = values[rows, known][:, None]
    before = (values > of_label) | ((values == of_label) & (np.arange(values.shape[1]) > known[:, None]))
    predicted = values.argmax(1)
    confidence = values[rows, predicted]
    bins = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], confidence)
    return _Facts(known, predicted, before.sum(1) < _TOP, confidence, bins, values)


def _checked(probabilities: Tensor, labels: Tensor) -> np.ndarray:
    """Return the probabilities as float64. Refuse values that are no probabilities, and labels that are no classes."""
    if probabilities.ndim != 2 or probabilities.shape[1] < 2 or not len(probabilities):
        raise ValueError(
            f"probabilities must be [N, classes], at least one sample and two classes, got {describe(probabilities)}"
        )
    values, classes = probabilities.detach().cpu().double().numpy(), probabilities.shape[1]
    if labels.shape != probabilities.shape[:1]:
        raise ValueError(f"labels must be one class per sample, [{len(values)}], got {describe(labels)}")
    if not bool((labels >= 0).all() and (labels < classes).all()):
        raise ValueError(f"labels must lie in [0, {classes - 1}], got {int(labels.min())} to {int(labels.max())}")
    fits = (values >= 0).all(1) & (abs(values.sum(1) - 1) <= _TOLERANCE)  # false for NaN
    if not fits.all():
        row = int(fits.argmin())
        problem = f"got row {row} with the sum {values[row].sum():.4g} and the smallest value {values[row].min():.4g}"
        raise ValueError(f"probabilities must be at least 0 and sum to 1, {problem}: use softmax")
    return values


def _count(facts: _Facts, weights: np.ndarray) -> Mapping[str, float]:
    """Return the metrics except the AUROC; each sample counts as often as its weight. NaN is not defined."""
    total, right = weights.sum(), weights * (facts.predicted == facts.labels)
    support, hits = (np.bincount(facts.labels, values, facts.classes) for values in (weights, right))
    either = support + np.bincount(facts.predicted, weights, facts.classes)
    f1 = 2 * hits / np.maximum(either, 1)
    gaps = np.bincount(facts.bins, right - weights * facts.confidence, BINS)
    return {
        "accuracy": hits.sum() / total,
        "top5": (weights * facts.in_top).sum() / total if facts.classes > _TOP else np.nan,
        "balanced_accuracy": (hits[support > 0] / support[support > 0]).mean(),
        "macro_f1": f1[either > 0].mean(),
        "weighted_f1": (f1 * support).sum() / total,
        "ece": abs(gaps).sum() / total,
    }


def _rank(scores: np.ndarray) -> np.ndarray:
    """Return the rank of each score from the smallest, 0. Equal scores have the same rank."""
    return np.unique(scores, return_inverse=True)[1]


def _mean_auroc(ranks: Iterable[np.ndarray], labels: np.ndarray, weights: np.ndarray) -> float:
    """Return the mean over classes of the probability that a sample of the class ranks above another one; ties count half."""
    areas = []
    for label, of_class in enumerate(ranks):
        is_positive = labels == label
        positive, negative = (np.bincount(of_class, weights * which) for which in (is_positive, ~is_positive))
        pairs = positive.sum() * negative.sum()
        if pairs:
            areas.append(positive @ (negative.cumsum() - negative / 2) / pairs)
    return float(np.mean(areas)) if areas else np.nan
