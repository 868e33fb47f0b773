"""Choose a device, and copy tensors to it."""

import torch
from torch import Tensor

from outspan.messages import shown


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a CPU tensor to a device without waiting for the device's pending work."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def default_device() -> str:
    """Return the device to train on by default: "cuda" if there is a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def find_device(device: str | torch.device | None = None) -> torch.device:
    """Return a device by name, or the default for None. An unknown name, or a GPU that torch cannot use, is a ValueError."""
    try:
        result = torch.device(default_device() if device is None else device)
    except (RuntimeError, TypeError):
        raise ValueError(f"unknown device {shown(device)} (allowed: 'cpu', 'cuda', 'cuda:0', …)") from None
    if result.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {str(result)!r} needs a GPU, and torch finds none: use 'cpu', or install torch with CUDA")
    return result
