"""Changes of images and labels that make other tasks of a data set, for safety_settings.py and strengths.py."""

from collections.abc import Callable

import torch
from torch import Tensor

Images = tuple[Tensor, Tensor]  # uint8 [N, C, H, W] and labels [N]
Change = Callable[[Tensor, Tensor, torch.Generator], Images]


def grey(images: Tensor, labels: Tensor, generator: torch.Generator) -> Images:
    """Return the mean of the channels."""
    return images.float().mean(1, keepdim=True).to(torch.uint8), labels


def color_is_class(images: Tensor, labels: Tensor, generator: torch.Generator) -> Images:
    """Make grey images of one of six hues; the hue is the class."""
    hues = torch.tensor([[1, 0.4, 0.4], [1, 1, 0.4], [0.4, 1, 0.4], [0.4, 1, 1], [0.4, 0.4, 1], [1, 0.4, 1]])
    labels = torch.randint(0, 6, (len(images),), generator=generator)
    noise = 0.5 * (torch.rand(len(images), 3, generator=generator) - 0.5)
    tints = (hues[labels] + noise).clamp(0, 1).view(-1, 3, 1, 1)
    return (images.float().mean(1, keepdim=True) * tints).to(torch.uint8), labels


def brightness_is_class(images: Tensor, labels: Tensor, generator: torch.Generator) -> Images:
    """Darken images by one of four factors; the factor is the class."""
    labels = torch.randint(0, 4, (len(images),), generator=generator)
    factors = torch.tensor([0.35, 0.55, 0.8, 1.0])[labels] + 0.12 * (torch.rand(len(images), generator=generator) - 0.5)
    return (images.float() * factors.view(-1, 1, 1, 1)).clamp(0, 255).to(torch.uint8), labels


def orientation_is_class(images: Tensor, labels: Tensor, generator: torch.Generator) -> Images:
    """Turn images by 0, 90, 180 or 270 degrees; the angle is the class."""
    labels = torch.randint(0, 4, (len(images),), generator=generator)
    turned = torch.stack([torch.rot90(images, turns, (2, 3)) for turns in range(4)])
    return turned[labels, torch.arange(len(images))], labels


def wrong_labels(images: Tensor, labels: Tensor, generator: torch.Generator) -> Images:
    """Give a fifth of the images a random label."""
    wrong = torch.rand(len(labels), generator=generator) < 0.2
    return images, torch.where(wrong, torch.randint(0, 10, (len(labels),), generator=generator), labels)


def imbalanced(images: Tensor, labels: Tensor, generator: torch.Generator) -> Images:
    """Keep all images of class 0, and of each further class 0.6 times as many as of the class before."""
    kept = torch.rand(len(labels), generator=generator) < 0.6**labels
    return images[kept], labels[kept]


def first_classes(images: Tensor, labels: Tensor, generator: torch.Generator) -> Images:
    """Keep the images of classes 0 to 4."""
    return images[labels < 5], labels[labels < 5]


def last_classes(images: Tensor, labels: Tensor, generator: torch.Generator) -> Images:
    """Keep the images of classes 5 to 9."""
    return images[labels >= 5], labels[labels >= 5] - 5
