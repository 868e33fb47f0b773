"""Which data sets there are, where their files are looked for, and what a set is once read."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import Tensor

from outspan import rng
from outspan.config import Recipe
from outspan.data import readers
from outspan.data.splits import Files, InMemory, Split
from outspan.messages import shown, unknown
from outspan.text.backtranslate import read_cache
from outspan.text.documents import Documents, is_text, read_documents
from outspan.text.models import load_tokenizer
from outspan.text.tokens import Encoded, encode

AnySplit: TypeAlias = Any  # a Split, or Documents, which become one when a tokenizer cuts them


@dataclass(frozen=True, eq=False)
class Data:
    """A data set: two splits of one image size, or of text, and its class names."""

    name: str
    train: AnySplit
    test: AnySplit
    classes: tuple[str, ...]
    validation: AnySplit | None = None  # where the data itself holds one out

    def __post_init__(self) -> None:
        if wrong := [name for name in self.classes if not isinstance(name, str)]:
            raise ValueError(f"{self.name}: class names must be strings, got {shown(wrong[0])}: use tuple(map(str, classes))")
        for kind, split in (("train", self.train), ("test", self.test)):
            if not len(split):
                raise ValueError(f"{self.name}: the {kind} split is empty")
            low, high = int(split.labels.min()), int(split.labels.max())
            if low < 0 or high >= len(self.classes):
                raise ValueError(f"{self.name}: {kind} labels must lie in [0, {len(self.classes) - 1}], got {low} to {high}")
        if self.train.shape and self.test.shape and self.train.shape != self.test.shape:
            sizes = f"{list(self.train.shape)} and {list(self.test.shape)}"
            raise ValueError(f"{self.name}: train and test images differ in size, {sizes}")
        if len(self.classes) == 1:
            raise ValueError(f"{self.name}: needs two classes or more, got {self.classes[0]!r} alone")


IMAGENET = "imagenet"  # a folder of this name, here or among the data sets; its authors hand it to who registers
# The files that the readers ask for, under the folder of all data sets.
_FILES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "mnist": tuple(f"mnist/{kind}-{what}-ubyte" for kind in ("train", "t10k") for what in ("images-idx3", "labels-idx1")),
        "cifar10": tuple(
            f"cifar-10-batches-bin/{name}.bin" for name in (*map("data_batch_{}".format, range(1, 6)), "test_batch")
        ),
        "cifar100": ("cifar-100-binary/train.bin", "cifar-100-binary/test.bin"),
        "svhn": ("svhn/train_32x32.mat", "svhn/test_32x32.mat"),
    }
)
_MOST_CLASSES = 100_000


def root() -> Path:
    """Return the folder that data sets are looked for in: $OUTSPAN_DATA, or ~/.cache/outspan."""
    return Path(os.environ.get("OUTSPAN_DATA") or Path.home() / ".cache" / "outspan")


def load_for(recipe: Recipe, *, skip_bad: int = 0) -> Data:
    """Return the data of a recipe: all of it, or its fraction, evenly spaced and at least two batches."""
    columns = recipe.text_column, recipe.label_column
    data = load(recipe.data, size=recipe.size, skip_bad=skip_bad, columns=columns)
    if recipe.crop == "resized" and not isinstance(data.train, Files):
        raise ValueError(f"crop 'resized' is for an image folder, whose images differ in size, got data {shown(recipe.data)}")
    if recipe.fraction == 1:
        return data

    def some(split: AnySplit) -> AnySplit:
        return split.take(_spaced(len(split), recipe.fraction, 2 * recipe.batch))

    held = None if data.validation is None else some(data.validation)
    return replace(data, train=some(data.train), test=some(data.test), validation=held)


def _spaced(count: int, fraction: float, least: int) -> Tensor:
    wanted = min(count, max(least, round(count * fraction)))
    return torch.linspace(0, count - 1, wanted, dtype=torch.float64).round().long()


def load(name: str, *, size: int | None = None, skip_bad: int = 0, columns: tuple[str, str] = ("text", "label")) -> Data:
    """Return a data set by name, or from a path: an `.npz` file, or a folder with train/class/ and val/class/, or class/ alone.

    `size` is for folders, whose images differ: they are resized by the short side and cut from the centre. `skip_bad` files of
    theirs may be no images. Text is a table (CSV, TSV, JSONL) with these columns, a folder with a train and a test table, or
    folders of classes with .txt files.
    """
    if name in _FILES and (absent := missing_files(name)):
        raise ValueError(f"{absent[0]}: no such file; `outspan data fetch {name}` brings it")
    if name in SETS:
        return SETS[name](root())
    path = _imagenet() if name == IMAGENET else Path(name)
    if _holds_text(path):
        return Data(name, *read_documents(path, text=columns[0], label=columns[1]))
    if path.suffix == ".npz":
        return _from_arrays(name, *readers.read_npz(path))
    if path.is_dir():
        train, test, held, classes = readers.list_folder(path)
        first = Files(*train, size or 224, skip_bad=skip_bad)
        others = [Files(*some, size or 224, skip_bad=skip_bad, bad=first.bad) for some in (test, held) if some is not None]
        return Data(name, first, others[0], classes, *others[1:])
    if name == IMAGENET:
        raise ValueError(f"{path}: no such folder; it has train/CLASS and val/CLASS, ILSVRC 2012 from image-net.org")
    if path.is_file():
        raise ValueError(f"{name}: a file; data is a folder, an .npz file, or for text a .csv, .tsv or .jsonl file")
    if os.sep in name:
        raise ValueError(f"{name}: no such file or folder")
    raise unknown("data set", name, SETS, "a folder", "an .npz file", "a .csv, .tsv or .jsonl file")


def _imagenet() -> Path:
    return Path(IMAGENET) if Path(IMAGENET).exists() else root() / IMAGENET


def missing_files(name: str) -> list[Path]:
    """Return which files of a published set, or folders of ImageNet and IMDb, are not here."""
    if name == IMAGENET:
        folder = _imagenet()
        return [folder / kinds[0] for kinds in (("train",), ("val", "test")) if not any((folder / k).is_dir() for k in kinds)]
    if name == "imdb":
        return [] if _imdb_folder(root()).is_dir() else [_imdb_folder(root())]
    kinds = ("", ".gz") if name == "mnist" else ("",)
    return [root() / file for file in _FILES[name] if not any((root() / f"{file}{kind}").is_file() for kind in kinds)]


def is_textual(name: str) -> bool:
    """Return whether a data set's name or path is one of text."""
    return name == "imdb" or (name not in SETS and bool(name) and _holds_text(Path(name)))


