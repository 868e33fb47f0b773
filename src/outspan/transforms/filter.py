"""Transforms of a pixel by its neighborhood. As in Pillow, pixels where the kernel does not fit are copied."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from outspan.shapes import Float64, Images, Int64, PerSample, Places
from outspan.transforms.mix import blend


def smooth(images: Images) -> Images:
    """Average 3x3 pixels, with weight 5 for the center."""
    # A quotient by 13 is never close to a half, so integers give the same result as Pillow's floats.
    return _filter(images, torch.ones(3, 3) + 4 * F.pad(torch.ones(1, 1), (1, 1, 1, 1)), edge=1)


def blur(images: Images) -> Images:
    """Average the 16 pixels on the border of the 5x5 neighborhood."""
    return _filter(images, torch.ones(5, 5) - F.pad(torch.ones(3, 3), (1, 1, 1, 1)), edge=2)


def sharpness(images: Images, factor: PerSample) -> Images:
    """Blend from the smoothed image (0) through the identity (1) to a sharper image."""
    return blend(smooth(images), images, factor)


def resized_crop(images: Images, *, place: Places) -> Images:
    """Crop a box of 8 to 100 % of the area and aspect ratio 3/4 to 4/3, and resize it to the full size (bilinear)."""
    height, width = images.shape[-2:]
    box = torch.tensor([crop_box(row, width, height) for row in place.tolist()], dtype=torch.float64)
    left, top, right, bottom = box.view(-1, 4).to(torch.float32).unbind(1)  # Pillow's box is in C floats
    wide = _resample(images, left, right)
    return _resample(wide.transpose(2, 3), top, bottom).transpose(2, 3)


def _filter(images: Images, kernel: Tensor, edge: int) -> Images:
    height, width = images.shape[-2:]
    if min(height, width) < 2 * edge + 1:
        return images.clone()
    total = int(kernel.sum())
    out = images.clone()
    inner = torch.zeros_like(images[:, :, edge:-edge, edge:-edge], dtype=torch.int32)
    for y in range(2 * edge + 1):
        for x in range(2 * edge + 1):
            shifted = images[:, :, y : height - 2 * edge + y, x : width - 2 * edge + x]
            inner += int(kernel[y, x]) * shifted.int()
    out[:, :, edge:-edge, edge:-edge] = ((2 * inner + total) // (2 * total)).to(torch.uint8)
    return out


def crop_box(place: list[float], width: int, height: int) -> tuple[float, float, float, float]:
    """Return the box of a resized crop at a place: left, top, right, bottom."""
    area = 0.08 + 0.92 * place[2]
    ratio = 0.75 * math.pow(16 / 9, place[3])
    w = min(width, math.sqrt(area * width * height * ratio))
    h = min(height, math.sqrt(area * width * height / ratio))
    x0, y0 = place[0] * (width - w), place[1] * (height - h)
    return x0, y0, x0 + w, y0 + h


def _resample(images: Images, start: Tensor, stop: Tensor) -> Images:
    """Resize the columns [start, stop) to the full width with Pillow's three taps in 22-bit fixed point."""
    width = images.shape[-1]
    first, weights = _taps(start, stop, width)
    total = torch.full(images.shape, 1 << 21, dtype=torch.int64, device=images.device)
    for i in range(3):
        column = (first + i).clamp(max=width - 1).to(images.device).view(-1, 1, 1, width).expand_as(images)
        total += images.gather(3, column) * weights[:, :, i].to(images.device).view(-1, 1, 1, width)
    return (total >> 22).to(torch.uint8)


def _taps(start: Tensor, stop: Tensor, size: int) -> tuple[Int64[Tensor, "B S"], Int64[Tensor, "B S 3"]]:
    scale = (stop - start).double().unsqueeze(1) / size  # at most 1, so the support is one pixel
    center = start.double().unsqueeze(1) + (torch.arange(size) + 0.5) * scale
    first = (center - 1.0 + 0.5).long().clamp(min=0)
    end = (center + 1.0 + 0.5).long().clamp(max=size)
    taps: list[Float64[Tensor, "B S"]] = []
    for i in range(3):
        distance = (i + first - center + 0.5).abs()
        taps.append(torch.where((distance < 1) & (first + i < end), 1 - distance, 0))
    weights = torch.stack(taps, dim=2) / (taps[0] + taps[1] + taps[2]).unsqueeze(2)
    return first, (0.5 + weights * (1 << 22)).long()
