"""The best epoch of a run by validation, and whether the run stops early.

Both depend only on the metrics of the epochs, which a checkpoint stores. So a resumed run decides as one that was not stopped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outspan.config import Recipe
from outspan.data.splits import Samples

_METRIC = "validation_accuracy"


@dataclass(frozen=True)
class Best:
    """The epoch with the highest validation accuracy. Its weights are kept in best.safetensors."""

    epoch: int  # counted from 0
    validation_accuracy: float
    accuracy: float  # on the test split


def best_epoch(metrics: Sequence[Mapping[str, float]]) -> Best | None:
    """Return the first epoch with the highest validation accuracy, None if there is no validation data.

    >>> rows = [{"validation_accuracy": value, "test_accuracy": 0.5} for value in (0.7, 0.9, 0.9, 0.8)]
    >>> best_epoch(rows)
    Best(epoch=1, validation_accuracy=0.9, accuracy=0.5)
    """
    if not metrics or _METRIC not in metrics[0]:
        return None
    epoch = max(range(len(metrics)), key=lambda i: metrics[i][_METRIC])
    return Best(epoch, metrics[epoch][_METRIC], metrics[epoch]["test_accuracy"])


def has_stopped(metrics: Sequence[Mapping[str, float]], patience: int) -> bool:
    """Return whether the best epoch was `patience` epochs ago, or longer. With patience 0 a run does not stop early."""
    best = best_epoch(metrics) if patience else None
    return best is not None and len(metrics) - 1 - best.epoch >= patience


def check_patience(recipe: Recipe, validation: Samples | None) -> None:
    """Refuse a patience without validation data."""
    if recipe.patience and validation is None:
        how = "hold out samples with validation (--set validation=500), or use a folder with train, val and test"
        raise ValueError(f"patience must be 0 for data without validation samples, got {recipe.patience}: {how}")
