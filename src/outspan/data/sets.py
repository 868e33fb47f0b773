"""The named data sets, `SETS`, and how a data set is loaded by its name or path."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from outspan.config import Recipe
from outspan.data import published
from outspan.data.dataset import Data, DataSetEntry, ReadOptions
from outspan.data.formats import find_format
from outspan.data.shards import expand, is_shards
from outspan.data.splits import Samples
from outspan.data.stratify import with_fold
from outspan.downloads import Source, root
from outspan.files import absolute, expand_home
from outspan.messages import shown, unknown

IMAGENET = "imagenet"
_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist"  # a mirror: the authors' page no longer answers
_CIFAR = "https://www.cs.toronto.edu/~kriz"
_SVHN = "https://ufldl.stanford.edu/housenumbers"
_IMDB = "https://ai.stanford.edu/~amaas/data/sentiment"
_MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_MNIST_DIGESTS = (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
_CIFAR_10_NAMES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
SETS: Mapping[str, DataSetEntry] = MappingProxyType(
    {
        "digits": DataSetEntry(published.read_digits),
        "mnist": DataSetEntry(
            published.read_mnist,
            files=tuple((f"mnist/{name}", f"mnist/{name}.gz") for name in _MNIST_FILES),
            folder="mnist",
            sources=tuple(Source(f"{_MNIST}/{name}.gz", sha) for name, sha in zip(_MNIST_FILES, _MNIST_DIGESTS, strict=True)),
        ),
        "cifar10": DataSetEntry(
            published.read_cifar10,
            files=tuple((f"cifar-10-batches-bin/{name}.bin",) for name in _CIFAR_10_NAMES),
            folder="cifar-10-batches-bin",
            sources=(
                Source(f"{_CIFAR}/cifar-10-binary.tar.gz", "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
            ),
        ),
        "cifar100": DataSetEntry(
            published.read_cifar100,
            files=(("cifar-100-binary/train.bin",), ("cifar-100-binary/test.bin",)),
            folder="cifar-100-binary",
            sources=(
                Source(f"{_CIFAR}/cifar-100-binary.tar.gz", "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),
            ),
        ),
        "svhn": DataSetEntry(
            published.read_street_numbers,
            files=(("svhn/train_32x32.mat",), ("svhn/test_32x32.mat",)),
            folder="svhn",
            sources=(
                Source(f"{_SVHN}/train_32x32.mat", "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
                Source(f"{_SVHN}/test_32x32.mat", "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
            ),
        ),
        IMAGENET: DataSetEntry(
            published.read_imagenet,
            files=(("imagenet/train",), tuple(f"imagenet/{name}" for name in ("val", "test", "valid", "validation"))),
            origin="ILSVRC 2012, image-net.org, requires registration",
            is_local=True,
        ),
        "imdb": DataSetEntry(
            published.read_imdb,
            noun="texts",
            files=(("aclImdb", "imdb"),),
            folder="aclImdb",
            sources=(Source(f"{_IMDB}/aclImdb_v1.tar.gz", "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"),),
        ),
    }
)


def load_for(recipe: Recipe, *, skip_bad: int = 0, workers: int | None = None) -> Data:
    """Return the data of a recipe. A fraction takes evenly spaced samples of each split, at least two batches.

    With `folds`, one part of the train samples is the test split.
    """
    data = _read(recipe.data, _read_options(recipe, skip_bad, workers))
    if recipe.crop == "resized" and not data.train.is_croppable:
        raise ValueError(
            f"crop 'resized' is for an image folder or shards, whose images differ in size, got {shown(recipe.data)}"
        )
    if recipe.weight_column and data.train.weights is None:
        raise ValueError(f"weight_column is for tables, got {recipe.weight_column!r} with data {shown(recipe.data)}")
    if recipe.fraction == 1:
        return with_fold(data, recipe)

    def reduce(split: Samples) -> Samples:
        return split.take(_spaced(len(split), recipe.fraction, 2 * recipe.batch))

    validation = None if data.validation is None else reduce(data.validation)
    return with_fold(replace(data, train=reduce(data.train), test=reduce(data.test), validation=validation), recipe)


def _spaced(count: int, fraction: float, least: int) -> Tensor:
    size = min(count, max(least, round(count * fraction)))
    return torch.linspace(0, count - 1, size, dtype=torch.float64).round().long()


def _read_options(recipe: Recipe, skip_bad: int, workers: int | None = None) -> ReadOptions:
    columns = recipe.text_column, recipe.label_column, recipe.label_separator, recipe.weight_column
    return ReadOptions(recipe.size, skip_bad, *columns, recipe.channels, recipe.background, workers)


def load(name: str, *, size: int | None = None, skip_bad: int = 0, columns: tuple[str, str] = ("text", "label")) -> Data:
    """Return a data set by name, or from a path: an `.npz` file, shards, a folder with train/class/ and val/class/ or class/.

    Shards are tar files in the layout of WebDataset, such as `shard-{000..099}.tar`. `size` is for folders and shards, whose
    images differ: they are resized by the short side and cropped in the center. Up to `skip_bad` of their files may be
    unreadable. Text is a table (CSV, TSV, JSONL) with these columns, a folder with a train and a test
    table, or folders of classes with .txt files.
    """
    return _read(name, ReadOptions(size or 224, skip_bad, *columns))


def _read(name: str, options: ReadOptions) -> Data:
    if name in SETS:
        if absent := missing_files(name):
            raise ValueError(f"{absent[0]}: no such file or folder; {_how_to_get(name)}")
        return SETS[name].read(_root_of(name), options)
    path = expand_home(name)
    if (path_format := find_format(path)) is not None:
        return path_format.read(name, path, options)
    if path.is_file():
        raise ValueError(
            f"{name}: a file; data must be a folder, an .npz file, .tar shards, or a .csv, .tsv, .jsonl or .parquet file"
        )
    if os.sep in name:
        raise ValueError(f"{name}: no such file or folder")
    others = "a folder", "an .npz file", ".tar shards", "a .csv, .tsv, .jsonl or .parquet file"
    raise ValueError(f"{name}: no such file or folder, and {unknown('data set', name, SETS, *others)}")


def _root_of(name: str) -> Path:
    """Return the folder that holds a named data set."""
    return Path() if SETS[name].is_local and Path(name).exists() else root()


def missing_files(name: str) -> list[Path]:
    """Return which files or folders of a named data set are missing."""
    folder = _root_of(name)
    return [folder / names[0] for names in SETS[name].files if not any((folder / other).exists() for other in names)]


def _how_to_get(name: str) -> str:
    entry = SETS[name]
    return f"run `outspan data fetch {name}` to download it" if entry.sources else f"get it: {entry.origin}"


def locate(name: str) -> str:
    """Return the absolute path of data that is a file, a folder or shards. Any other name is returned unchanged."""
    if name in SETS and not (SETS[name].is_local and Path(name).exists()):
        return name
    path = expand_home(name)
    return str(path.resolve()) if is_shards(path) else absolute(name)


def is_gone(name: str) -> bool:
    """Return whether data at an absolute path no longer exists."""
    return Path(name).is_absolute() and not all(path.exists() for path in expand(Path(name)))


def noun_of(name: str) -> str:
    """Return what the samples of a data set are called, by its name or path: "images" or "texts"."""
    if name in SETS:
        return SETS[name].noun
    path_format = find_format(expand_home(name)) if name else None
    return "images" if path_format is None else path_format.noun


def check_data_holds(name: str, noun: str, purpose: str) -> None:
    """Refuse data that does not hold "images", or "texts". `purpose` is what the data is for."""
    if noun_of(name) != noun:
        raise ValueError(f"{purpose} needs {noun}, got {noun_of(name)}: data {shown(name)}")


def is_undivided(name: str) -> bool:
    """Return whether data has no test split of its own: a table, shards, or a folder of class folders."""
    path_format = None if name in SETS else find_format(Path(name))
    return path_format is not None and path_format.is_undivided(Path(name))


def has_test_only(name: str) -> bool:
    """Return whether data is a folder of images without a train split."""
    path_format = None if name in SETS else find_format(Path(name))
    return path_format is not None and path_format.has_test_only(Path(name))


def load_whole(name: str, classes: tuple[str, ...], recipe: Recipe, *, skip_bad: int = 0) -> Data:
    """Return all of a table or folder without a train split as the test data of a run with these classes.

    `Data` needs a training split. It is the same as the test split, and is not used.
    """
    path_format = find_format(Path(name))
    assert path_format is not None, "the caller has checked it"
    assert path_format.read_whole is not None, "the caller has checked it"
    test = path_format.read_whole(Path(name), classes, _read_options(recipe, skip_bad))
    return Data(name, test, test, classes)
