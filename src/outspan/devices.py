"""Choose a device, and copy tensors to it."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from outspan.messages import shown


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a CPU tensor to a device without waiting for the device's pending work."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def default_device() -> str:
    """Return the device to train on by default: "cuda" if there is a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def available_devices() -> list[str]:
    """Return the names of the devices of this machine that torch can use, e.g. ["cpu", "cuda:0", "cuda:1"]."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return ["cpu", *(f"cuda:{i}" for i in range(gpus)), *["mps"] * torch.backends.mps.is_available()]


def find_device(device: str | torch.device | None = None) -> torch.device:
    """Return a device by name, or the default for None. A device that is not there is a ValueError, which lists the others."""
    available = available_devices()
    try:
        result = torch.device(default_device() if device is None else device)
    except (RuntimeError, TypeError):
        raise ValueError(f"unknown device {shown(device)} (available: {', '.join(available)})") from None
    count = sum(name.partition(":")[0] == result.type for name in available)
    if (result.index or 0) >= count:
        how = "" if count or result.type != "cuda" else ": torch finds no GPU; install torch with CUDA, or use 'cpu'"
        raise ValueError(f"device {str(result)!r} is not there (available: {', '.join(available)}){how}")
    return result


def current(device: torch.device) -> AbstractContextManager[object]:
    """Make a GPU the current one: some operations, such as recording graphs, use the current GPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
