"""Transforms that mix two images, and the blend that the color transforms also use."""

import torch

from outspan.shapes import Images, PerSample, Places
from outspan.transforms.erase import inside, rectangle


def blend(first: Images, second: Images, alpha: PerSample) -> Images:
    """Interpolate from the first image (0) to the second (1), or extrapolate. The result is truncated, as in Pillow."""
    # Pillow's factor is a C float, and it rounds the product and the sum separately.
    factor = alpha.to(first.device, torch.float32).view(-1, 1, 1, 1)
    start = first.to(torch.float32)
    change = factor * (second.to(torch.float32) - start)
    return (start + change).clamp(0, 255).to(torch.uint8)


def mixup(images: Images, weight: PerSample, *, partner: Images) -> Images:
    """Blend with the partner by its weight: 0 is the identity, 1 is the partner."""
    return blend(images, partner, weight)


def mixup_label_weight(weight: PerSample, place: Places, size: tuple[int, int]) -> PerSample:
    """Return the partner's weight in the label: its weight in the image."""
    return weight


def cutmix(images: Images, side: PerSample, *, place: Places, partner: Images) -> Images:
    """Paste the partner's pixels in a square of this side, a fraction of the image's: 0 is the identity."""
    height, width = images.shape[-2:]
    box = rectangle(side, place, (height, width))
    return torch.where(inside(box, images), partner, images)


def cutmix_label_weight(side: PerSample, place: Places, size: tuple[int, int]) -> PerSample:
    """Return the partner's weight in the label: the area of its square inside the image."""
    x0, y0, x1, y1 = rectangle(side, place, size).unbind(1)
    area = (x1 - x0).clamp(min=0) * (y1 - y0).clamp(min=0)
    return area.double() / (size[0] * size[1])
