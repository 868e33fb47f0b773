"""What figures were taken on, for every file in results/."""

import os
import platform
import subprocess
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

try:
    from outspan.kernels.cpu._cpu import instruction_set
except ImportError:  # not built

    def instruction_set() -> None: ...


ROOT = Path(__file__).parent.parent


def machine(*peers: str) -> dict[str, object]:
    """Return the hardware, the versions, ours and the peers', and the commit."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.split(": ")[1] for line in text.splitlines() if line.startswith("model name")), platform.processor())
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "instruction_set": instruction_set(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("torch", "numpy", "pillow", *peers)},
        "commit": os.environ.get("COMMIT") or _commit(),  # a copy without its history is told
        "date": date.today().isoformat(),
    }


def _commit() -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT).stdout.strip()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
