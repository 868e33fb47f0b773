"""Training: one loop for one model or several, and checkpoint files that are complete or absent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan


@dataclass(frozen=True)
class Progress:
    """How far a run is, after one of its steps."""

    step: float  # steps done; for parallel runs, the number of finished runs plus the fractions of the others
    steps: int  # steps of the whole run
    epoch: int = 0
    epochs: int = 0
    loss: float = nan  # of the step; on a GPU the most recent one that was read
    samples: int = 0  # trained on in this step
    metrics: Sequence[Mapping[str, float]] = field(default=(), repr=False)  # one row per finished epoch
    message: str = ""  # shown instead of epoch and loss


OnStep = Callable[[Progress], bool | None]  # called after each step; if it returns True, the run saves and stops


class Diverged(ValueError):
    """Raised if a loss or a weight is no longer finite."""


class RankFailed(RuntimeError):
    """Raised if another rank has failed, which reports its error itself."""


class Stopped(Exception):
    """Raised after a run that was asked to stop has saved a checkpoint."""