def noun_of(name: str) -> str:
    """Return what the samples of a data set are called, by its name or path: "images" or "texts"."""
    return "texts" if is_textual(name) else "images"


def _holds_text(path: Path) -> bool:
    """Return whether a path is one of text; class folders of images are not, whatever tables and notes lie beside them."""
    return not readers.has_images(path) and is_text(path)


def as_read(split: AnySplit, recipe: Recipe, *, train: bool = False) -> Split:
    """Return documents as the tokens of the recipe's model, with all that `train` needs; anything else as it is."""
    if not isinstance(split, Documents):
        return split
    return _encoded(split, recipe.model, recipe.length, recipe.truncate, recipe.cache if train else "", train)


@lru_cache(maxsize=8)  # seeds, policies and points of one process share their tokens, though each reads its documents anew
def _encoded(documents: Documents, model: str, length: int, truncate: str, cache: str, train: bool) -> Encoded:
    backs = read_cache(Path(cache)) if cache else None
    return encode(documents, load_tokenizer(model), length=length, truncate=truncate, cache=backs, train=train)


def _from_arrays(name: str, *arrays: Tensor) -> Data:
    for kind, images, labels in (("train", *arrays[:2]), ("test", *arrays[2:])):
        if len(images) != len(labels):
            raise ValueError(f"{name}: the {len(images)} {kind} images have {len(labels)} labels")
    train, test = InMemory(arrays[0], arrays[1]), InMemory(arrays[2], arrays[3])
    count = int(train.labels.max()) + 1 if len(train) else 0
    if count > _MOST_CLASSES:
        raise ValueError(f"{name}: labels must lie below {_MOST_CLASSES:,}, got {count - 1}")
    return Data(name, train, test, tuple(map(str, range(count))))


def _digits(_: Path) -> Data:
    """Return 5,000 and 1,000 digits of MNIST (LeCun, Cortes, Burges; CC BY-SA 3.0), embedded."""
    return _from_arrays("digits", *readers.read_npz(Path(str(files("outspan.data").joinpath("digits.npz")))))


def _mnist(folder: Path) -> Data:
    def split(first: int, count: int) -> InMemory:
        images, labels = (folder / file for file in _FILES["mnist"][first : first + 2])
        return InMemory(readers.read_idx(images, (count, 28, 28)).unsqueeze(1), readers.read_idx(labels, (count,)).long())

    return Data("mnist", split(0, 60_000), split(2, 10_000), tuple(map(str, range(10))))


_CIFAR_10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def _cifar10(folder: Path) -> Data:
    *batches, last = (folder / file for file in _FILES["cifar10"])
    train = readers.read_cifar(batches, label_bytes=1, records=10_000)
    test = readers.read_cifar([last], label_bytes=1, records=10_000)
    return Data("cifar10", InMemory(*train), InMemory(*test), _CIFAR_10)


def _cifar100(folder: Path) -> Data:
    first, last = (folder / file for file in _FILES["cifar100"])
    train = readers.read_cifar([first], label_bytes=2, records=50_000)
    test = readers.read_cifar([last], label_bytes=2, records=10_000)
    return Data("cifar100", InMemory(*train), InMemory(*test), tuple(map(str, range(100))))


def _svhn(folder: Path) -> Data:
    train, test = (readers.read_svhn(folder / file) for file in _FILES["svhn"])
    return Data("svhn", InMemory(*train), InMemory(*test), tuple(map(str, range(10))))


def _imdb_folder(folder: Path) -> Path:
    return next((folder / name for name in ("aclImdb", "imdb") if (folder / name).is_dir()), folder / "aclImdb")


def _imdb(folder: Path) -> Data:
    """Return IMDb's 25,000 and 25,000 reviews: the official folder, aclImdb, or one with train and test as JSONL."""
    home = _imdb_folder(folder)
    if not home.is_dir():
        raise ValueError(f"{home}: no such folder; `outspan data fetch imdb` brings it, or unpack aclImdb_v1.tar.gz there")
    return Data("imdb", *read_documents(home))


SETS: Mapping[str, Callable[[Path], Data]] = MappingProxyType(
    {
        "digits": _digits,
        "mnist": _mnist,
        "cifar10": _cifar10,
        "cifar100": _cifar100,
        "svhn": _svhn,
        "imdb": _imdb,
    }
)


def hold_out(split: AnySplit, count: int, seed: int) -> tuple[AnySplit, AnySplit | None]:
    """Return what is trained on and, where `count` is not 0, so many images or texts held out at random."""
    if not count:
        return split, None
    if count >= len(split):
        raise ValueError(f"validation must be below the {len(split)} of train, got {count}")
    order = torch.from_numpy(rng.generator(seed, "validation").permutation(len(split)))
    return split.take(order[count:].sort().values), split.take(order[:count].sort().values)
