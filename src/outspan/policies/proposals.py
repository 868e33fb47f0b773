"""Proposals: functions of a batch size and a generator that draw a plan."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from outspan.plan import Plan
from outspan.transforms.table import PAPER_16, find


@runtime_checkable
class Proposal(Protocol):
    """Draws a plan for `size` images, `candidates` rows an image, from a generator and nothing else."""

    def __call__(self, size: int, *, rng: np.random.Generator, candidates: int = 1) -> Plan: ...


@dataclass(frozen=True, slots=True)
class Step:
    """One transform as a recipe applies it: with a probability, at a level uniform over [low, high]."""

    name: str
    low: float = 1.0
    high: float = 1.0
    probability: float = 1.0
    mirrored: bool = False  # either direction, equally often
    bins: int = 0  # 0: every level of the range; else so many, equally spaced

    def __post_init__(self) -> None:
        lowest, highest = find(self.name).levels
        least = -self.high if self.mirrored else self.low
        if not lowest <= np.float32(least) <= np.float32(self.high) <= highest:
            raise ValueError(f"levels of {self.name!r} must lie in [{lowest:g}, {highest:g}], got [{least:g}, {self.high:g}]")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability must lie in [0, 1], got {self.probability}")
        if self.bins == 1 or self.bins < 0:
            raise ValueError(f"bins must be 0 or at least 2, got {self.bins}")


Pick = Callable[[np.ndarray], np.ndarray]  # 20 random bits a step, uint64 [rows, depth] -> which option, intp


def propose(options: Sequence[Step], depth: int, pick: Pick) -> Proposal:
    """Return the proposal that takes, at each of `depth` steps of a row, the option that `pick` names."""
    names = tuple(dict.fromkeys(option.name for option in options))
    op = np.array([names.index(option.name) for option in options], dtype=np.int16)
    graded = np.array([find(option.name).graded for option in options], dtype=np.float32)  # else the level is 0
    low = graded * np.array([option.low for option in options], dtype=np.float32)
    span = graded * np.array([option.high - option.low for option in options], dtype=np.float32)
    chance = np.array([option.probability * 2**19 for option in options])
    bins = np.array([option.bins for option in options])
    mirrored = np.array([option.mirrored for option in options], dtype=bool)
    placed = np.array([find(option.name).placed for option in options], dtype=bool)
    mixes = np.array([find(option.name).mixes for option in options], dtype=bool)

    def draw(size: int, *, rng: np.random.Generator, candidates: int = 1) -> Plan:
        if not depth:
            return _nothing(size, candidates)
        rows = size * candidates
        # One number a step: 20 bits choose, 24 are the level, 19 decide whether, 1 the direction.
        bits = rng.bit_generator.random_raw((rows, depth))
        option = pick(bits >> np.uint64(44))
        share = (bits >> np.uint64(20) & np.uint64(0xFFFFFF)).astype(np.float32) * np.float32(2**-24)
        if bins.any():
            count = bins.take(option)
            share = np.where(count > 0, (share * count).astype(np.int64) / np.maximum(count - 1, 1), share).astype(np.float32)
        levels = share * span.take(option) + low.take(option)
        if mirrored.any():
            levels[mirrored.take(option) & (bits & np.uint64(1) == 1)] *= -1
        places = np.zeros((rows, depth, 4), dtype=np.float32)
        at = placed.take(option).ravel().nonzero()[0]
        places.reshape(-1, 4)[at] = rng.random((len(at), 4), dtype=np.float32)
        partners = np.full((rows, depth), -1)
        at = mixes.take(option).ravel().nonzero()[0]
        partners.reshape(-1)[at] = _others(at // depth, rows, candidates, rng)
        ops = op.take(option)
        if (chance < 2**19).any():
            ops[(bits >> np.uint64(1) & np.uint64(0x7FFFF)) >= chance.take(option)] = -1
        return Plan(
            names,
            torch.from_numpy(ops),
            torch.from_numpy(levels),
            torch.from_numpy(places),
            torch.from_numpy(partners),
            *_rows(size, candidates),
        )

    return draw


def sequence(*steps: Step) -> Proposal:
    """Give every row these steps in order."""
    order = np.arange(len(steps))
    return propose(steps, len(steps), lambda bits: np.broadcast_to(order, bits.shape))


def any_of(options: Sequence[Step], depth: int, *, replacement: bool = True) -> Proposal:
    """Give every row `depth` of the options, each alike; without replacement they are distinct."""
    if depth < 0 or (depth > len(options) and not replacement) or (depth and not options):
        raise ValueError(f"depth must lie in [0, {len(options)}], the number of transforms, got {depth}")
    return propose(options, depth, lambda bits: _choose(bits, len(options), replacement))


def uniform(
    depth: int = 2,
    *,
    transforms: tuple[str, ...] = PAPER_16,
    probability: float = 0.5,
    replacement: bool = False,
) -> Proposal:
    """Draw `depth` transforms a row, each alike, at levels uniform over the paper's range.

    Each is applied with `probability`. Drawing that probability itself from U(0, 1), as the paper's authors do,
    comes to 0.5. Without `replacement` the transforms of a row are distinct.
    """
    options = [Step(name, -1.0 if find(name).signed else 0.0, 1.0, probability) for name in transforms]
    return any_of(options, depth, replacement=replacement)


@lru_cache(maxsize=64)
def _rows(size: int, candidates: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the image that each row reads, and all rows; plans never write to what they hold."""
    return torch.arange(size).repeat_interleave(candidates), torch.arange(size * candidates)


@lru_cache(maxsize=64)
def _nothing(size: int, candidates: int) -> Plan:
    """Return the plan without steps: every step of training without augmentation has the same one."""
    rows = size * candidates
    empty = torch.empty((rows, 0))
    return Plan((), empty.short(), empty, torch.empty((rows, 0, 4)), empty.long(), *_rows(size, candidates))


def _choose(bits: np.ndarray, count: int, replacement: bool) -> np.ndarray:
    """Turn 20 random bits a step into a number below `count`, distinct in each row unless with replacement."""
    depth = bits.shape[1]
    choices = np.array([count if replacement else count - t for t in range(depth)], dtype=np.uint64)
    chosen = (bits * choices >> np.uint64(20)).astype(np.intp)
    for t in range(1, 0 if replacement else depth):
        # The k-th of those not taken yet: step over each taken one that lies at or below, from the lowest up.
        for taken in np.sort(chosen[:, :t], axis=1).T if t > 1 else chosen[:, :1].T:
            chosen[:, t] += chosen[:, t] >= taken
    return chosen


def _others(row: np.ndarray, rows: int, candidates: int, rng: np.random.Generator) -> np.ndarray:
    """Return for each row one uniform over the rows of other images; a single image has itself alone."""
    if rows <= candidates:
        return row
    bits = rng.bit_generator.random_raw(len(row)) >> np.uint64(32)
    other = (bits * np.uint64(rows - candidates) >> np.uint64(32)).astype(np.int64)
    return other + candidates * (other >= row // candidates * candidates)
