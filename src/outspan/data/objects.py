"""Data sets that are Python objects, as those of torchvision: `len(dataset)`, and `dataset[i]` is an image and its class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from outspan.data.dataset import Data
from outspan.data.decode import GREY, Pixels, convert, fit, to_tensor
from outspan.data.splits import InMemory
from outspan.limits import check_whole
from outspan.shapes import UInt8, describe


def from_datasets(
    train: Any,
    test: Any,
    validation: Any = None,
    *,
    size: int | None = None,
    classes: Sequence[str] | None = None,
    background: str = "white",
    name: str = "datasets",
) -> Data:
    """Return data for `train(splits=...)` and `evaluate(splits=...)` from data sets in the style of torchvision.

    All items are read once, into memory. So a data set must not augment: leave that to the policy.

    Example::

        train, test = torchvision.datasets.CIFAR10("data"), torchvision.datasets.CIFAR10("data", train=False)
        outspan.train(splits=outspan.from_datasets(train, test), model="wide_resnet-28-2", out="runs/objects")

    Args:
        train: An object with `len(train)`, whose items `train[i]` are an image and its class, an integer from 0. An image is a
            Pillow image or a uint8 tensor [C, H, W] or [H, W].
        test: The same for the test split.
        validation: The same for a validation split, if there is one.
        size: The side in pixels to which images are resized, after a centre crop. By default they keep their size, which must
            be the same for all.
        classes: The names of the classes. By default `train.classes`, or else the numbers of the classes.
        background: The colour behind transparent pixels of Pillow images.
        name: The name of the data in messages.
    """
    if size is not None:
        check_whole("size", size, 1, 4096)
    parts = {"train": train, "test": test} | ({} if validation is None else {"validation": validation})
    read = {title: [_read(title, part, row, size, background) for row in range(len(part))] for title, part in parts.items()}
    for title, items in read.items():
        if not items:
            raise ValueError(f"{name}: the {title} data set is empty")
    channels = max(image.shape[0] for items in read.values() for image, _ in items)
    splits = {title: _stack(title, items, channels, read["train"][0][0].shape[1:]) for title, items in read.items()}
    names = getattr(train, "classes", None) if classes is None else classes
    if names is None:
        names = range(1 + max(int(split.labels.max()) for split in splits.values()))
    return Data(name, splits["train"], splits["test"], tuple(map(str, names)), splits.get("validation"))


def _read(title: str, dataset: Any, row: int, size: int | None, background: str) -> tuple[UInt8[Tensor, "C H W"], int]:
    """Return an item as bytes, grey or RGB, and its class."""
    item = dataset[row]
    where = f"item {row} of the {title} data set"
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise ValueError(f"{where} must be an image and its class, got {describe(item)}")
    image, label = item
    if isinstance(label, bool) or not (isinstance(label, int | np.integer) or _is_number(label)) or int(label) < 0:
        raise ValueError(f"{where} must have a class, an integer from 0, got {describe(label)} {label!r:.40}")
    if isinstance(image, Tensor):
        image = _to_picture(where, image)
    if not isinstance(image, Image.Image):
        raise ValueError(f"{where} must have a Pillow image or a uint8 tensor, got {describe(image)}")
    pixels = Pixels(1 if image.mode in GREY else 3, background)
    return to_tensor(convert(image, pixels) if size is None else fit(image, size, size, pixels)), int(label)


def _is_number(label: object) -> bool:
    return isinstance(label, Tensor) and label.ndim == 0 and not label.is_floating_point() and label.dtype != torch.bool


def _to_picture(where: str, image: Tensor) -> Image.Image:
    image = image.unsqueeze(0) if image.ndim == 2 else image
    if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[0] not in (1, 3):
        how = (
            "leave out ToTensor() and Normalize()"
            if image.is_floating_point()
            else "use [H, W] or [C, H, W] with 1 or 3 channels"
        )
        raise ValueError(f"{where} must be a uint8 tensor [C, H, W], got {describe(image)}: {how}")
    array = image.cpu().numpy()
    return Image.fromarray(array[0] if len(array) == 1 else np.ascontiguousarray(array.transpose(1, 2, 0)))


def _stack(title: str, items: Sequence[tuple[Tensor, int]], channels: int, size: Sequence[int]) -> InMemory:
    for row, (image, _) in enumerate(items):
        if image.shape[1:] != size:
            sizes = f"{size[1]} x {size[0]} and {image.shape[2]} x {image.shape[1]}"
            raise ValueError(f"item {row} of the {title} data set: images differ in size, {sizes} pixels: pass size=224")
    images = torch.stack([image.expand(channels, -1, -1) for image, _ in items])
    return InMemory(images, torch.tensor([label for _, label in items]))
