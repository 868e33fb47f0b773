"""Scores of k models on the same samples: how often they are right, how wrong their vote is, how far they disagree.

Section 4 of arXiv:2005.00695. The majority label M(x) is what most of the models say of a sample. The *intrinsic error* is the
share of samples whose majority label is wrong: what more seeds would not mend. The *instability* is how often a model departs
from the majority: what a vote over seeds takes away. All are counts of samples and models, so they are exact.
"""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from outspan import rng
from outspan.shapes import Bool, Int64

_AT_ONCE = 2_000_000  # resampled weights that are held at a time


@dataclass(frozen=True, eq=False)
class Predictions:
    """The classes that k models, of k seeds, predict for n samples, and what the samples are."""

    classes: Int64[Tensor, "k n"]
    labels: Int64[Tensor, " n"]

    def __post_init__(self) -> None:
        for name, tensor, axes in (("classes", self.classes, 2), ("labels", self.labels, 1)):
            if tensor.dtype != torch.int64 or not tensor.is_cpu or tensor.ndim != axes:
                kind = f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
                raise ValueError(f"{name} must be torch.int64 with {axes} axes on the cpu, got {kind}")
        models, samples = self.classes.shape
        if models < 2:
            raise ValueError(f"scores need at least 2 models (seeds), got {models}: one alone cannot disagree")
        if not samples or len(self.labels) != samples:
            raise ValueError(f"classes and labels must be of the same samples, got {samples} and {len(self.labels)}")
        if min(int(self.classes.min()), int(self.labels.min())) < 0:
            raise ValueError("classes and labels must be 0 or more")

    def first(self, models: int) -> "Predictions":
        """Return the first so many models alone: what fewer seeds would have said."""
        return Predictions(self.classes[:models], self.labels)


class Majority(NamedTuple):
    """The majority label of every sample, and which of them were tied and drawn by lot."""

    classes: Int64[Tensor, " n"]
    tied: Bool[Tensor, " n"]


@dataclass(frozen=True)
class Scores:
    """What k models come to on some samples, as shares of 1."""

    samples: int
    accuracy: float  # of a model, averaged over models
    std: float  # of the accuracy over models
    error: float
    instability: float
    ties: int  # samples without a majority: the label was drawn among those with the most votes


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


@dataclass(frozen=True, eq=False)
class Changes:
    """The samples that the vote of some models corrects, and breaks, against the vote of a baseline."""

    corrected: Int64[Tensor, " corrected"]  # the baseline's majority is wrong there, this one's is right
    broken: Int64[Tensor, " broken"]
    baseline_on_corrected: float | None  # the baseline's average accuracy there; None where there are none
    own_on_broken: float | None  # these models' average accuracy there


def majority(predictions: Predictions, *, seed: int = 0) -> Majority:
    """Return the label that most models give each sample; among equals it is drawn, by the sample's own address.

    >>> majority(Predictions(torch.tensor([[1, 2], [1, 0], [3, 2]]), torch.tensor([1, 2]))).classes.tolist()
    [1, 2]
    """
    votes = predictions.classes.sort(0).values  # equal votes lie together, the smaller classes first
    count = torch.stack([(votes == vote).sum(0) for vote in votes])  # how many say what this one says
    most = count.max(0).values
    leads = count == most
    leaders = leads.sum(0) // most  # classes that share the lead
    draws = torch.from_numpy(rng.generator(seed, "ties").random(len(predictions.labels)))
    drawn = (draws * leaders).long()  # which of them, counted from the smallest
    at = (leads & (leads.cumsum(0) == drawn * most + 1)).int().argmax(0)
    return Majority(votes.gather(0, at.unsqueeze(0))[0], leaders > 1)


def count_ties(several: Iterable[Predictions], *, seed: int = 0) -> dict[str, int]:
    """Return how many votes of some ensembles were tied, so that their label was drawn, and how many there were."""
    tied = [majority(some, seed=seed).tied for some in several]
    return {"ties": sum(int(votes.sum()) for votes in tied), "votes": sum(map(len, tied))}


def average_accuracy(predictions: Predictions, *, where: Bool[Tensor, " n"] | None = None) -> tuple[float, float]:
    """Return the accuracy of a model, averaged over models, and its sample standard deviation over them.

    Here and below, `where` keeps to some of the samples, at least one.
    """
    right = _kept(predictions.classes == predictions.labels, where)
    return _share(right), statistics.stdev(right.sum(1).tolist()) / right.shape[1]


def intrinsic_error(predictions: Predictions, *, seed: int = 0, where: Bool[Tensor, " n"] | None = None) -> float:
    """Return the share of samples whose majority label is wrong."""
    return _share(_kept(_wrong(predictions, majority(predictions, seed=seed)), where))


def instability(predictions: Predictions, *, seed: int = 0, where: Bool[Tensor, " n"] | None = None) -> float:
    """Return how often a model departs from the majority, averaged over models and samples."""
    return _share(_kept(_departs(predictions, majority(predictions, seed=seed)), where))


def _wrong(predictions: Predictions, vote: Majority) -> Tensor:
    return vote.classes != predictions.labels


