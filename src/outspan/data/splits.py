"""Images and their labels, in memory or read from files as they are needed: the same few methods."""

import hashlib
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from outspan import rng
from outspan.children import follow_parent, get_context
from outspan.data.readers import read_cropped, read_fitted
from outspan.devices import to_device
from outspan.shapes import Int64, UInt8

_SAMPLED = 2_000  # so many files give the statistics of a large folder
_FEW = 256  # so many files are read sooner than workers start


Crops = tuple[int, int] | None  # the seed and the epoch of random resized crops; None cuts from the centre


@runtime_checkable
class Split(Protocol):
    """Samples and their labels, whatever they are: images in memory, image files, or text.

    Training, evaluation, studies and the command line use these members alone.
    """

    noun: ClassVar[str]  # what its samples are called in messages: "images" or "texts"
    is_ragged: ClassVar[bool]  # whether batches differ in shape

    @property
    def labels(self) -> Int64[Tensor, " N"]:
        """The class of each sample."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample as the model sees it; of text the largest length."""
        ...

    @cached_property
    def digest(self) -> str:
        """What distinguishes it from other data."""
        ...

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def take(self, rows: Tensor) -> "Split":
        """Return some of the samples."""
        ...

    def to(self, device: torch.device) -> "Split":
        """Return it where batches are needed, if it can be moved."""
        ...

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the mean and standard deviation per channel; nothing for text."""
        ...

    def divide(self, order: Tensor, batch: int) -> Sequence[Tensor]:
        """Return the rows of each batch of an epoch, from a random order of all rows."""
        ...

    def evaluation_order(self) -> Tensor:
        """Return the order in which all rows are evaluated fastest."""
        ...

    def batches(self, rows: Sequence[Tensor], device: torch.device, crops: Crops = None) -> Iterator[tuple[Any, Tensor]]:
        """Return the inputs and labels of each batch of rows, on a device."""
        ...


@dataclass(frozen=True, eq=False)
class InMemory:
    """Images and their labels, in memory."""

    images: UInt8[Tensor, "N C H W"]
    labels: Int64[Tensor, " N"]
    noun: ClassVar[str] = "images"
    is_ragged: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise ValueError(f"{len(self.images)} images have {len(self.labels)} labels")

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The channels, height and width of every image."""
        _, channels, height, width = self.images.shape
        return channels, height, width

    @cached_property
    def digest(self) -> str:
        """What tells them from others."""
        found = hashlib.sha256(self.labels.numpy().tobytes())
        found.update(self.images.contiguous().numpy().data)
        return found.hexdigest()

    def take(self, rows: Tensor) -> "InMemory":
        """Return some of the images."""
        return InMemory(self.images[rows], self.labels[rows])

    def read(self, rows: Tensor) -> "InMemory":
        """Return some of the images, in memory."""
        return self.take(rows)

    def to(self, device: torch.device) -> "InMemory":
        """Return it where batches are wanted."""
        return InMemory(self.images.to(device), self.labels.to(device))

    def divide(self, order: Tensor, batch: int) -> Sequence[Tensor]:
        """Return the rows of each batch of an epoch: parts of the order."""
        return order.split(batch)

    def evaluation_order(self) -> Tensor:
        """Return all rows as they are."""
        return torch.arange(len(self))

    def batches(self, rows: Sequence[Tensor], device: torch.device, crops: Crops = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Return the images and labels of each batch of rows, on a device; they have one size already: nothing is cropped."""
        for some in rows:
            here = to_device(some, self.images.device)
            yield self.images[here].to(device), self.labels[here].to(device)

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the mean and standard deviation of the images a channel, in [0, 1], exactly from the histogram."""
        return _moments(_histogram(self.images))


@dataclass(frozen=True, eq=False)
class Files:
    """Image files and their labels; each image is decoded when a batch asks for it, as `size` x `size` RGB.

    Up to `skip_bad` files may turn out not to be images: the next one of the same class stands in for each.
    """

    paths: Sequence[Path] = field(repr=False)
    labels: Int64[Tensor, " N"]
    size: int
    workers: int = field(default_factory=lambda: min(8, _cores()))
    skip_bad: int = 0
    bad: set[Path] = field(default_factory=set, repr=False)  # those found so far
    noun: ClassVar[str] = "images"
    is_ragged: ClassVar[bool] = False

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The channels, height and width of every image."""
        return 3, self.size, self.size

    @cached_property
    def digest(self) -> str:
        """What tells them from others: their names, since to read them all would take as long as an epoch."""
        found = hashlib.sha256(self.labels.numpy().tobytes())
        found.update("\0".join(f"{path.parent.name}/{path.name}" for path in self.paths).encode(errors="surrogateescape"))
        return found.hexdigest()

    def take(self, rows: Tensor) -> "Files":
        """Return some of the images."""
        return replace(self, paths=[self.paths[row] for row in rows.tolist()], labels=self.labels[rows])

    def read(self, rows: Tensor) -> InMemory:
        """Return some of the images, in memory."""
        parts = list(self.batches(rows.split(100), torch.device("cpu")))
        return InMemory(torch.cat([images for images, _ in parts]), self.labels[rows])

    def to(self, device: torch.device) -> "Files":
        """Return it as it is: files stay where they are."""
        return self

    def divide(self, order: Tensor, batch: int) -> Sequence[Tensor]:
        """Return the rows of each batch of an epoch: parts of the order."""
        return order.split(batch)

    def evaluation_order(self) -> Tensor:
        """Return all rows as they are."""
        return torch.arange(len(self))

    def batches(self, rows: Sequence[Tensor], device: torch.device, crops: Crops = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Return the images and labels of each batch of rows, on a device, read ahead and cropped by workers."""
        on_gpu = device.type == "cuda"
        workers = self.workers if sum(map(len, rows)) > _FEW else 0
        loader = DataLoader(
            _Decoded(self, crops),
            batch_sampler=[some.tolist() for some in rows],
            num_workers=workers,
            multiprocessing_context=get_context() if workers else None,
            pin_memory=on_gpu,
            worker_init_fn=follow_parent,
            generator=torch.Generator(),  # the loop's own is not touched
        )
        try:
            for images, labels, replaced in loader:
                self._note(replaced)
                yield images.to(device, non_blocking=on_gpu), labels.to(device, non_blocking=on_gpu)
        except ValueError as error:  # a worker wraps its traceback into the message; what was wrong is its last line
            raise ValueError(str(error).strip().splitlines()[-1].removeprefix("ValueError: ")) from None

    def _note(self, replaced: Tensor) -> None:
        """Count the files that others stand in for; one more than allowed is refused by name."""
        for row in replaced[replaced >= 0].tolist():
            path = self.paths[row]
            if path in self.bad:
                continue
            self.bad.add(path)
            if len(self.bad) > self.skip_bad:
                raise ValueError(f"{path}: cannot be read as an image, and --skip-bad allows {self.skip_bad} of them")
            warnings.warn(f"{path}: cannot be read as an image; another one of its class stands in for it", stacklevel=3)

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the mean and standard deviation of up to 2,000 images, evenly spaced, a channel, in [0, 1]."""
        rows = torch.linspace(0, len(self) - 1, min(len(self), _SAMPLED)).round().long()
        counts = torch.zeros(3, 256, dtype=torch.float64)
        for images, _ in self.batches(rows.split(100), torch.device("cpu")):
            counts += _histogram(images)
        return _moments(counts)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Decoded(Dataset):  # type: ignore[type-arg]
    def __init__(self, files: Files, crops: Crops) -> None:
        self.files, self.crops = files, crops

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor, int]:
        """Return an image, its label, and its row again where another one had to stand in for it, else -1."""
        label = self.files.labels[row]
        try:
            return self._read(row), label, -1
        except ValueError:
            if not self.files.skip_bad:
                raise
            alike = (self.files.labels == label).nonzero().squeeze(1).tolist()
            at = alike.index(row)
            for other in alike[at + 1 :] + alike[:at]:
                with suppress(ValueError):
                    return self._read(other), label, row
            raise

    def _read(self, row: int) -> Tensor:
        path, size = self.files.paths[row], self.files.size
        if self.crops is None:
            return read_fitted(path, size, size)
        seed, epoch = self.crops
        return read_cropped(path, size, rng.generator(seed, "crop", epoch, row).random(4).tolist())


def _histogram(images: Tensor) -> Tensor:
    return torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)]).double()


def _moments(counts: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    mean, std = [], []
    values = torch.arange(256, dtype=torch.float64) / 255
    for row in counts:
        share = row / row.sum()
        centre = float(share @ values)
        mean.append(centre)
        std.append(max(float(share @ (values - centre) ** 2) ** 0.5, 1e-6))
    return tuple(mean), tuple(std)
