"""Shake-Shake networks (arXiv:1705.07485): residual blocks of two branches, mixed at random per image."""

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outspan.models.initialize import initialize
from outspan.models.shake import shake_shake as mix


class Branch(nn.Sequential):
    """Two 3x3 convolutions, each after a ReLU and followed by batch normalization."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__(
            nn.ReLU(),
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )


class Shortcut(nn.Module):
    """A shortcut to another width: half of the channels see the input, the others the input shifted by one pixel.

    With stride 2 these are the even and the odd pixels. The authors shift with stride 1, too.
    """

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.paths = nn.ModuleList(nn.Conv2d(before, half, 1, bias=False) for half in (after // 2, after - after // 2))
        self.norm = nn.BatchNorm2d(after)

    def forward(self, images: Tensor) -> Tensor:
        """Return the input at the block's width and side."""
        active = F.relu(images)
        moved = F.pad(active, (1, -1, 1, -1))
        seen = (part[..., :: self.stride, :: self.stride] for part in (active, moved))
        parts = [path(part) for path, part in zip(self.paths, seen, strict=True)]
        return self.norm(torch.cat(parts, dim=1))


class Block(nn.Module):
    """Two mixed branches and a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(Branch(before, after, stride) for _ in range(2))
        self.shortcut = None if before == after else Shortcut(before, after, stride)

    def forward(self, images: Tensor) -> Tensor:
        """Return the block's output."""
        shortcut = images if self.shortcut is None else self.shortcut(images)
        return shortcut + mix(self.branches[0](images), self.branches[1](images), self.training)


def shake_shake(shape: tuple[int, int, int], classes: int, *, width: int) -> nn.Sequential:
    """Return Shake-Shake-26 2 x width d for small images: three stages of four blocks."""
    layers: list[nn.Module] = [nn.Conv2d(shape[0], 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)]
    for stage, (before, after) in enumerate(itertools.pairwise((16, width, 2 * width, 4 * width))):
        layers += [Block(before if i == 0 else after, after, 2 if stage and i == 0 else 1) for i in range(4)]
    return initialize(nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, classes)))
