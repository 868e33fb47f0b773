"""Initialization of the residual networks."""

from typing import TypeVar

from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def initialize(model: Model) -> Model:
    """Draw the weights of convolutions as in arXiv:1502.01852 (fan-out), and return the model."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model
