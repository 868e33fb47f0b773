"""The best epoch of a run by validation, and whether the run stops early.

Both depend only on the metrics of the epochs, which a checkpoint stores. So a resumed run decides as one that was not stopped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from outspan.config import Recipe
from outspan.data.splits import Samples

# The metrics that may decide, and their names for users. A row has the accuracy and at most one other, which then decides.
BEST_METRICS: Mapping[str, str] = MappingProxyType(
    {"map": "mAP", "balanced_accuracy": "balanced accuracy", "macro_f1": "macro F1", "accuracy": "accuracy"}
)


@dataclass(frozen=True)
class Best:
    """The epoch with the highest validation score. Its weights are kept in best.safetensors."""

    epoch: int  # counted from 0
    metric: str  # the recipe's `best_metric`, or "map" if a sample can have several labels
    score: float  # the value of this metric on the validation data
    validation_accuracy: float
    accuracy: float  # on the test split


def best_epoch(metrics: Sequence[Mapping[str, float]]) -> Best | None:
    """Return the first epoch with the highest validation score, None if there is no validation data.

    The score is the recipe's `best_metric`, or the mean average precision if a sample can have several labels, because exact
    matches may all be 0.

    >>> rows = [{"validation_accuracy": value, "test_accuracy": 0.5} for value in (0.7, 0.9, 0.9, 0.8)]
    >>> best_epoch(rows)
    Best(epoch=1, metric='accuracy', score=0.9, validation_accuracy=0.9, accuracy=0.5)
    """
    metric = find_metric(metrics[0]) if metrics else None
    if metric is None:
        return None
    scores = [row[f"validation_{metric}"] for row in metrics]
    epoch = scores.index(max(scores))
    row = metrics[epoch]
    return Best(epoch, metric, scores[epoch], row["validation_accuracy"], row["test_accuracy"])


def find_metric(row: Mapping[str, float]) -> str | None:
    """Return the metric by which epochs and runs are compared, from a row of metrics; None without validation data."""
    return next((name for name in BEST_METRICS if f"validation_{name}" in row), None)


def has_stopped(metrics: Sequence[Mapping[str, float]], patience: int) -> bool:
    """Return whether the best epoch was `patience` epochs ago, or longer. With patience 0 a run does not stop early."""
    best = best_epoch(metrics) if patience else None
    return best is not None and len(metrics) - 1 - best.epoch >= patience


def check_validation_keys(recipe: Recipe, validation: Samples | None) -> None:
    """Refuse a patience or a metric of the best epoch that the validation data does not allow."""
    if validation is None:
        how = "hold out samples with validation (--set validation=500), or use a folder with train, val and test"
        for key, default in (("patience", 0), ("best_metric", "accuracy")):
            if (value := getattr(recipe, key)) != default:
                raise ValueError(f"{key} must be {default!r} for data without validation samples, got {value!r}: {how}")
    elif validation.labels.ndim == 2 and recipe.best_metric != "accuracy":
        how = "leave it out, the best epoch is then the one with the highest mean average precision"
        raise ValueError(f"best_metric is for data with one label per sample, got {recipe.best_metric!r}: {how}")
