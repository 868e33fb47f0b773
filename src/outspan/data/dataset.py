"""What a data set is: `Data` after it is read, and `DataSetEntry`, its entry in the table `SETS`, before."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from outspan.data.splits import Samples
from outspan.downloads import Source
from outspan.messages import shown


@dataclass(frozen=True, eq=False)
class Data:
    """A data set: its splits, all of images of one size or all of texts, and the class names."""

    name: str
    train: Samples
    test: Samples
    classes: tuple[str, ...]
    validation: Samples | None = None  # if the data has a validation split of its own

    def __post_init__(self) -> None:
        if wrong := [name for name in self.classes if not isinstance(name, str)]:
            raise ValueError(f"{self.name}: class names must be strings, got {shown(wrong[0])}: use tuple(map(str, classes))")
        for title, split in (("train", self.train), ("test", self.test), ("validation", self.validation)):
            if split is None:
                continue
            if not len(split):
                raise ValueError(f"{self.name}: the {title} split is empty")
            self._check_labels(title, split.labels)
            if split.shape != self.train.shape:
                shapes = f"{list(self.train.shape)} and {list(split.shape)}"
                raise ValueError(f"{self.name}: train and {title} {split.noun} differ in shape, {shapes}")
        if len(self.classes) == 1:
            raise ValueError(f"{self.name}: needs at least two classes, got {self.classes[0]!r} only")

    def _check_labels(self, title: str, labels: Tensor) -> None:
        """Refuse labels of other classes, and splits of which only one has several labels per sample."""
        if labels.ndim != self.train.labels.ndim:
            raise ValueError(f"{self.name}: train and {title} must both have one label per sample, or both several")
        if labels.ndim == 2:
            if labels.shape[1] != len(self.classes):
                problem = f"one column per class, {len(self.classes)}, got {labels.shape[1]}"
                raise ValueError(f"{self.name}: multi-hot {title} labels must have {problem}")
            return
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= len(self.classes):
            raise ValueError(f"{self.name}: {title} labels must lie in [0, {len(self.classes) - 1}], got {low} to {high}")


def count_copies(samples: Samples, others: Samples) -> int:
    """Return how many of the samples are copies of other samples."""
    return sum(map(set(others.keys()).__contains__, samples.keys()))


@dataclass(frozen=True)
class ReadOptions:
    """What decides how files are read, besides their path."""

    size: int = 224  # side of images read from a folder
    skip_bad: int = 0  # number of files of a folder that may be unreadable
    text_column: str = "text"
    label_column: str = "label"
    label_separator: str = ""
    weight_column: str = ""
    channels: str = "auto"  # of images from files: "1", "3", or "auto" for 1 if all of them are grey
    background: str = "white"  # the colour behind their transparent pixels
    workers: int | None = None  # number of processes that read them; None: by the number of cores


@dataclass(frozen=True)
class DataSetEntry:
    """A named data set: how it is read, which files it needs, and where they are published."""

    read: Callable[[Path, ReadOptions], Data]  # the path is that of the folder that contains all data sets
    noun: str = "images"
    files: tuple[tuple[str, ...], ...] = ()  # in that folder; each inner tuple lists alternatives, one of which must exist
    folder: str = ""  # where it is downloaded to, in that folder
    sources: tuple[Source, ...] = ()  # archives are unpacked
    origin: str = ""  # where to get it, if it cannot be downloaded
    is_local: bool = False  # whether a folder of this name in the current folder is used first
