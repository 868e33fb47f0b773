"""Scores of k models (an ensemble) on the same samples: their accuracy, the error of their vote, and how much they disagree.

Section 4 of arXiv:2005.00695. The majority label M(x) of a sample is the class that most models predict. The *intrinsic
error* is the fraction of samples whose majority label is wrong. More seeds would hardly reduce it. The *instability* is how
often a model differs from the majority label. A vote over seeds removes it. All scores are ratios of counts, so they are exact.
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from outspan import rng
from outspan.measurement.predictions import Predictions, check_same_samples
from outspan.shapes import Bool, Int64


class Majority(NamedTuple):
    """The majority label of every sample, and whether the vote was tied. The label of a tied vote is drawn at random."""

    classes: Int64[Tensor, " n"]
    tied: Bool[Tensor, " n"]


@dataclass(frozen=True)
class Scores:
    """The scores of k models on some samples, as fractions."""

    samples: int
    accuracy: float  # of a single model, averaged over models
    std: float  # of the accuracy over models
    error: float
    instability: float
    ties: int  # samples without a majority: the label was drawn among the classes with the most votes

    def brief(self) -> dict[str, float]:
        """Return the accuracy, its std, the error and the instability by name."""
        return {"accuracy": self.accuracy, "std": self.std, "error": self.error, "instability": self.instability}


@dataclass(frozen=True, eq=False)
class Changes:
    """The samples that the vote of an ensemble corrects and breaks, compared with the vote of a baseline."""

    corrected: Int64[Tensor, " corrected"]  # indices of samples: the baseline's vote is wrong and the ensemble's is right
    broken: Int64[Tensor, " broken"]  # indices of samples: the baseline's vote is right and the ensemble's is wrong
    baseline_accuracy_on_corrected: float | None  # the mean accuracy of the baseline's models there; None without samples
    accuracy_on_broken: float | None  # the mean accuracy of the ensemble's models there


def find_majority(predictions: Predictions, *, seed: int = 0) -> Majority:
    """Return the label that most models predict for each sample. Ties are drawn at random, the same way for the same seed.

    >>> find_majority(Predictions(torch.tensor([[1, 2], [1, 0], [3, 2]]), torch.tensor([1, 2]))).classes.tolist()
    [1, 2]
    """
    votes = predictions.classes.sort(0).values  # equal votes are adjacent, smaller classes first
    count = torch.stack([(votes == vote).sum(0) for vote in votes])  # the number of votes for the same class
    most = count.max(0).values
    leads = count == most
    leaders = leads.sum(0) // most  # number of classes with the most votes
    draws = torch.from_numpy(rng.generator(seed, "ties").random(len(predictions.labels)))
    drawn = (draws * leaders).long()  # the index of the drawn class, from the smallest
    at = (leads & (leads.cumsum(0) == drawn * most + 1)).int().argmax(0)
    return Majority(votes.gather(0, at.unsqueeze(0))[0], leaders > 1)


def count_ties(ensembles: Iterable[Predictions], *, seed: int = 0) -> tuple[int, int]:
    """Return the number of tied votes of several ensembles, and the number of all votes."""
    tied = [find_majority(predictions, seed=seed).tied for predictions in ensembles]
    return sum(int(votes.sum()) for votes in tied), sum(map(len, tied))


def average_accuracy(predictions: Predictions, *, where: Bool[Tensor, " n"] | None = None) -> tuple[float, float]:
    """Return the mean accuracy of the models and its sample standard deviation over them.

    `where` selects some of the samples, at least one.
    """
    right = predictions.classes == predictions.labels
    right = right if where is None else right[:, where]
    if not right.numel():
        raise ValueError("there are no samples to score: `where` selects none")
    return _fraction(right), statistics.stdev(right.sum(1).tolist()) / right.shape[1]


def compute_scores(predictions: Predictions, *, seed: int = 0) -> Scores:
    """Return all scores of an ensemble, and the number of its ties."""
    return _score_vote(predictions, find_majority(predictions, seed=seed))


def _score_vote(predictions: Predictions, vote: Majority) -> Scores:
    accuracy, std = average_accuracy(predictions)
    error = _fraction(vote.classes != predictions.labels)
    instability = _fraction(predictions.classes != vote.classes)
    return Scores(len(predictions.labels), accuracy, std, error, instability, int(vote.tied.sum()))


def scores_by_class(predictions: Predictions, *, seed: int = 0) -> dict[int, Scores]:
    """Return the scores on the samples of each class that has samples."""
    labels, vote = predictions.labels, find_majority(predictions, seed=seed)
    by_class = {}
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero()[:, 0]
        selected = Predictions(predictions.classes[:, rows], labels[rows])
        by_class[label] = _score_vote(selected, Majority(vote.classes[rows], vote.tied[rows]))
    return by_class


def corrected_and_broken(predictions: Predictions, baseline: Predictions, *, seed: int = 0) -> Changes:
    """Return the samples that the vote corrects and breaks compared with the baseline's vote, on the same samples."""
    check_same_samples({"the predictions": predictions, "the baseline": baseline})
    labels = predictions.labels
    right, baseline_right = (find_majority(one, seed=seed).classes == labels for one in (predictions, baseline))
    corrected, broken = right & ~baseline_right, baseline_right & ~right
    return Changes(
        corrected.nonzero()[:, 0],
        broken.nonzero()[:, 0],
        average_accuracy(baseline, where=corrected)[0] if corrected.any() else None,
        average_accuracy(predictions, where=broken)[0] if broken.any() else None,
    )


def _fraction(counted: Tensor) -> float:
    return int(counted.sum()) / counted.numel()
