"""Numbers about predictions of several labels per sample: average precision, F1 and exact matches, and their intervals.

All are functions of probabilities [N, classes] and multi-hot labels [N, classes]. They are equal to those of scikit-learn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from torch import Tensor

from outspan import rng
from outspan.shapes import Bool, Num, describe

THRESHOLD = 0.5  # a class is predicted if its probability is above


@dataclass(frozen=True)
class LabelMetrics:
    """Numbers about the predicted labels of some samples, as fractions. What is not defined is None."""

    map: float | None  # average precision, mean over the classes that occur
    micro_f1: float  # F1 over all pairs of a sample and a class
    macro_f1: float  # F1, mean over the classes that occur among the labels or the predictions
    accuracy: float  # fraction of the samples whose labels are all right
    label_accuracy: float  # fraction of all pairs of a sample and a class that are right


LABEL_METRIC_NAMES = tuple(field.name for field in fields(LabelMetrics))


class LabelScores(NamedTuple):
    """How well one class is predicted, as fractions. What is not defined is None."""

    average_precision: float | None  # None if no sample has the class
    precision: float | None  # None if the class is never predicted
    recall: float | None  # None if no sample has the class
    f1: float | None  # None if both
    support: int  # number of samples of the class


class _Facts(NamedTuple):
    labels: np.ndarray  # bool [N, classes]
    predicted: np.ndarray  # bool [N, classes]
    order: np.ndarray  # [N, classes]: the samples of each class, the most probable first
    ends: np.ndarray  # bool [N, classes]: whether a place of the order is the last one with its probability


def compute_label_metrics(probabilities: Num[Tensor, "N classes"], labels: Bool[Tensor, "N classes"]) -> LabelMetrics:
    """Return the metrics of predicted labels. A class is predicted if its probability is above 0.5."""
    facts = _find_facts(probabilities, labels)
    values = _count(facts, np.ones(len(labels)))
    return LabelMetrics(**{name: None if np.isnan(value) else float(value) for name, value in values.items()})  # pyright: ignore


def compute_label_intervals(
    probabilities: Num[Tensor, "N classes"], labels: Bool[Tensor, "N classes"], *, draws: int = 1000, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Return 95 % bootstrap intervals of the metrics that are defined, over samples, as `compute_intervals` does."""
    facts = _find_facts(probabilities, labels)
    return bootstrap(
        lambda weights: _count(facts, weights), LABEL_METRIC_NAMES, len(labels), level=0.95, draws=draws, seed=seed
    )


def bootstrap(
    count: Callable[[np.ndarray], Mapping[str, float]], names: Sequence[str], size: int, *, level: float, draws: int, seed: int
) -> dict[str, tuple[float, float]]:
    """Return quantiles of metrics over draws of samples. `count` gives the metrics of samples with these weights."""
    draw, rows = rng.generator(seed, "bootstrap"), []
    for _ in range(draws):
        rows.append(count(np.bincount(draw.integers(0, size, size), minlength=size).astype(np.float64)))
    intervals = {}
    for name in names:
        values = np.array([row[name] for row in rows])
        values = values[~np.isnan(values)]
        if len(values):
            low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2]).tolist()
            intervals[name] = low, high
    return intervals


def scores_by_label(probabilities: Num[Tensor, "N classes"], labels: Bool[Tensor, "N classes"]) -> list[LabelScores]:
    """Return the scores of each class."""
    facts = _find_facts(probabilities, labels)
    precisions = _average_precisions(facts, np.ones(len(labels))).tolist()
    hits, support, predicted = (
        array.sum(0).tolist() for array in (facts.labels & facts.predicted, facts.labels, facts.predicted)
    )
    rows = zip(precisions, hits, support, predicted, strict=True)
    return [
        LabelScores(None if np.isnan(ap) else ap, _ratio(hit, p), _ratio(hit, s), _ratio(2 * hit, s + p), s)
        for ap, hit, s, p in rows
    ]


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _find_facts(probabilities: Tensor, labels: Tensor) -> _Facts:
    if probabilities.ndim != 2 or not len(probabilities) or labels.shape != probabilities.shape:
        both = f"{describe(probabilities)} and {describe(labels)}"
        raise ValueError(f"probabilities and multi-hot labels must both be [N, classes], at least one sample, got {both}")
    values = probabilities.detach().cpu().double().numpy()
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"probabilities must lie in [0, 1], got {values.min():.4g} to {values.max():.4g}: use sigmoid")
    order = np.argsort(-values, axis=0, kind="stable")
    ranked = np.take_along_axis(values, order, 0)
    ends = np.ones_like(ranked, dtype=bool)
    ends[:-1] = ranked[1:] != ranked[:-1]
    return _Facts(labels.cpu().numpy().astype(bool), values > THRESHOLD, order, ends)


def _average_precisions(facts: _Facts, weights: np.ndarray) -> np.ndarray:
    """Return the average precision of each class: the sum over thresholds of precision times the rise of the recall."""
    areas = np.full(facts.labels.shape[1], np.nan)
    for i in range(len(areas)):
        order, ends = facts.order[:, i], facts.ends[:, i]
        is_positive = facts.labels[order, i]
        hits, totals = (np.cumsum(weights[order] * which)[ends] for which in (is_positive, 1.0))
        if hits[-1]:
            precision = hits / np.maximum(totals, 1e-300)
            areas[i] = float(np.diff(hits, prepend=0.0) @ precision / hits[-1])
    return areas


def _count(facts: _Facts, weights: np.ndarray) -> Mapping[str, float]:
    """Return the metrics; each sample counts as often as its weight. NaN is not defined."""
    hits, support, predicted = (weights @ array for array in (facts.labels & facts.predicted, facts.labels, facts.predicted))
    areas, either, right = _average_precisions(facts, weights), support + predicted, facts.labels == facts.predicted
    total = weights.sum()
    return {
        "map": float(np.nanmean(areas)) if not np.isnan(areas).all() else np.nan,
        "micro_f1": 2 * hits.sum() / either.sum() if either.sum() else 0.0,
        "macro_f1": float((2 * hits[either > 0] / either[either > 0]).mean()) if either.any() else 0.0,
        "accuracy": weights @ right.all(1) / total,
        "label_accuracy": float((weights @ right).mean()) / total,
    }
