"""Run a model in evaluation mode, or on another device, without changing it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def on_device(model: nn.Module, device: torch.device) -> Iterator[nn.Module]:
    """Move a model to a device; afterwards it is where it was before."""
    before = next((parameter.device for parameter in model.parameters()), device)
    try:
        yield model.to(device)
    finally:
        model.to(before)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run a model in evaluation mode; afterwards the mode of every module and the random generators are as before."""
    modes = [(module, module.training) for module in model.modules()]
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    on_gpu = device.type == "cuda"
    model.eval()
    try:
        with (
            torch.random.fork_rng([device] if on_gpu else []),
            torch.inference_mode(),
            torch.autocast(device.type, torch.bfloat16, enabled=on_gpu),
        ):
            yield
    finally:
        for module, training in modes:
            module.training = training
