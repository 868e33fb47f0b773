"""How the residual networks begin."""

from typing import TypeVar

from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def initialise(model: Model) -> Model:
    """Draw the convolutions' weights as arXiv:1502.01852 does, by their outputs, and return the model."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model
