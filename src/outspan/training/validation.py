"""The best epoch of a run by validation, and whether the run stops early.

Both depend only on the metrics of the epochs, which a checkpoint stores. So a resumed run decides as one that was not stopped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outspan.config import Recipe
from outspan.data.splits import Samples

_METRICS = ("validation_map", "validation_accuracy")  # mAP if a sample can have several labels: exact matches may all be 0


@dataclass(frozen=True)
class Best:
    """The epoch with the highest validation score. Its weights are kept in best.safetensors."""

    epoch: int  # counted from 0
    validation_accuracy: float
    accuracy: float  # on the test split
    validation_map: float | None = None  # mean average precision, the score if a sample can have several labels


def best_epoch(metrics: Sequence[Mapping[str, float]]) -> Best | None:
    """Return the first epoch with the highest validation score, None if there is no validation data.

    The score is the accuracy, or the mean average precision if a sample can have several labels.

    >>> rows = [{"validation_accuracy": value, "test_accuracy": 0.5} for value in (0.7, 0.9, 0.9, 0.8)]
    >>> best_epoch(rows)
    Best(epoch=1, validation_accuracy=0.9, accuracy=0.5, validation_map=None)
    """
    if not metrics or validation_score(metrics[0]) is None:
        return None
    epoch = max(range(len(metrics)), key=lambda i: validation_score(metrics[i]) or 0.0)
    row = metrics[epoch]
    return Best(epoch, row["validation_accuracy"], row["test_accuracy"], row.get("validation_map"))


def validation_score(row: Mapping[str, float]) -> float | None:
    """Return the number by which epochs and runs are compared, from a row of metrics; None without validation data."""
    return next((row[name] for name in _METRICS if name in row), None)


def has_stopped(metrics: Sequence[Mapping[str, float]], patience: int) -> bool:
    """Return whether the best epoch was `patience` epochs ago, or longer. With patience 0 a run does not stop early."""
    best = best_epoch(metrics) if patience else None
    return best is not None and len(metrics) - 1 - best.epoch >= patience


def check_patience(recipe: Recipe, validation: Samples | None) -> None:
    """Refuse a patience without validation data."""
    if recipe.patience and validation is None:
        how = "hold out samples with validation (--set validation=500), or use a folder with train, val and test"
        raise ValueError(f"patience must be 0 for data without validation samples, got {recipe.patience}: {how}")
