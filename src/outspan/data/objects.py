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
from outspan.messages import shown
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
            Pillow image or a uint8 tensor [C, H, W] or [H, W]. If an image can have several labels, they are a bool tensor
            or array [classes] in place of the class.
        test: The same for the test split.
        validation: The same for a validation split, if there is one.
        size: The side in pixels to which images are resized, after a centre crop. By default they keep their size, which must
            be the same for all.
        classes: The names of the classes. By default `train.classes`, or else the numbers of the classes. `test.classes` and
            `validation.classes`, if they exist, must be those of `train`.
        background: The colour behind transparent pixels of Pillow images.
        name: The name of the data in messages.
    """
    if size is not None:
        check_whole("size", size, 1, 4096)
    parts = {"train": train, "test": test} | ({} if validation is None else {"validation": validation})
    for title, part in parts.items():
        _check_part(title, part, train)
    read = {title: [_read(title, part, row, size, background) for row in range(len(part))] for title, part in parts.items()}
    for title, items in read.items():
        if not items:
            raise ValueError(f"{name}: the {title} data set is empty")
    channels = max(image.shape[0] for items in read.values() for image, _ in items)
    splits = {title: _stack(title, items, channels, read["train"][0][0].shape[1:]) for title, items in read.items()}
    names = getattr(train, "classes", None) if classes is None else classes
    if names is None:
        labels = splits["train"].labels
        names = range(labels.shape[1] if labels.ndim == 2 else 1 + max(int(split.labels.max()) for split in splits.values()))
    return Data(name, splits["train"], splits["test"], tuple(map(str, names)), splits.get("validation"))


def _check_part(title: str, dataset: Any, train: Any) -> None:
    """Refuse a data set without length or items, and one whose classes are not those of the train data set."""
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        how = "use a map-style data set, or pass list(dataset)"
        raise ValueError(f"the {title} data set must have a length and items by their number, got {describe(dataset)}: {how}")
    expected, got = (getattr(one, "classes", None) for one in (train, dataset))
    if expected is not None and got is not None and list(got) != list(expected):
        problem = f"the classes of the {title} data set must be those of train in the same order, {shown(list(expected))}"
        raise ValueError(f"{problem}, got {shown(list(got))}: a label would mean another class")


def _read(title: str, dataset: Any, row: int, size: int | None, background: str) -> tuple[UInt8[Tensor, "C H W"], Tensor]:
    """Return an item as bytes, grey or RGB, and its class or, bool [classes], its labels."""
    item = dataset[row]
    where = f"item {row} of the {title} data set"
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise ValueError(f"{where} must be an image and its class, got {describe(item)}")
    image, label = item
    label = _to_label(where, label)
    if isinstance(image, Tensor):
        image = _to_picture(where, image)
    if not isinstance(image, Image.Image):
        raise ValueError(f"{where} must have a Pillow image or a uint8 tensor, got {describe(image)}")
    pixels = Pixels(1 if image.mode in GREY else 3, background)
    return to_tensor(convert(image, pixels) if size is None else fit(image, size, size, pixels)), label


def _to_label(where: str, label: Any) -> Tensor:
    array = np.asarray(label.cpu() if isinstance(label, Tensor) else label)
    is_row = array.ndim == 1 and array.dtype == bool and not isinstance(label, list | tuple)
    if is_row or (array.ndim == 0 and array.dtype.kind in "iu" and int(array) >= 0):
        return torch.as_tensor(array if is_row else int(array))
    how = ""
    if array.ndim > 1:  # also of a Pillow image
        how = ": segmentation masks are not supported"
    elif array.dtype.kind == "f":
        how = ": regression is not supported"
    expected = "a class, an integer from 0, or a bool tensor [classes] if it can have several labels"
    raise ValueError(f"{where} must have {expected}, got {describe(label)} {label!r:.40}{how}")


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


def _stack(title: str, items: Sequence[tuple[Tensor, Tensor]], channels: int, size: Sequence[int]) -> InMemory:
    for row, (image, _) in enumerate(items):
        if image.shape[1:] != size:
            sizes = f"{size[1]} x {size[0]} and {image.shape[2]} x {image.shape[1]}"
            raise ValueError(f"item {row} of the {title} data set: images differ in size, {sizes} pixels: pass size=224")
    images = torch.stack([image.expand(channels, -1, -1) for image, _ in items])
    labels = [label for _, label in items]
    if row := next((row for row, label in enumerate(labels) if label.shape != labels[0].shape), 0):
        problem = f"one class, or as many labels as item 0, {list(labels[0].shape)}"
        raise ValueError(f"item {row} of the {title} data set must have {problem}, got {list(labels[row].shape)}")
    return InMemory(images, torch.stack(labels))