def _departs(predictions: Predictions, vote: Majority) -> Tensor:
    return predictions.classes != vote.classes


def scores(predictions: Predictions, *, seed: int = 0, where: Bool[Tensor, " n"] | None = None) -> Scores:
    """Return all scores of some models, and how many majority labels were drawn among equals."""
    return _scores(predictions, majority(predictions, seed=seed), where)


def _scores(predictions: Predictions, vote: Majority, where: Tensor | None) -> Scores:
    accuracy, std = average_accuracy(predictions, where=where)
    error, departs = _share(_kept(_wrong(predictions, vote), where)), _share(_kept(_departs(predictions, vote), where))
    tied = _kept(vote.tied, where)
    return Scores(tied.numel(), accuracy, std, error, departs, int(tied.sum()))


def scores_by_class(predictions: Predictions, *, seed: int = 0) -> dict[int, Scores]:
    """Return the scores of the samples of each class, for the classes that have any."""
    labels, vote = predictions.labels, majority(predictions, seed=seed)
    found = {}
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero()[:, 0]
        own = Predictions(predictions.classes[:, rows], labels[rows])
        found[label] = _scores(own, Majority(vote.classes[rows], vote.tied[rows]), None)
    return found


def corrected_and_broken(predictions: Predictions, baseline: Predictions, *, seed: int = 0) -> Changes:
    """Return what the vote of these models corrects and breaks against the baseline's vote, on the same samples."""
    same_samples({"these": predictions, "the baseline": baseline})
    labels = predictions.labels
    own, other = (majority(some, seed=seed).classes == labels for some in (predictions, baseline))
    corrected, broken = own & ~other, other & ~own
    return Changes(
        corrected.nonzero()[:, 0],
        broken.nonzero()[:, 0],
        average_accuracy(baseline, where=corrected)[0] if corrected.any() else None,
        average_accuracy(predictions, where=broken)[0] if broken.any() else None,
    )


def intervals(
    several: Mapping[str, Predictions], *, level: float = 0.95, draws: int = 1000, seed: int = 0
) -> dict[str, Intervals]:
    """Return bootstrap confidence intervals of the scores of each, over samples; the models stay as they are.

    They say how far the scores would move on other samples of the same kind, not with other seeds: for that there is the
    spread over models.
    """
    return {name: _ends(values, level) for name, values in _resampled(several, draws, seed).items()}


def difference_intervals(
    several: Mapping[str, Predictions], baseline: str, *, level: float = 0.95, draws: int = 1000, seed: int = 0
) -> dict[str, Intervals]:
    """Return intervals of each one's scores minus the baseline's, both on the same resampled samples."""
    resampled = _resampled(several, draws, seed)
    apart = {name: values - resampled[baseline] for name, values in resampled.items() if name != baseline}
    return {name: _ends(values.round(12), level) for name, values in apart.items()}  # equal shares differ by 0, not by rounding


def same_samples(several: Mapping[str, Predictions]) -> None:
    """Refuse predictions that are not of the same labelled samples."""
    first, *others = several
    for name in others:
        if not torch.equal(several[name].labels, several[first].labels):
            raise ValueError(f"{name!r} and {first!r} are not of the same samples: their labels differ")


def _kept(counted: Tensor, where: Tensor | None) -> Tensor:
    kept = counted if where is None else counted[..., where]
    if not kept.numel():
        raise ValueError("there are no samples to score")
    return kept


def _share(counted: Tensor) -> float:
    return int(counted.sum()) / counted.numel()


def _counts(predictions: Predictions, seed: int) -> np.ndarray:
    """Return of every sample how many models are right, k where the majority is wrong, how many depart from it, [n, 3]."""
    voted = majority(predictions, seed=seed).classes
    right = (predictions.classes == predictions.labels).sum(0)
    wrong = len(predictions.classes) * (voted != predictions.labels)
    return torch.stack([right, wrong, (predictions.classes != voted).sum(0)], dim=1).numpy()


def _resampled(several: Mapping[str, Predictions], draws: int, seed: int) -> dict[str, np.ndarray]:
    """Return the scores on each of `draws` resampled sets of samples, the same sets for all: name -> [draws, 3]."""
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")
    same_samples(several)
    size = len(next(iter(several.values())).labels)
    counts = np.concatenate([_counts(some, seed) for some in several.values()], axis=1).astype(np.float64)
    draw = rng.generator(seed, "bootstrap")
    sums = []
    for start in range(0, draws, at_once := max(1, _AT_ONCE // size)):
        chosen = [np.bincount(draw.integers(0, size, size), minlength=size) for _ in range(min(at_once, draws - start))]
        sums.append(np.stack(chosen).astype(np.float64) @ counts)  # whole numbers: exact in any order
    parts = np.split(np.concatenate(sums), len(several), axis=1)
    return {name: part / (size * len(several[name].classes)) for name, part in zip(several, parts, strict=True)}


def _ends(values: np.ndarray, level: float) -> Intervals:
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level}")
    ends = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0).T.tolist()
    return Intervals(*(Interval(*pair) for pair in ends))
