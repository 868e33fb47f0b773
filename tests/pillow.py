"""The reference for tests: execute a plan with Pillow, one image and one call at a time."""

import math

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from outspan.plan import Plan


def to_pillow(image: torch.Tensor) -> Image.Image:
    """Return a [C, H, W] byte tensor as an "L" or "RGB" image."""
    array = image.permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def from_pillow(image: Image.Image) -> torch.Tensor:
    """Return an "L" or "RGB" image as a [C, H, W] byte tensor."""
    array = np.array(image)
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy())


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix)


def _box(image: Image.Image, side: float, place: list[float]) -> tuple[int, int, int, int]:
    width, height = image.size
    w, h = int(side * width), int(side * height)
    x, y = int(place[0] * width) - w // 2, int(place[1] * height) - h // 2
    return max(0, x), max(0, y), min(width, x + w), min(height, y + h)


def _paste(image: Image.Image, other: Image.Image, side: float, place: list[float]) -> Image.Image:
    x0, y0, x1, y1 = _box(image, side, place)
    out = image.copy()
    if x1 > x0 and y1 > y0:
        out.paste(other.crop((x0, y0, x1, y1)), (x0, y0))
    return out


def _random_crop(image: Image.Image, level: float, place: list[float]) -> Image.Image:
    width, height = image.size
    px, py = int(level * width * 4 / 32 + 0.5), int(level * height * 4 / 32 + 0.5)
    array = np.asarray(image)
    padded = np.pad(array, [(py, py), (px, px)] + [(0, 0)] * (array.ndim - 2), mode="reflect")
    x, y = int(place[0] * (2 * px + 1)), int(place[1] * (2 * py + 1))
    return Image.fromarray(padded[y : y + height, x : x + width].copy())


def _resized_crop(image: Image.Image, place: list[float]) -> Image.Image:
    width, height = image.size
    area, ratio = 0.08 + 0.92 * place[2], 0.75 * (16 / 9) ** place[3]
    w = min(width, math.sqrt(area * width * height * ratio))
    h = min(height, math.sqrt(area * width * height / ratio))
    x, y = place[0] * (width - w), place[1] * (height - h)
    return image.resize(image.size, Image.Resampling.BILINEAR, (x, y, x + w, y + h))


def _posterize(image: Image.Image, bits: int) -> Image.Image:
    if bits == 0:  # black until Pillow 12, refused by later versions
        return Image.new(image.mode, image.size)
    return ImageOps.posterize(image, bits)


CALLS = {
    "identity": lambda im, level, place, partner, fill: im,
    "auto_contrast": lambda im, level, place, partner, fill: ImageOps.autocontrast(im),
    "equalize": lambda im, level, place, partner, fill: ImageOps.equalize(im),
    "invert": lambda im, level, place, partner, fill: ImageOps.invert(im),
    "brightness": lambda im, level, place, partner, fill: ImageEnhance.Brightness(im).enhance(1 + 0.9 * level),
    "color": lambda im, level, place, partner, fill: ImageEnhance.Color(im).enhance(1 + 0.9 * level),
    "contrast": lambda im, level, place, partner, fill: ImageEnhance.Contrast(im).enhance(1 + 0.9 * level),
    "sharpness": lambda im, level, place, partner, fill: ImageEnhance.Sharpness(im).enhance(1 + 0.9 * level),
    "posterize": lambda im, level, place, partner, fill: _posterize(im, 8 - round(4 * level)),
    "solarize": lambda im, level, place, partner, fill: ImageOps.solarize(im, int(256 * (1 - level))),
    "rotate": lambda im, level, place, partner, fill: im.rotate(30 * level),
    "shear_x": lambda im, level, place, partner, fill: _affine(im, 1, 0.3 * level, 0, 0, 1, 0),
    "shear_y": lambda im, level, place, partner, fill: _affine(im, 1, 0, 0, 0.3 * level, 1, 0),
    "translate_x": lambda im, level, place, partner, fill: _affine(im, 1, 0, 10 / 32 * level * im.width, 0, 1, 0),
    "translate_y": lambda im, level, place, partner, fill: _affine(im, 1, 0, 0, 0, 1, 10 / 32 * level * im.height),
    "cutout": lambda im, level, place, partner, fill: _paste(im, Image.new(im.mode, im.size, fill), 0.5 * level, place),
    "mixup": lambda im, level, place, partner, fill: Image.blend(im, partner, level),
    "cutmix": lambda im, level, place, partner, fill: _paste(im, partner, level, place),
    "horizontal_flip": lambda im, level, place, partner, fill: ImageOps.mirror(im),
    "vertical_flip": lambda im, level, place, partner, fill: ImageOps.flip(im),
    "blur": lambda im, level, place, partner, fill: im.filter(ImageFilter.BLUR),
    "smooth": lambda im, level, place, partner, fill: im.filter(ImageFilter.SMOOTH),
    "random_crop": lambda im, level, place, partner, fill: _random_crop(im, level, place),
    "resized_crop": lambda im, level, place, partner, fill: _resized_crop(im, place),
}


def apply_with_pillow(images: torch.Tensor, plan: Plan, fill: list[int] | None = None) -> torch.Tensor:
    """Execute a plan on images [B, C, H, W] with Pillow and return the rows `plan.out`."""
    color = tuple(fill or [0] * images.shape[1])
    rows = [to_pillow(images[i]) for i in plan.source.tolist()]
    ops, levels = plan.ops.tolist(), plan.levels.tolist()
    places, partners = plan.places.tolist(), plan.partners.tolist()
    for t in range(plan.ops.shape[1]):
        before = rows
        rows = [
            CALLS[plan.names[op]](
                row, levels[i][t], places[i][t], before[partners[i][t]], color[0] if len(color) == 1 else color
            )
            if (op := ops[i][t]) >= 0
            else row
            for i, row in enumerate(before)
        ]
    out = [from_pillow(rows[i]) for i in plan.out.tolist()]
    return torch.stack(out) if out else images[:0]
