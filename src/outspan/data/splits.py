"""The protocols of all data, `Samples` and `Split`, and images in memory. See also `image_files.py` and `outspan.text`."""

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from outspan.config import Recipe
from outspan.data.model_checks import check_takes_images
from outspan.devices import to_device
from outspan.sample_weights import check_weights, pick_weights, weights_bytes
from outspan.shapes import Labels, Num, UInt8, describe
from outspan.transforms.normalize import NOT_BYTES, as_images

Crops = tuple[int, int] | None  # the seed and the epoch of random resized crops; None crops the center
Statistics = tuple[tuple[float, ...], tuple[float, ...]]  # mean and std per channel


@runtime_checkable
class Samples(Protocol):
    """Labelled samples as they were read: images in memory, image files, or texts that are not tokenized yet."""

    noun: ClassVar[str]  # what the samples are called in messages: "images" or "texts"
    is_croppable: ClassVar[bool]  # whether a random crop is possible when a sample is read
    decoding: ClassVar[int]  # which version of the decoder reads the samples; 0 if no files are decoded

    @property
    def labels(self) -> Labels:
        """The class of each sample, or which classes each has, bool [N, classes]."""
        ...

    @property
    def weights(self) -> Num[Tensor, " N"] | None:
        """The weight of each sample in the training loss; None if all are equal. Scores have no weights."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample as the model sees it: [C, H, W] of images, [T] of tokenized texts, () of other texts."""
        ...

    @cached_property
    def digest(self) -> str:
        """A digest of the samples, which differs from that of other data."""
        ...

    def short_digest(self) -> str:
        """Return a short digest of the samples, which a study stores."""
        ...

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def take(self, rows: Tensor) -> Any:
        """Return a subset of the samples."""
        ...

    def prepared(self, recipe: Recipe, *, train: bool = False) -> "Split":
        """Return the samples ready for batches: texts are tokenized for the recipe's model, images are ready."""
        ...

    def keys(self) -> Iterable[Hashable]:
        """Return a key of each sample. Samples with equal keys are copies."""
        ...

    def statistics(self) -> Statistics:
        """Return the mean and standard deviation per channel; two empty tuples for texts."""
        ...


@runtime_checkable
class Split(Samples, Protocol):
    """Samples from which batches are made. Training, evaluation, studies and the command line use these members only."""

    def to(self, device: torch.device) -> "Split":
        """Return it on the device where batches are needed, if it can be moved."""
        ...

    def can_record_graphs(self, device: torch.device) -> bool:
        """Return whether the steps of training on a device can be recorded as CUDA graphs: batches must have one shape."""
        ...

    def check_model(self, model: nn.Module, name: str, smallest_batch: int) -> None:
        """Refuse a model that does not take the samples.

        `name` is that of the model. `smallest_batch` is the smallest number of samples that it sees at once in training.
        """
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
    """Images and their labels, in memory, and weights of the training loss if they are not equal."""

    images: UInt8[Tensor, "N C H W"]
    labels: Labels
    weights: Num[Tensor, "..."] | None = None
    noun: ClassVar[str] = "images"
    is_croppable: ClassVar[bool] = False
    decoding: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if as_images(self.images).dtype != torch.uint8:
            raise ValueError(NOT_BYTES.format(self.images.dtype))
        _check_labels(self.labels)
        if len(self.images) != len(self.labels):
            raise ValueError(f"{len(self.images)} images have {len(self.labels)} labels")
        check_weights(self.weights, len(self.labels))

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The channels, height and width of an image."""
        _, channels, height, width = self.images.shape
        return channels, height, width

    @cached_property
    def digest(self) -> str:
        """A digest of the pixels, labels and weights."""
        digest = hashlib.sha256(self.labels.numpy().tobytes() + weights_bytes(self.weights))
        digest.update(self.images.contiguous().numpy().data)
        return digest.hexdigest()

    def short_digest(self) -> str:
        """Return a short digest of the pixels and labels."""
        digest = hashlib.blake2b(self.labels.numpy().tobytes() + weights_bytes(self.weights), digest_size=8)
        digest.update(self.images.numpy().tobytes())
        return digest.hexdigest()

    def take(self, rows: Tensor) -> "InMemory":
        """Return a subset of the images."""
        return InMemory(self.images[rows], self.labels[rows], pick_weights(self.weights, rows))

    def prepared(self, recipe: Recipe, *, train: bool = False) -> "InMemory":
        """Return it unchanged: it is ready for batches."""
        return self

    def keys(self) -> Iterator[bytes]:
        """Return the pixels of each image: equal pixels are copies."""
        return (image.numpy().tobytes() for image in self.images.cpu())

    def can_record_graphs(self, device: torch.device) -> bool:
        """Return whether the device is a GPU: all images have one shape."""
        return device.type == "cuda"

    def check_model(self, model: nn.Module, name: str, smallest_batch: int) -> None:
        """Refuse a model that does not take the images."""
        check_takes_images(model, name, self.shape, smallest_batch)

    def to(self, device: torch.device) -> "InMemory":
        """Return it on the device where batches are needed."""
        return InMemory(self.images.to(device), self.labels.to(device), self.weights)

    def divide(self, order: Tensor, batch: int) -> Sequence[Tensor]:
        """Return the rows of each batch of an epoch: parts of the order."""
        return order.split(batch)

    def evaluation_order(self) -> Tensor:
        """Return all rows in their order."""
        return torch.arange(len(self))

    def batches(self, rows: Sequence[Tensor], device: torch.device, crops: Crops = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Return the images and labels of each batch of rows, on a device. `crops` has no effect: all have one size."""
        for batch in rows:
            here = to_device(batch, self.images.device)
            yield self.images[here].to(device), self.labels[here].to(device)

    def statistics(self) -> Statistics:
        """Return the mean and standard deviation per channel, in [0, 1], computed exactly from the histogram."""
        return moments(histogram(self.images))


def _check_labels(labels: Any) -> None:
    """Refuse labels that are neither classes, int64 [N], nor several labels per sample, bool [N, classes]."""
    if isinstance(labels, Tensor) and (labels.ndim, labels.dtype) in ((1, torch.int64), (2, torch.bool)):
        return
    how = "use labels.bool()" if isinstance(labels, Tensor) and labels.ndim == 2 else "use torch.as_tensor(labels).long()"
    if isinstance(labels, Tensor) and labels.ndim > 2:
        how = "segmentation masks are not supported"
    elif isinstance(labels, Tensor) and labels.ndim == 1 and labels.is_floating_point():
        how = "regression is not supported"
    problem = "labels must be int64 [N], or bool [N, classes] if a sample can have several"
    raise ValueError(f"{problem}, got {describe(labels)}: {how}")


def fingerprint(samples: Samples) -> str:
    """Return what a study stores of its data: the number of samples, their noun and a short digest."""
    return f"{len(samples)} {samples.noun}, {samples.short_digest()}"


def histogram(images: UInt8[Tensor, "N C H W"]) -> Tensor:
    """Return how often each byte occurs per channel, float64 [C, 256]."""
    return torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)]).double()


def moments(counts: Tensor) -> Statistics:
    """Return the mean and standard deviation per channel of a histogram [C, 256], in [0, 1]."""
    mean, std = [], []
    values = torch.arange(256, dtype=torch.float64) / 255
    for row in counts:
        frequency = row / row.sum()
        center = float(frequency @ values)
        mean.append(center)
        std.append(max(float(frequency @ (values - center) ** 2) ** 0.5, 1e-6))
    return tuple(mean), tuple(std)
