"""The values that each key of a recipe allows, and checks of numbers."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from operator import index
from types import MappingProxyType
from typing import Any

from outspan.messages import shown

PROFILES = ("paper", "released")  # whose ranges of strength: the paper's, or those of its authors' code


@dataclass(frozen=True)
class Between:
    """The numbers from `low` to `high`. An open end is excluded. `whole` allows integers only."""

    low: float
    high: float
    open_low: bool = False
    open_high: bool = False
    whole: bool = True
    other: float | None = None  # one more allowed value

    def holds(self, value: Any) -> bool:
        """Return whether a value is allowed."""
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        above = value > self.low if self.open_low else value >= self.low  # NaN is neither
        below = value < self.high if self.open_high else value <= self.high
        return (above and below) or (self.other is not None and value == self.other)

    def __str__(self) -> str:
        """Return the allowed numbers as an error message shows them."""
        brackets = "(" if self.open_low else "[", ")" if self.open_high else "]"
        between = f"{brackets[0]}{self.low:g}, {self.high:g}{brackets[1]}"
        return (f"{self.low:,} to {self.high:,}" if self.whole else between) + (
            "" if self.other is None else f", or {self.other:g}"
        )


@dataclass(frozen=True)
class OneOf:
    """A choice of names."""

    names: tuple[str, ...]

    def holds(self, value: Any) -> bool:
        """Return whether a value is allowed."""
        return isinstance(value, str) and value in self.names

    def __str__(self) -> str:
        """Return the allowed names as an error message shows them."""
        return ", ".join(self.names)


@dataclass(frozen=True)
class Color:
    """A name, or red, green and blue as hexadecimal digits."""

    def holds(self, value: Any) -> bool:
        """Return whether a value is allowed."""
        return value in ("white", "black", "grey") or re.fullmatch("#[0-9a-fA-F]{6}", value) is not None

    def __str__(self) -> str:
        """Return the allowed values as an error message shows them."""
        return "white, black, grey, #rrggbb"


_RATE = Between(0, 1e6, open_low=True, whole=False)
_COEFFICIENT = Between(0, 1e6, whole=False)
_FRACTION = Between(0, 1, open_high=True, whole=False)
MAX_SKIP = 0.9  # of `skip`: with more, an epoch would consist of very few samples
# The upper limits are far above practical values, but low enough that nothing overflows and no single value fills the memory.
LIMITS: Mapping[str, Between | OneOf | Color] = MappingProxyType(
    {
        "seed": Between(-(2**63), 2**63 - 1),
        "epochs": Between(1, 1_000_000),
        "min_steps": Between(0, 1_000_000_000_000),
        "steps": Between(0, 1_000_000_000_000),
        "batch": Between(1, 10_000_000),
        "lr": _RATE,
        "optimizer": OneOf(("sgd", "adamw")),
        "momentum": _FRACTION,
        "weight_decay": _COEFFICIENT,
        "schedule": OneOf(("cosine", "linear", "multistep", "constant")),
        "warmup": _FRACTION,
        "label_smoothing": _FRACTION,
        "sampling": OneOf(("shuffle", "balanced")),
        "clip": _COEFFICIENT,
        "accumulate": Between(1, 10_000_000),
        "precision": OneOf(("auto", "bf16", "fp16", "fp32")),
        "sync_bn": Between(0, 1),
        "freeze": OneOf(("none", "all but head")),
        "unfreeze": Between(0, 1_000_000),
        "layer_decay": Between(0, 1, open_low=True, whole=False),
        "size": Between(1, 4096),
        "channels": OneOf(("auto", "1", "3")),
        "background": Color(),
        "crop": OneOf(("centre", "resized")),
        "fraction": Between(0, 1, open_low=True, whole=False),
        "length": Between(1, 1_000_000),
        "truncate": OneOf(("head", "tail", "head+tail")),
        "validation": Between(0, 1_000_000_000),
        "folds": Between(2, 1_000, other=0),
        "fold": Between(0, 999),
        "patience": Between(0, 1_000_000),
        "best_metric": OneOf(("accuracy", "balanced_accuracy", "macro_f1")),
        "depth": Between(0, 100),
        "probability": Between(0, 1, whole=False),
        "profile": OneOf(PROFILES),
        "candidates": Between(1, 1024),
        "keep": Between(1, 1024),
        "score": OneOf(("loss", "excess")),
        "score_every": Between(1, 1_000_000_000),
        "magnitude": Between(0, 30, whole=False),
        "strength": Between(0, 4.5, whole=False),  # the largest limit of a transform
        "by_confidence": Between(0, 1, whole=False),
        "finish": _FRACTION,
        "ema": _FRACTION,
        "skip": Between(0, MAX_SKIP, whole=False, other=-1),
        "same_class": Between(0, 1, whole=False, other=-1),
        "adversaries": Between(2, 1024),
        "subpolicies": Between(1, 100),
        "controller_lr": _RATE,
        "entropy": _COEFFICIENT,
        "policy_epochs": Between(1, 1_000_000),
    }
)


def check_value(key: str, value: Any) -> None:
    """Raise a ValueError unless a key of a recipe allows a value."""
    allowed = LIMITS[key]
    if allowed.holds(value):
        return
    if isinstance(allowed, OneOf | Color):
        raise ValueError(f"{key} must be one of {allowed}, got {shown(value)}")
    if isinstance(value, bool) or not isinstance(value, int if allowed.whole else int | float):
        raise ValueError(f"{key} must be {'a whole number' if allowed.whole else 'a number'}, got {shown(value)}")
    raise ValueError(f"{key} is out of range, got {shown(value)} (allowed: {allowed})")


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return an argument as an int. Raise a ValueError unless it is a whole number from `least` to `most`."""
    try:
        whole = index(value)
    except TypeError:
        whole = None
    if whole is None or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number, got {shown(value)}")
    if whole < least:
        raise ValueError(f"{name} must be at least {least}, got {shown(value)}")
    if most is not None and whole > most:
        raise ValueError(f"{name} must be at most {most}, got {shown(value)}")
    return whole


def check_number(name: str, value: Any) -> None:
    """Raise a ValueError unless an argument is a number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, got {shown(value)}")


def check_positive(name: str, value: Any) -> None:
    """Raise a ValueError unless an argument is a positive, finite number."""
    check_number(name, value)
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive number, got {shown(value)}")
