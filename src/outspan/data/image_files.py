"""Image files as a split: each image is decoded when a batch needs it."""

import hashlib
import math
import os
import statistics
import warnings
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from outspan import rng
from outspan.children import follow_parent, get_context
from outspan.config import Recipe
from outspan.data.decode import DECODING, RGB, Pixels, is_grey, opened, read_cropped, read_fitted
from outspan.data.members import ImageFile
from outspan.data.model_checks import check_takes_images
from outspan.data.splits import Crops, Statistics, histogram, moments
from outspan.devices import to_device
from outspan.sample_weights import pick_weights, weights_bytes
from outspan.shapes import Int64, Labels, Num

_MEASURED = 20  # number of files whose size is read, to compare it with `size`
_ENLARGED = 2  # a warning is given if most of them are enlarged by this factor or more
_SAMPLED = 2_000  # number of files from which the statistics and channels of a large folder are computed
_MIN_FILES_FOR_WORKERS = 257  # for fewer files, starting workers takes longer than reading
# A split of up to _SAMPLED images is kept in memory if together they take at most this many bytes. Training reads all of them
# before its first step, for the statistics. So no step decodes files, and the timed steps of policies are comparable.
_KEPT_BYTES = 2**29


@dataclass(frozen=True, eq=False)
class Files:
    """Image files, or images in tar files, and their labels. An image is decoded when a batch needs it.

    It then has `size` x `size` pixels. Up to `skip_bad` images may be unreadable: each is replaced by the next of its class.
    Up to 2,000 images are kept in memory if together they take at most 512 MiB, so each file is read once.
    """

    paths: Sequence[ImageFile] = field(repr=False)
    labels: Labels
    size: int
    workers: int | None = None  # number of processes that read; None: one per core, at most 8
    skip_bad: int = 0
    bad: set[ImageFile] = field(default_factory=set, repr=False)  # the unreadable files so far
    pixels: Pixels = RGB
    weights: Num[Tensor, "..."] | None = None
    keeps: bool = True  # whether images may be kept in memory
    noun: ClassVar[str] = "images"
    is_croppable: ClassVar[bool] = True
    decoding: ClassVar[int] = DECODING

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The channels, height and width of an image."""
        return self.pixels.channels, self.size, self.size

    @cached_property
    def digest(self) -> str:
        """A digest of the file names, labels and weights: reading all files would take as long as an epoch."""
        digest = hashlib.sha256(self.labels.numpy().tobytes() + weights_bytes(self.weights))
        digest.update("\0".join(f"{path.parent.name}/{path.name}" for path in self.paths).encode(errors="surrogateescape"))
        return digest.hexdigest()

    def short_digest(self) -> str:
        """Return a short digest of the labels and of the paths, sizes and times of the files."""
        digest = hashlib.blake2b(self.labels.numpy().tobytes() + weights_bytes(self.weights), digest_size=8)
        files = ((str(path), path.stat()) for path in self.paths)
        digest.update("\0".join(f"{path} {status.st_size} {status.st_mtime_ns}" for path, status in files).encode())
        return digest.hexdigest()

    def take(self, rows: Tensor) -> "Files":
        """Return a subset of the images."""
        weights = pick_weights(self.weights, rows)
        return replace(self, paths=_Picked(self.paths, rows), labels=self.labels[rows], weights=weights)

    def prepared(self, recipe: Recipe, *, train: bool = False) -> "Files":
        """Return it ready for batches. Warn if most training images are much smaller than `size`."""
        if train and (side := self._typical_side()) * _ENLARGED <= self.size:
            problem = f"the images are enlarged to {self.size} px, but the short side of most has at most {side} px"
            warnings.warn(f"{problem}: --set size={max(side, 32)} trains faster", stacklevel=2)
        return replace(self, keeps=False) if train and recipe.crop == "resized" else self  # crops are read anew in each epoch

    def _typical_side(self) -> int:
        """Return the median length of the short side of a few images, in pixels."""
        sides = []
        for row in _spaced(len(self), _MEASURED).tolist():
            with suppress(ValueError), opened(self.paths[row]) as file:  # training names a file that is unreadable
                sides.append(min(file.size))
        return statistics.median_low(sides) if sides else self.size

    def keys(self) -> Iterator["_FileKey"]:
        """Return a key of each file that exists: equal keys have the same name, folder name and content."""
        for path in self.paths:
            with suppress(OSError):  # a broken link
                yield _FileKey(path, (path.parent.name, path.name, path.stat().st_size))

    def can_record_graphs(self, device: torch.device) -> bool:
        """Return whether the device is a GPU: all images have one shape."""
        return device.type == "cuda"

    def check_model(self, model: nn.Module, name: str, smallest_batch: int) -> None:
        """Refuse a model that does not take the images."""
        check_takes_images(model, name, self.shape, smallest_batch)

    def to(self, device: torch.device) -> "Files":
        """Return it unchanged: files stay where they are."""
        return self

    def divide(self, order: Tensor, batch: int) -> Sequence[Tensor]:
        """Return the rows of each batch of an epoch: parts of the order."""
        return order.split(batch)

    def evaluation_order(self) -> Tensor:
        """Return all rows in their order."""
        return torch.arange(len(self))

    def batches(self, rows: Sequence[Tensor], device: torch.device, crops: Crops = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Return the images and labels of each batch of rows, on a device. Workers read ahead and crop."""
        on_gpu = device.type == "cuda"
        kept = self._kept if crops is None else None
        missing = rows if kept is None else [batch[~kept.has[batch]] for batch in rows]
        read = self._read_batches([batch for batch in missing if len(batch)], crops, pin_memory=on_gpu)
        for batch, absent in zip(rows, missing, strict=True):
            images = next(read) if len(absent) else torch.empty((0, *self.shape), dtype=torch.uint8)
            if kept is not None:
                images = kept.fill(batch, absent, images)
            yield to_device(images, device), to_device(self.labels[batch], device)

    @cached_property
    def _kept(self) -> "_Kept | None":
        """The decoded images that are kept in memory; None if they are too many."""
        shape = len(self), *self.shape
        return _Kept(shape) if self.keeps and len(self) <= _SAMPLED and math.prod(shape) <= _KEPT_BYTES else None

    def __getstate__(self) -> object:
        """Return what is pickled: not the images in memory."""
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}

    def _read_batches(self, rows: Sequence[Tensor], crops: Crops, *, pin_memory: bool) -> Iterator[Tensor]:
        """Read the images of each batch of rows."""
        workers = min(8, _cores()) if self.workers is None else self.workers
        workers = workers if sum(map(len, rows)) >= _MIN_FILES_FOR_WORKERS else 0
        loader = DataLoader(
            _Decoded(self, crops),
            batch_sampler=[batch.tolist() for batch in rows],
            num_workers=workers,
            multiprocessing_context=get_context() if workers else None,
            pin_memory=pin_memory,
            worker_init_fn=follow_parent,
            generator=torch.Generator(),  # leaves the global generator alone
        )
        try:
            for images, replaced in loader:
                self._note(replaced)
                yield images
        except ValueError as error:  # a worker puts its traceback into the message; the error is the last line
            raise ValueError(str(error).strip().splitlines()[-1].removeprefix("ValueError: ")) from None

    def _note(self, replaced: Tensor) -> None:
        """Count the unreadable files. If there are more than allowed, raise a ValueError that names the last one."""
        for row in replaced[replaced >= 0].tolist():
            path = self.paths[row]
            if path in self.bad:
                continue
            self.bad.add(path)
            if len(self.bad) > self.skip_bad:
                raise ValueError(f"{path}: cannot be read as an image, and --skip-bad allows {self.skip_bad} of them")
            warnings.warn(f"{path}: cannot be read as an image; another one of its class replaces it", stacklevel=4)

    def statistics(self) -> Statistics:
        """Return the mean and standard deviation per channel, in [0, 1], of up to 2,000 evenly spaced images."""
        counts = torch.zeros(self.pixels.channels, 256, dtype=torch.float64)
        for images, _ in self.batches(_spaced(len(self), _SAMPLED).split(100), torch.device("cpu")):
            counts += histogram(images)
        return moments(counts)


