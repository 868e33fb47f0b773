"""Residual networks (arXiv:1512.03385) for images of ImageNet's size. The stride is on the 3x3 convolution."""

from torch import Tensor, nn

from outspan.models.initialize import initialize
from outspan.models.weights import PUBLISHED_WEIGHTS, RESNETS, load_weights, read_published, read_weights


class Block(nn.Module):
    """Convolutions with batch normalization and a shortcut: two of 3x3, or a bottleneck with four times the width."""

    def __init__(self, before: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        after = 4 * width if bottleneck else width
        plan = [(before, width, 1, 1), (width, width, 3, stride), (width, after, 1, 1)]
        layers: list[nn.Module] = []
        for i, o, kernel, step in plan if bottleneck else [(before, width, 3, stride), (width, width, 3, 1)]:
            layers += [nn.Conv2d(i, o, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])
        nn.init.zeros_(layers[-2].weight)  # at first a block is its shortcut  # pyright: ignore[reportArgumentType]
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.active, self.stride = nn.ReLU(), stride

    def forward(self, images: Tensor) -> Tensor:
        """Return the block's output."""
        return self.active(self.layers(images) + self.shortcut(images))


_STAGES = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def resnet(shape: tuple[int, int, int], classes: int, *, depth: int, weights: str = "") -> nn.Sequential:
    """Return ResNet-18, -34, -50 or -101, initialized at random or with `weights`: "published", or a file."""
    if depth not in _STAGES:
        raise ValueError(f"depth must be one of {', '.join(map(str, _STAGES))}, got {depth}")
    layers: list[nn.Module] = [nn.Conv2d(shape[0], 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    before = 64
    for stage, blocks in enumerate(_STAGES[depth]):
        for i in range(blocks):
            layers.append(Block(before, 64 << stage, 2 if stage and i == 0 else 1, bottleneck=depth >= 50))
            before = (256 if depth >= 50 else 64) << stage
    model = initialize(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)))
    if weights:
        tensors = read_published(RESNETS[depth]) if weights == PUBLISHED_WEIGHTS else read_weights(weights)
        names = _torchvision_names(model)
        load_weights(model, {names.get(name, name): tensor for name, tensor in tensors.items()}, str(len(model) - 1))
    return model


def _torchvision_names(model: nn.Sequential) -> dict[str, str]:
    """Return the names of this model's tensors by torchvision's names for the same tensors.

    >>> names = _torchvision_names(resnet((3, 32, 32), 10, depth=18))
    >>> names["layer2.0.downsample.1.running_mean"], names["fc.bias"]
    ('6.shortcut.1.running_mean', '14.bias')
    """
    modules = {"0": "conv1", "1": "bn1", str(len(model) - 1): "fc"}
    stage, index = 0, -1
    for i, block in enumerate(model):
        if not isinstance(block, Block):
            continue
        is_first = not stage or block.stride > 1
        stage, index = (stage + 1, 0) if is_first else (stage, index + 1)
        theirs = f"layer{stage}.{index}"
        modules |= {f"{i}.shortcut.{part}": f"{theirs}.downsample.{part}" for part in (0, 1)}
        for j in range(len(block.layers)):
            modules[f"{i}.layers.{j}"] = f"{theirs}.{'conv' if j % 3 == 0 else 'bn'}{j // 3 + 1}"
    parts = [(name, *name.rpartition(".")[::2]) for name in model.state_dict()]
    return {f"{modules[module]}.{tensor}": name for name, module, tensor in parts}
