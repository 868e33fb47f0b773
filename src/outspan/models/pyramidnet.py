"""PyramidNets (arXiv:1610.02915) with ShakeDrop (arXiv:1802.02375): the width grows a little with every block."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outspan.models.initialize import initialize
from outspan.models.shake import draw_drops, shake_drop


class Block(nn.Module):
    """A bottleneck with four times its width as output, dropped at random, and a shortcut padded with zeros."""

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

    def forward(self, images: Tensor, noise: tuple[Tensor, Tensor] | None) -> Tensor:
        """Return the output. It is scaled by forward and backward noise, [B, 1, 1, 1] each, or else by its expectation."""
        shortcut = images if self.stride == 1 else F.avg_pool2d(images, 2, ceil_mode=True)
        shortcut, values = F.pad(shortcut, (0, 0, 0, 0, 0, self.more)), self.layers(images)
        return torch.add(shortcut, values, alpha=self.survival) if noise is None else shake_drop(shortcut, values, *noise)


class PyramidNet(nn.Module):
    """A convolution, blocks and a classifier. The noise of all blocks is drawn at once."""

    survival: Tensor  # [blocks]

    def __init__(self, stem: nn.Module, blocks: list[Block], classifier: nn.Module) -> None:
        super().__init__()
        self.first, self.blocks, self.last = stem, nn.ModuleList(blocks), classifier  # the names in checkpoints
        self.register_buffer("survival", torch.tensor([block.survival for block in blocks]), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        values = self.first(images)
        noise = zip(*draw_drops(values, self.survival).unbind(), strict=True) if self.training else [None] * len(self.blocks)
        for block, factors in zip(self.blocks, noise, strict=True):
            values = block(values, factors)
        return self.last(values)


def build_pyramidnet(shape: tuple[int, int, int], classes: int, *, depth: int, alpha: int) -> PyramidNet:
    """Return PyramidNet-depth alpha with bottlenecks for small images. depth is 9 n + 2; survival falls from 1 to 0.5."""
    if (depth - 2) % 9 or depth < 11:
        raise ValueError(f"depth must be 9 n + 2, got {depth}")
    count = (depth - 2) // 3
    blocks, before = [], 16
    for i in range(count):
        width = round(16 + alpha * (i + 1) / count)
        stride = 2 if i in (count // 3, 2 * count // 3) else 1
        blocks.append(Block(before, width, stride, survival=1 - 0.5 * (i + 1) / count))
        before = 4 * width
    stem = nn.Sequential(nn.Conv2d(shape[0], 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16))
    classifier = [nn.BatchNorm2d(before), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)]
    return initialize(PyramidNet(stem, blocks, nn.Sequential(*classifier)))
