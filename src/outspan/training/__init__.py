"""Training: one loop, one checkpoint file, whole or not there."""

from collections.abc import Callable
from typing import Any

OnStep = Callable[
    [dict[str, Any]], bool | None
]  # told what a progress bar shows; where it returns True the run saves and stops


class Diverged(ValueError):
    """Raised where a loss or a weight is no longer finite."""


class Stopped(Exception):
    """Raised after a run was asked to stop and has saved itself."""
