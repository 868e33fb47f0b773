"""Bootstrap confidence intervals of scores, over samples."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from outspan import rng
from outspan.measurement.predictions import Predictions, check_same_samples
from outspan.measurement.scores import find_majority

_AT_ONCE = 2_000_000  # number of resampled weights that are in memory at the same time


class Interval(NamedTuple):
    """The ends of a confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Intervals:
    """Confidence intervals of the three scores."""

    accuracy: Interval
    error: Interval
    instability: Interval


def compute_intervals(
    ensembles: Mapping[str, Predictions], *, level: float = 0.95, draws: int = 1000, seed: int = 0
) -> dict[str, Intervals]:
    """Return bootstrap confidence intervals of the scores of each ensemble, over samples, for these trained models.

    They show how the scores would vary with other samples from the same distribution. The standard deviation over models shows
    how they vary with the seed.
    """
    return {name: _quantiles(values, level) for name, values in _resampled(ensembles, draws, seed).items()}


def difference_intervals(
    ensembles: Mapping[str, Predictions], baseline: str, *, level: float = 0.95, draws: int = 1000, seed: int = 0
) -> dict[str, Intervals]:
    """Return intervals of each ensemble's scores minus the baseline's, both on the same resampled samples."""
    resampled = _resampled(ensembles, draws, seed)
    differences = {name: values - resampled[baseline] for name, values in resampled.items() if name != baseline}
    # Rounded, so that the difference of equal fractions is exactly 0.
    return {name: _quantiles(values.round(12), level) for name, values in differences.items()}


def _counts(predictions: Predictions, seed: int) -> np.ndarray:
    """Return three numbers per sample, [n, 3], whose mean over samples, divided by the number k of models, is a score.

    They are the number of models that are right, k if the majority is wrong (otherwise 0), and the number of models that differ
    from the majority.
    """
    voted = find_majority(predictions, seed=seed).classes
    right = (predictions.classes == predictions.labels).sum(0)
    wrong = len(predictions.classes) * (voted != predictions.labels)
    return torch.stack([right, wrong, (predictions.classes != voted).sum(0)], dim=1).numpy()


def _resampled(ensembles: Mapping[str, Predictions], draws: int, seed: int) -> dict[str, np.ndarray]:
    """Return the scores of each ensemble, [draws, 3], on `draws` resampled sets of samples: the same sets for all ensembles."""
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")
    check_same_samples(ensembles)
    size = len(next(iter(ensembles.values())).labels)
    counts = np.concatenate([_counts(one, seed) for one in ensembles.values()], axis=1).astype(np.float64)
    draw = rng.generator(seed, "bootstrap")
    sums = []
    for start in range(0, draws, at_once := max(1, _AT_ONCE // size)):
        chosen = [np.bincount(draw.integers(0, size, size), minlength=size) for _ in range(min(at_once, draws - start))]
        sums.append(np.stack(chosen).astype(np.float64) @ counts)  # whole numbers, so the order of the sum does not matter
    parts = np.split(np.concatenate(sums), len(ensembles), axis=1)
    return {name: part / (size * len(ensembles[name].classes)) for name, part in zip(ensembles, parts, strict=True)}


def _quantiles(values: np.ndarray, level: float) -> Intervals:
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level}")
    ends = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0).T.tolist()
    return Intervals(*(Interval(*pair) for pair in ends))
