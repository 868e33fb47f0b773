"""The paper's small model: a perceptron with one hidden layer of 100 units."""

import itertools
import math

from torch import nn


def mlp(shape: tuple[int, int, int], classes: int, *, hidden: int = 100, layers: int = 1) -> nn.Sequential:
    """Return a perceptron on flattened images with `layers` hidden layers."""
    sizes = [math.prod(shape), *[hidden] * layers]
    blocks = [part for before, after in itertools.pairwise(sizes) for part in (nn.Linear(before, after), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *blocks, nn.Linear(sizes[-1], classes))
