"""Readers of the published data sets. Each takes the folder that holds all data sets. `SETS` in sets.py names them."""

import warnings
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor

from outspan.data.dataset import Data, ReadOptions
from outspan.data.decode import Pixels
from outspan.data.dividing import pick_test_rows
from outspan.data.folders import Listing, list_folder
from outspan.data.image_files import Files, find_channels
from outspan.data.members import Members
from outspan.data.readers import read_cifar, read_idx, read_npz, read_svhn
from outspan.data.shards import list_shards
from outspan.data.splits import InMemory
from outspan.data.table_labels import EACH_A_CLASS
from outspan.data.tables import read_documents

_MAX_CLASSES = 100_000
_MANY_NUMBERS, _FEW_SAMPLES = 50, 20  # more classes with fewer samples per class, on average, may be a quantity
_DIGIT_NAMES = tuple(map(str, range(10)))
_CIFAR_10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def read_digits(root: Path, options: ReadOptions) -> Data:
    """Return 5,000 and 1,000 digits of MNIST (LeCun, Cortes, Burges; CC BY-SA 3.0), which are part of the package."""
    return read_arrays("digits", Path(str(files("outspan.data").joinpath("digits.npz"))))


def read_mnist(root: Path, options: ReadOptions) -> Data:
    """Return MNIST: 60,000 and 10,000 digits, 28 x 28."""

    def split(name: str, count: int) -> InMemory:
        images = read_idx(root / "mnist" / f"{name}-images-idx3-ubyte", (count, 28, 28))
        return InMemory(images.unsqueeze(1), read_idx(root / "mnist" / f"{name}-labels-idx1-ubyte", (count,)).long())

    return Data("mnist", split("train", 60_000), split("t10k", 10_000), _DIGIT_NAMES)


def read_cifar10(root: Path, options: ReadOptions) -> Data:
    """Return CIFAR-10: 50,000 and 10,000 images, 32 x 32."""
    folder = root / "cifar-10-batches-bin"
    train = read_cifar([folder / f"data_batch_{i}.bin" for i in range(1, 6)], label_bytes=1, records=10_000)
    test = read_cifar([folder / "test_batch.bin"], label_bytes=1, records=10_000)
    return Data("cifar10", InMemory(*train), InMemory(*test), _CIFAR_10)


def read_cifar100(root: Path, options: ReadOptions) -> Data:
    """Return CIFAR-100 with its fine labels: 50,000 and 10,000 images, 32 x 32."""
    folder = root / "cifar-100-binary"
    train = read_cifar([folder / "train.bin"], label_bytes=2, records=50_000)
    test = read_cifar([folder / "test.bin"], label_bytes=2, records=10_000)
    return Data("cifar100", InMemory(*train), InMemory(*test), tuple(map(str, range(100))))


def read_street_numbers(root: Path, options: ReadOptions) -> Data:
    """Return SVHN, cropped digits: 73,257 and 26,032 images, 32 x 32."""
    train, test = (read_svhn(root / "svhn" / f"{name}_32x32.mat") for name in ("train", "test"))
    return Data("svhn", InMemory(*train), InMemory(*test), _DIGIT_NAMES)


def read_imagenet(root: Path, options: ReadOptions) -> Data:
    """Return ImageNet (ILSVRC 2012): a folder with train/CLASS and val/CLASS."""
    return read_folder("imagenet", root / "imagenet", options)


def read_imdb(root: Path, options: ReadOptions) -> Data:
    """Return IMDb's 25,000 and 25,000 reviews: the official folder, aclImdb, or `imdb` with train and test as tables."""
    folder = next((root / name for name in ("aclImdb", "imdb") if (root / name).is_dir()), root / "aclImdb")
    return Data("imdb", *read_documents(folder))


def read_folder(name: str, path: Path, options: ReadOptions) -> Data:
    """Return a folder of images with train/CLASS and val/CLASS or test/CLASS, or with class folders only."""
    train, test, validation, classes = list_folder(path)
    first = make_files(train, options)
    splits = [listing for listing in (test, validation) if listing is not None]
    others = [replace(first, paths=paths, labels=labels) for paths, labels in splits]
    return Data(name, first, others[0], classes, *others[1:])


def make_files(listing: Listing, options: ReadOptions) -> Files:
    """Return listed image files as a split."""
    paths, labels = listing
    channels = find_channels(paths) if options.channels == "auto" else int(options.channels)
    pixels = Pixels(channels, options.background)
    return Files(paths, labels, options.size, options.workers, options.skip_bad, pixels=pixels)


def read_arrays(name: str, path: Path) -> Data:
    """Return the data set in an .npz file."""
    train_images, train_labels, test_images, test_labels, weights = read_npz(path)

    def split(title: str, images: Tensor, labels: Tensor, weights: Tensor | None = None) -> InMemory:
        if len(images) != len(labels):
            raise ValueError(f"{name}: the {len(images)} {title} images have {len(labels)} labels")
        try:
            return InMemory(images, labels, weights)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None

    train, test = split("train", train_images, train_labels, weights), split("test", test_images, test_labels)
    if train_labels.ndim == 2:
        return Data(name, train, test, tuple(map(str, range(train_labels.shape[1]))))
    return Data(name, train, test, _number_classes(name, train.labels, test.labels))


def read_whole_shards(path: Path, options: ReadOptions) -> tuple[Members, Files]:
    """Return the images of tar shards. A damaged shard counts as an unreadable file."""
    members, labels = list_shards(path, skip_bad=options.skip_bad)
    return members, make_files((members, labels), replace(options, skip_bad=options.skip_bad - members.damaged))


def read_shards(name: str, path: Path, options: ReadOptions) -> Data:
    """Return the images of tar shards. About a fifth of them is for testing, picked by their names."""
    members, whole = read_whole_shards(path, options)
    shards = [shard.name for shard in members.shards]
    names = [f"{shards[number]}/{key}" for number, key in zip(members.numbers.tolist(), members.names, strict=True)]
    is_test = torch.zeros(len(whole), dtype=torch.bool)
    is_test[list(pick_test_rows(names, whole.labels.tolist()))] = True
    train, test = (whole.take(rows.nonzero().squeeze(1)) for rows in (~is_test, is_test))
    return Data(name, train, test, _number_classes(name, whole.labels))


def _number_classes(name: str, labels: Tensor, more: Tensor | None = None) -> tuple[str, ...]:
    """Return the numbers from 0 to the largest label as classes. Warn if some of them are in neither of the labels."""
    count = int(labels.max()) + 1 if len(labels) else 0
    if count > _MAX_CLASSES:
        raise ValueError(f"{name}: labels must lie below {_MAX_CLASSES:,}, got {count - 1}")
    samples = len(labels) + (0 if more is None else len(more))
    if count > _MANY_NUMBERS and samples < _FEW_SAMPLES * count:
        warnings.warn(f"{name}: the labels are {count} numbers for {samples:,} images: {EACH_A_CLASS}", stacklevel=3)
    present = {*labels.tolist(), *(() if more is None else more.tolist())}
    if missing := [str(label) for label in range(count) if label not in present]:
        how = "subtract 1 from all labels" if missing == ["0"] else "number the classes without gaps"
        classes = f"{', '.join(missing[:5])}{', …' if len(missing) > 5 else ''}"
        warnings.warn(f"{name}: no image has label {classes}, but each label below {count} is a class: {how}", stacklevel=3)
    return tuple(map(str, range(count)))
