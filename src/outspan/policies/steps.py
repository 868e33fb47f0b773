"""The types that proposals are made of: a step, a proposal, and a schedule of proposals."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from outspan.limits import check_number, check_whole
from outspan.plan import Plan
from outspan.transforms.table import find


@runtime_checkable
class Proposal(Protocol):
    """Draws a plan for `size` samples, with `candidates` rows per sample. The generator is its only source of randomness."""

    def __call__(self, size: int, *, rng: np.random.Generator, candidates: int = 1) -> Plan: ...


@dataclass(frozen=True, slots=True)
class Step:
    """One transform of a proposal: applied with a probability, at a level uniform over [low, high]."""

    name: str
    low: float = 1.0
    high: float = 1.0
    probability: float = 1.0
    mirrored: bool = False  # negate the level with probability 1/2
    bins: int = 0  # number of equally spaced levels in the range; 0: continuous

    def __post_init__(self) -> None:
        for field in ("low", "high", "probability"):
            check_number(f"{field} of step {self.name!r}", getattr(self, field))
        check_whole(f"bins of step {self.name!r}", self.bins, 0)
        lowest, highest = find(self.name).levels
        least = -self.high if self.mirrored else self.low
        if not lowest <= np.float32(least) <= np.float32(self.high) <= highest:
            raise ValueError(f"levels of {self.name!r} must lie in [{lowest:g}, {highest:g}], got [{least:g}, {self.high:g}]")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability must lie in [0, 1], got {self.probability}")
        if self.bins == 1:
            raise ValueError(f"bins must be 0 or at least 2, got {self.bins}")


@dataclass(frozen=True)
class Schedule:
    """Proposals that follow one another during a run."""

    proposals: tuple[Proposal, ...]
    ends: tuple[int, ...]  # the step at which each proposal but the last ends, in order

    def __post_init__(self) -> None:
        if len(self.ends) != len(self.proposals) - 1 or list(self.ends) != sorted(self.ends):
            expected = f"{len(self.proposals) - 1} steps in ascending order, one for each proposal but the last"
            raise ValueError(f"ends must be {expected}, got {self.ends}")

    def at(self, step: int) -> Proposal:
        """Return the proposal of a step."""
        return self.proposals[bisect_right(self.ends, step)]
