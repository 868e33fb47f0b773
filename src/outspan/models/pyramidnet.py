"""PyramidNets (arXiv:1610.02915) with ShakeDrop (arXiv:1802.02375): bottlenecks whose width grows by a little every block."""

import torch.nn.functional as F
from torch import Tensor, nn

from outspan.models.initialise import initialise
from outspan.models.shake import shake_drop


class Block(nn.Module):
    """A bottleneck that widens to four times its width, dropped at random, beside a shortcut padded with zeros."""

    def __init__(self, before: int, width: int, stride: int, survival: float) -> None:
        super().__init__()
        self.stride, self.survival, self.more = stride, survival, 4 * width - before
        self.layers = nn.Sequential(
            nn.BatchNorm2d(before),
            nn.Conv2d(before, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the block's output."""
        around = images if self.stride == 1 else F.avg_pool2d(images, 2, ceil_mode=True)
        return shake_drop(F.pad(around, (0, 0, 0, 0, 0, self.more)), self.layers(images), self.survival, self.training)


def pyramidnet(shape: tuple[int, int, int], classes: int, *, depth: int, alpha: int) -> nn.Sequential:
    """Return PyramidNet-depth alpha with bottlenecks for small images; depth is 9 n + 2, survival falls from 1 to a half."""
    if (depth - 2) % 9 or depth < 11:
        raise ValueError(f"depth must be 9 n + 2, got {depth}")
    blocks = (depth - 2) // 3
    layers: list[nn.Module] = [nn.Conv2d(shape[0], 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)]
    before = 16
    for i in range(blocks):
        width = round(16 + alpha * (i + 1) / blocks)
        stride = 2 if i in (blocks // 3, 2 * blocks // 3) else 1
        layers.append(Block(before, width, stride, survival=1 - 0.5 * (i + 1) / blocks))
        before = 4 * width
    head = [nn.BatchNorm2d(before), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)]
    return initialise(nn.Sequential(*layers, *head))
