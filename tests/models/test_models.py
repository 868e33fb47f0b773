"""Models: parameter counts of the papers, and shapes."""

import pytest
import torch

from outspan import models


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("wide_resnet-28-10", 36.5),
        ("wide_resnet-28-2", 1.47),
        ("wide_resnet-40-2", 2.24),
        ("wide_resnet-16-4", 2.75),
    ],
)
def test_parameters_are_the_papers(name, millions):
    model = models.build(name, (3, 32, 32), 10)
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)


def test_the_mlp_has_one_hidden_layer_of_100():
    model = models.build("mlp", (1, 28, 28), 10)
    assert [tuple(parameter.shape) for parameter in model.parameters()] == [(100, 784), (100,), (10, 100), (10,)]


def test_the_mlps_width_is_in_its_name():
    assert models.build("mlp-30", (1, 28, 28), 10)[1].weight.shape == (30, 784)
    for name in ("mlp-0", "mlp-x", "30"):
        with pytest.raises(ValueError, match="unknown model"):
            models.build(name, (1, 28, 28), 10)


@pytest.mark.parametrize("name", ["mlp", "convnet", "wide_resnet-16-4"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 9, 13)])
def test_logits_have_one_column_a_class(name, shape):
    model = models.build(name, shape, 7).eval()
    assert model(torch.zeros(2, *shape)).shape == (2, 7)


def test_unknown_names_and_missing_packages_are_said():
    with pytest.raises(ValueError, match="unknown model 'wideresnet-28-2', did you mean 'wide_resnet-28-2'"):
        models.build("wideresnet-28-2", (3, 32, 32), 10)
    with pytest.raises(ValueError, match="needs timm, which is not installed"):
        models.build("timm:resnet18", (3, 32, 32), 10)
    with pytest.raises(ValueError, match=r"depth must be 6 n \+ 4, got 27"):
        models.wide_resnet((3, 32, 32), 10, depth=27, width=2)
