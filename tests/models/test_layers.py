"""The layers of models of every family, and of models with the structure of transformers."""

import pytest
import torch
from torch import nn

from outspan import models
from outspan.models.layers import find_layers


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layers = nn.LayerNorm(4), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.blocks, self.norm = nn.Linear(3, 4), nn.ModuleList([Block() for _ in range(5)]), nn.LayerNorm(4)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.position, self.body, self.head = nn.Parameter(torch.zeros(7, 4)), Body(), nn.Linear(4, 2)


@pytest.mark.parametrize(
    ("name", "count"),  # stem, blocks, head
    [("resnet-18", 1 + 8 + 1), ("resnet-50", 1 + 16 + 1), ("wide_resnet-16-4", 1 + 6 + 1), ("mlp", 2)],
)
def test_blocks_are_layers_and_every_parameter_is_in_one(name, count):
    model = models.build(name, (3, 32, 32), 5)
    layers = find_layers(model)
    assert len(layers) == count
    found = [id(parameter) for layer in layers for parameter in layer.parameters]
    assert sorted(found) == sorted(map(id, model.parameters()))
    assert [tuple(parameter.shape) for parameter in layers[-1].parameters][1:] == [(5,)]


@pytest.mark.parametrize("name", ["convnet", "shake_shake-26-2x32d", "pyramidnet-29-48"])
def test_the_last_layer_is_the_classifier(name):
    model = models.build(name, (3, 32, 32), 5)
    layers = find_layers(model)
    assert len(layers) > 2
    assert [len(parameter) for parameter in layers[-1].parameters] == [5, 5]


def test_the_layers_of_a_transformer():
    model = Transformer()
    layers = find_layers(model)
    assert len(layers) == 1 + 5 + 1
    assert any(parameter is model.position for parameter in layers[0].parameters)
    assert model.body.norm in layers[-2].modules
    assert layers[-1].modules == [model.head]
    assert sum(len(layer.parameters) for layer in layers) == len(list(model.parameters()))
