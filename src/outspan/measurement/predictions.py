"""The predictions of k models for the same samples, and their file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from outspan.shapes import Int64


@dataclass(frozen=True, eq=False)
class Predictions:
    """The classes that k models, one per seed, predict for n samples, and the labels of the samples."""

    classes: Int64[Tensor, "k n"]
    labels: Int64[Tensor, " n"]

    def __post_init__(self) -> None:
        for name, tensor, axes in (("classes", self.classes, 2), ("labels", self.labels, 1)):
            if tensor.dtype != torch.int64 or not tensor.is_cpu or tensor.ndim != axes:
                actual = f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
                raise ValueError(f"{name} must be torch.int64 with {axes} axes on the cpu, got {actual}")
        models, samples = self.classes.shape
        if models < 2:
            raise ValueError(f"scores need at least 2 models (seeds), got {models}: one model cannot disagree with itself")
        if not samples or len(self.labels) != samples:
            raise ValueError(f"classes and labels must have the same samples, got {samples} and {len(self.labels)}")
        if min(int(self.classes.min()), int(self.labels.min())) < 0:
            raise ValueError("classes and labels must be 0 or more")

    def first(self, models: int) -> "Predictions":
        """Return the predictions of the first `models` models: the result with fewer seeds."""
        return Predictions(self.classes[:models], self.labels)


def check_same_samples(predictions: Mapping[str, Predictions]) -> None:
    """Refuse predictions with different labels, because they are for different samples."""
    first, *others = predictions
    for name in others:
        if not torch.equal(predictions[name].labels, predictions[first].labels):
            raise ValueError(f"{name!r} and {first!r} must have the same samples, but their labels differ")


def save_predictions(path: Path, predictions: Mapping[str, Predictions], seeds: Sequence[int]) -> None:
    """Write an .npz file with labels [n], seeds [k], and classes [k, n] by name. Its bytes depend on the content only."""
    labels = next(iter(predictions.values())).labels
    arrays = {"labels": labels.numpy(), "seeds": np.array(seeds)}
    arrays |= {name: one.classes.numpy() for name, one in predictions.items()}
    with open(path, "wb") as file:  # numpy writes the same date for every entry
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]


def load_predictions(path: Path) -> dict[str, Predictions]:
    """Return the predictions in a file of `save_predictions`, by name."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: torch.from_numpy(file[name]) for name in file.files}
        labels, _ = arrays.pop("labels"), arrays.pop("seeds")
    except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a file of predictions of `outspan measure` ({error})") from None
    return {name: Predictions(classes, labels) for name, classes in arrays.items()}
