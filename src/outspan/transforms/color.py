"""Transforms of pixel values that depend on the value and on the histogram or mean of the image."""

import torch
from torch import Tensor

from outspan.shapes import Images, Num, PerSample, UInt8
from outspan.transforms.mix import blend

LUMA = (19595, 38470, 7471)  # ITU-R BT.601 in 1/65536, what Pillow's "L" uses


def grey(images: Images) -> UInt8[Tensor, "B 1 H W"]:
    """Return the luma of each pixel; images with one channel are returned unchanged."""
    if images.shape[1] == 1:
        return images
    red, green, blue = (images[:, c : c + 1].int() * weight for c, weight in enumerate(LUMA))
    return ((red + green + blue + 32768) >> 16).to(torch.uint8)


def brightness(images: Images, factor: PerSample) -> Images:
    """Scale every pixel: 0 is black, 1 is the identity."""
    return blend(torch.zeros_like(images), images, factor)


def color(images: Images, factor: PerSample) -> Images:
    """Blend from the gray image (0) through the identity (1) to more color."""
    return blend(grey(images).expand_as(images), images, factor)


def contrast(images: Images, factor: PerSample) -> Images:
    """Blend from the mean gray of the image (0) through the identity (1) to more contrast."""
    luma = grey(images).flatten(1)
    count = luma.shape[1]
    pivot = (2 * luma.long().sum(1) + count) // (2 * count)  # the mean, halves rounded up, in integers
    return blend(pivot.to(torch.uint8).view(-1, 1, 1, 1).expand_as(images), images, factor)


def invert(images: Images) -> Images:
    """Replace every value by 255 minus itself."""
    return 255 - images


def posterize(images: Images, bits: PerSample) -> Images:
    """Keep the highest bits of every value: 8 is the identity."""
    mask = 0xFF00 >> bits.round().long()  # torch and Python both round halves to even
    return images & (mask & 0xFF).to(images.device, torch.uint8).view(-1, 1, 1, 1)


def solarize(images: Images, threshold: PerSample) -> Images:
    """Invert all values that are not below the threshold: 256 is the identity."""
    return torch.where(images < threshold.long().to(images.device).view(-1, 1, 1, 1), images, 255 - images)


def auto_contrast(images: Images) -> Images:
    """Stretch each channel so that its lowest value becomes 0 and its highest 255."""
    flat = images.flatten(2)
    low, high = flat.amin(2, keepdim=True).double(), flat.amax(2, keepdim=True).double()
    # Divide tensor by tensor: torch divides a number by a tensor through the reciprocal, which rounds twice.
    scale = torch.full_like(low, 255) / (high - low)
    values = torch.arange(256, device=images.device, dtype=torch.float64)
    stretched = (values * scale + -low * scale).clamp(0, 255)
    return _look_up(images, torch.where(high > low, stretched, values))


def equalize(images: Images) -> Images:
    """Equalize the histogram of each channel."""
    flat = images.flatten(2).long()
    histogram = flat.new_zeros(*flat.shape[:2], 256).scatter_add_(2, flat, torch.ones_like(flat))
    highest = histogram.gather(2, flat.amax(2, keepdim=True))
    step = (flat.shape[2] - highest) // 255
    below = histogram.cumsum(2) - histogram + step // 2
    values = torch.arange(256, device=images.device)
    return _look_up(images, torch.where(step > 0, (below // step.clamp(min=1)).clamp(max=255), values))


def _look_up(images: Images, table: Num[Tensor, "B C 256"]) -> Images:
    flat = images.flatten(2)
    return table.to(torch.uint8).gather(2, flat.long()).view_as(images)
