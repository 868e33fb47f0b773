"""Columns of a data set as batches for a trainer of Hugging Face: images as bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from outspan.data.decode import Pixels, fit, to_tensor
from outspan.limits import check_whole
from outspan.messages import shown


@dataclass(frozen=True)
class ImageCollator:
    """A collator for data sets with a column of images and one of class indices: `pixel_values`, uint8, and `labels`.

    Args:
        size: Height and width. The largest centered box of an image with this aspect ratio is resized to them.
        image: Column of the images: Pillow images, as `datasets` returns them, or uint8 tensors [C, height, width].
        label: Column of the class indices.
        channels: 3 for RGB, or 1 for grey.
    """

    size: tuple[int, int]
    image: str = "image"
    label: str = "label"
    channels: int = 3

    def __post_init__(self) -> None:
        if not isinstance(self.size, tuple) or len(self.size) != 2:
            raise ValueError(f"size must be a height and a width, such as (224, 224), got {shown(self.size)}")
        for name, side in zip(("height", "width"), self.size, strict=True):
            check_whole(name, side, 1)
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 1 or 3, got {shown(self.channels)}")

    def __call__(self, samples: Sequence[Any]) -> dict[str, Tensor]:
        """Return the batch of some samples, each a dictionary of its columns."""
        images = torch.stack([self._read(_column(sample, self.image)) for sample in samples])
        return {"pixel_values": images, "labels": torch.tensor([self._class_index(sample) for sample in samples])}

    def _read(self, image: Any) -> Tensor:
        if isinstance(image, Image.Image):
            return to_tensor(fit(image, *self.size, Pixels(self.channels)))
        shape = (self.channels, *self.size)
        if not isinstance(image, Tensor) or image.dtype != torch.uint8 or tuple(image.shape) != shape:
            kind = f"{image.dtype} {list(image.shape)}" if isinstance(image, Tensor) else type(image).__name__
            expected = f"Pillow images or uint8 tensors {list(shape)}"
            raise ValueError(f"column {self.image!r} must have {expected}, got {kind}: {self._advice(image)}")
        return image

    def _advice(self, image: Any) -> str:
        """Return how a column of something else becomes one of images."""
        if image is None:
            return f"remove these rows, data.filter(lambda row: row[{self.image!r}] is not None)"
        if isinstance(image, str | bytes | Mapping):
            return f"decode the files, data.cast_column({self.image!r}, datasets.Image())"
        if isinstance(image, Tensor) and image.dtype != torch.uint8:
            return "remove transforms to floats"
        if isinstance(image, Tensor | np.ndarray | list):
            return "remove the format, data.with_format(None), or resize in the transform of the data set"
        return f"name the column of images, ImageCollator({self.size}, image=...)"

    def _class_index(self, sample: Any) -> int:
        value = _column(sample, self.label)
        try:
            return index(value)
        except TypeError:
            how = f"number the classes from 0, e.g. with data.class_encode_column({self.label!r})"
            raise ValueError(f"column {self.label!r} must have class indices, got {shown(value)}: {how}") from None


def _column(sample: Any, name: str) -> Any:
    if name in sample:
        return sample[name]
    how = "name another column, or set remove_unused_columns=False in TrainingArguments"
    raise ValueError(f"the data set has no column {name!r} (columns: {', '.join(map(str, sample))}): {how}")
