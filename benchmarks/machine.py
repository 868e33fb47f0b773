"""The hardware and versions of a measurement, for every file in results/."""

import os
import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from outspan.files import commit

try:
    from outspan.transforms.kernels.cpu._cpu import instruction_set
except ImportError:  # not built

    def instruction_set() -> None: ...


ROOT = Path(__file__).parent.parent


def machine(*peers: str) -> dict[str, object]:
    """Return the hardware, the versions of our and other packages, and the commit."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.split(": ")[1] for line in text.splitlines() if line.startswith("model name")), platform.processor())
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "instruction_set": instruction_set(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("torch", "numpy", "pillow", *peers)},
        "commit": commit(),
        "date": date.today().isoformat(),
    }


def wait(device: torch.device) -> None:
    """Wait for the GPU before a clock is read."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