class _Kept:
    """The decoded images of a split, as far as they have been read."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        with torch.inference_mode(False):  # they may be read for an evaluation first
            self.images, self.has = torch.empty(shape, dtype=torch.uint8), torch.zeros(shape[0], dtype=torch.bool)

    def fill(self, rows: Tensor, absent: Tensor, images: Tensor) -> Tensor:
        """Keep the images of the rows that were absent, and return those of all rows."""
        self.images[absent], self.has[absent] = images, True
        return images if len(absent) == len(rows) else self.images[rows]


@dataclass(frozen=True, eq=False)
class _Picked(Sequence[ImageFile]):
    """Some of many paths, which are created when they are needed."""

    paths: Sequence[ImageFile]
    rows: Int64[Tensor, " N"]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> ImageFile:  # pyright: ignore[reportIncompatibleMethodOverride], no slices
        return self.paths[int(self.rows[row])]


def find_channels(paths: Sequence[ImageFile]) -> int:
    """Return 1 if up to 2,000 evenly spaced files are all grey, otherwise 3. Unreadable files are skipped."""
    channels = 3
    for row in _spaced(len(paths), _SAMPLED).tolist():
        with suppress(ValueError):
            if not is_grey(paths[row]):
                return 3
            channels = 1
    return channels


def _spaced(count: int, most: int) -> Tensor:
    """Return up to `most` evenly spaced rows of `count`."""
    return torch.linspace(0, count - 1, min(count, most)).round().long()


def _cores() -> int:
    """Return the number of cores for this process. The processes that torchrun starts on a machine share its cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


@dataclass(frozen=True, eq=False)
class _FileKey:
    """A key of a file. Copies have equal keys: the contents are compared if name, folder name and size are the same."""

    path: ImageFile
    identity: Hashable

    def __hash__(self) -> int:
        return hash(self.identity)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _FileKey) or self.identity != other.identity:
            return False
        return self.path.read_bytes() == other.path.read_bytes()


class _Decoded(Dataset):  # type: ignore[type-arg]
    def __init__(self, files: Files, crops: Crops) -> None:
        self.files, self.crops = files, crops

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        """Return (image, -1).

        If the file is unreadable, return another image of its class, and the row of the unreadable file.
        """
        try:
            return self._read(row), -1
        except ValueError:
            if not self.files.skip_bad:
                raise
            labels = self.files.labels
            members = (labels == labels[row]).view(len(labels), -1).all(1).nonzero().squeeze(1).tolist()
            at = members.index(row)
            for other in members[at + 1 :] + members[:at]:
                with suppress(ValueError):
                    return self._read(other), row
            raise

    def _read(self, row: int) -> Tensor:
        path, size, pixels = self.files.paths[row], self.files.size, self.files.pixels
        if self.crops is None:
            return read_fitted(path, size, size, pixels)
        seed, epoch = self.crops
        return read_cropped(path, size, rng.generator(seed, "crop", epoch, row).random(4).tolist(), pixels)
