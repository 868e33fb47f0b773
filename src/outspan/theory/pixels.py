"""Transformed images as rows of numbers. Transforms that only move or blacken pixels are matrices of zeros and ones."""

from collections.abc import Sequence

import numpy as np
import torch

from outspan.plan import Plan
from outspan.shapes import Float64, Images, Int64
from outspan.transforms.apply import apply

# Transforms that move pixels or set them to black: matrices of zeros and ones. All others are applied to the images.
LINEAR = (
    "cutout", "horizontal_flip", "identity", "random_crop", "rotate", "shear_x", "shear_y", "translate_x", "translate_y",
    "vertical_flip",
)  # fmt: skip


def pixels(images: Images) -> Float64[np.ndarray, "n p"]:
    """Return images as rows of numbers from 0 to 1."""
    return images.flatten(1).numpy() / 255


def transformed_pixels(images: Images, name: str, level: float, place: Sequence[float]) -> Float64[np.ndarray, "n p"]:
    """Return the pixels of transformed images: by the matrix of a linear transform, otherwise with `apply`."""
    if name in LINEAR:
        sources = pixel_sources(name, level, place, *images.shape[2:])
        rows = np.concatenate([images.flatten(2).numpy(), np.zeros((*images.shape[:2], 1), dtype=np.uint8)], axis=2)
        return rows[:, :, sources].reshape(len(images), -1) / 255  # index -1 is the black pixel at the end
    return pixels(apply(images, _plan(name, level, place, len(images))))


def pixel_sources(name: str, level: float, place: Sequence[float], height: int, width: int) -> Int64[np.ndarray, " hw"]:
    """Return the source pixel of each output pixel of a linear transform, -1 for black. These are the rows of its matrix.

    >>> pixel_sources("horizontal_flip", 0.0, [0, 0, 0, 0], 1, 3).tolist()
    [2, 1, 0]
    """
    if name not in LINEAR:
        raise ValueError(f"{name!r} is not a matrix of zeros and ones; use one of {', '.join(LINEAR)}")
    # Number the pixels from 1, transform the three bytes of the numbers as three images, and read the numbers back.
    numbers = np.arange(1, height * width + 1).reshape(height, width)
    digits = np.stack([numbers >> shift & 255 for shift in (0, 8, 16)]).astype(np.uint8)
    moved = apply(torch.from_numpy(digits).unsqueeze(1), _plan(name, level, place, 3)).numpy().astype(np.int64)
    return (moved[0] + 256 * moved[1] + 65536 * moved[2]).reshape(-1) - 1


def _plan(name: str, level: float, place: Sequence[float], count: int) -> Plan:
    return Plan.of([[name]] * count, levels=[[level]] * count, places=[[list(place)]] * count)
