"""Strength: one number that scales the transforms of any proposal, and the finish of a run without them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from outspan.limits import check_value, check_whole
from outspan.messages import shown
from outspan.plan import Plan
from outspan.shapes import Float32, describe
from outspan.transforms.table import find


def check_strength(strength: float, finish: float, steps: int | None) -> None:
    """Raise a ValueError for a strength or a finish out of range, or for a finish without the number of steps."""
    check_value("strength", strength)
    check_value("finish", finish)
    if steps is not None and (type(steps) is not int or steps < 1):
        raise ValueError(f"steps must be an integer of at least 1, the total number of steps of the run, got {shown(steps)}")
    if finish and steps is None:
        raise ValueError(f"finish needs steps, the total number of steps of the run: add steps=..., got finish={finish}")


def check_confidence(confidence: Tensor | None, size: int) -> Tensor | None:
    """Return the confidence of each sample on the host. Anything but one number in [0, 1] per sample is a ValueError."""
    if confidence is None:
        return None
    if not isinstance(confidence, Tensor) or confidence.shape != (size,):
        raise ValueError(f"confidence must be a tensor [{size}], one number per sample, got {describe(confidence)}")
    confidence = confidence.detach().float().cpu()
    if not bool(((confidence >= 0) & (confidence <= 1)).all()):
        raise ValueError(f"confidence must lie in [0, 1], got {float(confidence.min()):g} to {float(confidence.max()):g}")
    return confidence


def strength_at(step: int, strength: float, finish: float, steps: int | None) -> float:
    """Return the strength of a step: 0 in the last fraction `finish` of the steps. A wrong step raises a ValueError.

    >>> [strength_at(step, 0.5, 0.25, 8) for step in range(8)]
    [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.0, 0.0]
    """
    check_whole("step", step, 0)
    return 0.0 if finish and steps is not None and step >= round((1 - finish) * steps) else strength


def scale(
    plan: Plan,
    strength: float,
    generators: Sequence[np.random.Generator],
    weights: Mapping[str, float] | None = None,
    confidence: Float32[Tensor, " B"] | None = None,
) -> Plan:
    """Scale the levels of a plan, and below 1 also the probability of each of its transforms.

    Levels beyond the limit of a transform become the limit. `weights` multiply the probability of single transforms, by
    name. `confidence` multiplies the strength of each sample. The plan contains one batch per generator, one after the other.
    The draws of a batch depend on its own generator alone.
    """
    # NumPy: for arrays of this size its calls take less time than those of torch.
    ops, (lowest, highest) = plan.ops.numpy(), _bounds(plan.names)
    strengths = np.array([[strength]], np.float32)
    if confidence is not None:
        strengths = strengths * confidence.numpy()[plan.source.numpy()][:, None]
    levels = np.clip(plan.levels.numpy() * strengths, lowest[ops], highest[ops])  # op -1, no transform, reads the last one
    if strength >= 1 and weights is None and confidence is None:
        return replace(plan, levels=torch.from_numpy(levels))
    weight = np.array([1.0 if weights is None else weights[name] for name in plan.names], np.float32)
    rows, depth = ops.shape
    draws = np.concatenate([rng.random((rows // len(generators), depth), dtype=np.float32) for rng in generators])
    kept = draws < np.minimum(strengths, 1) * weight[ops]
    return replace(plan, levels=torch.from_numpy(levels), ops=torch.from_numpy(np.where(kept, ops, np.int16(-1))))


@lru_cache(maxsize=256)
def _bounds(names: tuple[str, ...]) -> np.ndarray:
    """Return the lowest and the highest levels of transforms, float32 [2, transforms]."""
    return np.array([find(name).levels for name in names], np.float32).T
