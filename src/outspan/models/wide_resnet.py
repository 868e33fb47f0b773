"""Wide residual networks (arXiv:1605.07146): pre-activation blocks, width times 16, 32, 64 channels."""

import itertools

import torch.nn.functional as F
from torch import Tensor, nn

from outspan.models.initialize import initialize


class Block(nn.Module):
    """Two 3x3 convolutions, each after batch normalization and a ReLU, and a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.shortcut = None if before == after else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the block's output. If the width changes, the shortcut starts from the activated input."""
        active = F.relu(self.norm1(images))
        shortcut = images if self.shortcut is None else self.shortcut(active)
        return self.conv2(F.relu(self.norm2(self.conv1(active)))) + shortcut


def wide_resnet(shape: tuple[int, int, int], classes: int, *, depth: int, width: int) -> nn.Sequential:
    """Return WRN-depth-width for small images; depth is 6 n + 4, at least 10."""
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(f"depth must be 6 n + 4, at least 10, got {depth}")
    widths = [16, 16 * width, 32 * width, 64 * width]
    layers: list[nn.Module] = [nn.Conv2d(shape[0], 16, 3, 1, 1, bias=False)]
    for stage, (before, after) in enumerate(itertools.pairwise(widths)):
        for i in range((depth - 4) // 6):
            layers.append(Block(before if i == 0 else after, after, 2 if stage and i == 0 else 1))
    head = [nn.BatchNorm2d(widths[-1]), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes)]
    return initialize(nn.Sequential(*layers, *head))
