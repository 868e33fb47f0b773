"""Transforms that cover a rectangle."""

import torch
from torch import Tensor

from outspan.shapes import Bool, Fill, Images, Int64, PerSample, Places


def rectangle(side: PerSample, place: Places, size: tuple[int, int]) -> Int64[Tensor, "B 4"]:
    """Return x0, y0, x1, y1 of a square centered at the place, clipped to the image; `size` is (height, width)."""
    extent = torch.tensor([size[1], size[0]])
    length = (side.unsqueeze(1) * extent).long()
    start = (place[:, :2] * extent).long() - length // 2
    return torch.cat([start.clamp(min=0), torch.minimum(start + length, extent)], dim=1)


def inside(box: Int64[Tensor, "B 4"], images: Images) -> Bool[Tensor, "B 1 H W"]:
    """Return a mask of the pixels inside the box of each image."""
    height, width = images.shape[-2:]
    x0, y0, x1, y1 = box.to(images.device).view(-1, 4, 1, 1, 1).unbind(1)
    x = torch.arange(width, device=images.device)
    y = torch.arange(height, device=images.device).unsqueeze(1)
    return (x0 <= x) & (x < x1) & (y0 <= y) & (y < y1)


def cutout(images: Images, side: PerSample, *, place: Places, fill: Fill) -> Images:
    """Fill a square of this side, a fraction of the image's: 0 is the identity."""
    height, width = images.shape[-2:]
    box = rectangle(side, place, (height, width))
    return torch.where(inside(box, images), fill.to(images.device).view(1, -1, 1, 1), images)
