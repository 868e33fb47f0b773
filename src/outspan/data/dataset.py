"""What a data set is: `Data` once it is read, and `DataSet`, its entry in the table `SETS`, before."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from outspan.messages import shown

AnySamples: TypeAlias = Any  # `Samples`; not checked, because each class has more attributes: `images`, `texts`, `batches`


@dataclass(frozen=True, eq=False)
class Data:
    """A data set: two splits of images of one size, or of texts, and the class names."""

    name: str
    train: AnySamples
    test: AnySamples
    classes: tuple[str, ...]
    validation: AnySamples | None = None  # if the data has a validation split of its own

    def __post_init__(self) -> None:
        if wrong := [name for name in self.classes if not isinstance(name, str)]:
            raise ValueError(f"{self.name}: class names must be strings, got {shown(wrong[0])}: use tuple(map(str, classes))")
        for title, split in (("train", self.train), ("test", self.test)):
            if not len(split):
                raise ValueError(f"{self.name}: the {title} split is empty")
            low, high = int(split.labels.min()), int(split.labels.max())
            if low < 0 or high >= len(self.classes):
                raise ValueError(f"{self.name}: {title} labels must lie in [0, {len(self.classes) - 1}], got {low} to {high}")
        if self.train.shape and self.test.shape and self.train.shape != self.test.shape:
            sizes = f"{list(self.train.shape)} and {list(self.test.shape)}"
            raise ValueError(f"{self.name}: train and test images differ in size, {sizes}")
        if len(self.classes) == 1:
            raise ValueError(f"{self.name}: needs at least two classes, got {self.classes[0]!r} only")


def count_copies(samples: AnySamples, others: AnySamples) -> int:
    """Return how many of the samples are copies of other samples."""
    return sum(map(set(others.keys()).__contains__, samples.keys()))


@dataclass(frozen=True)
class ReadOptions:
    """What decides how files are read, besides their path."""

    size: int = 224  # side of images read from a folder
    skip_bad: int = 0  # number of files of a folder that may be unreadable
    text_column: str = "text"
    label_column: str = "label"


@dataclass(frozen=True, slots=True)
class Source:
    """A file to download: its address and its SHA-256."""

    url: str
    sha256: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class DataSet:
    """A named data set: how it is read, which files it needs, and where they are published."""

    read: Callable[[Path, ReadOptions], Data]  # from the folder that holds all data sets
    noun: str = "images"
    files: tuple[tuple[str, ...], ...] = ()  # below that folder; of each tuple one must exist
    folder: str = ""  # into which it is downloaded
    sources: tuple[Source, ...] = ()  # archives are unpacked
    origin: str = ""  # where to get it, if it cannot be downloaded
    is_local: bool = False  # whether a folder of this name in the current folder comes first
