"""A small convolutional network with batch normalization, for digits and quick tests."""

from torch import nn


def convnet(shape: tuple[int, int, int], classes: int, *, widths: tuple[int, ...] = (16, 32, 64)) -> nn.Sequential:
    """Return three 3x3 convolutions with stride 2, global average pooling and a linear layer."""
    blocks: list[nn.Module] = []
    for before, after in zip((shape[0], *widths), widths, strict=False):
        blocks += [nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))
