"""Proposals: functions of a batch size and a generator that draw a plan."""

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
    found = [find(name) for name in transforms]
    if depth < 0 or (depth > len(found) and not replacement) or (depth and not found):
        raise ValueError(f"depth must lie in [0, {len(found)}], the number of transforms, got {depth}")
    if not 0 <= probability <= 1:
        raise ValueError(f"probability must lie in [0, 1], got {probability}")
    low = np.array([-1 if t.signed else 0 for t in found], dtype=np.float32)
    placed = np.array([t.placed for t in found], dtype=bool)
    mixes = np.array([t.mixes for t in found], dtype=bool)

    def draw(size: int, *, rng: np.random.Generator, candidates: int = 1) -> Plan:
        rows = size * candidates
        bits = rng.bit_generator.random_raw((rows, depth))  # one number a step: 20 bits, 24 bits, 20 bits
        ops = _choose(bits >> np.uint64(44), len(found), replacement)
        levels = (bits >> np.uint64(20) & np.uint64(0xFFFFFF)).astype(np.float32) * np.float32(2**-24)
        levels += low.take(ops) * (1 - levels)  # from low to 1
        places = np.zeros((rows, depth, 4), dtype=np.float32)
        at = placed.take(ops).ravel().nonzero()[0]
        places.reshape(-1, 4)[at] = rng.random((len(at), 4), dtype=np.float32)
        partners = np.full((rows, depth), -1)
        at = mixes.take(ops).ravel().nonzero()[0]
        partners.reshape(-1)[at] = _others(at // depth, rows, candidates, rng)
        if probability < 1:
            ops[(bits & np.uint64(0xFFFFF)) >= probability * 2**20] = -1
        return Plan(
            tuple(transforms),
            torch.from_numpy(ops),
            torch.from_numpy(levels),
            torch.from_numpy(places),
            torch.from_numpy(partners),
            *_rows(size, candidates),
        )

    return draw


@lru_cache(maxsize=64)
def _rows(size: int, candidates: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the image that each row reads, and all rows; plans never write to what they hold."""
    return torch.arange(size).repeat_interleave(candidates), torch.arange(size * candidates)


def _choose(bits: np.ndarray, count: int, replacement: bool) -> np.ndarray:
    """Turn 20 random bits a step into a number below `count`, distinct in each row unless with replacement."""
    depth = bits.shape[1]
    choices = np.array([count if replacement else count - t for t in range(depth)], dtype=np.uint64)
    ops = (bits * choices >> np.uint64(20)).astype(np.int16)
    for t in range(1, 0 if replacement else depth):
        # The k-th of those not taken yet: step over each taken one that lies at or below, from the lowest up.
        for taken in np.sort(ops[:, :t], axis=1).T if t > 1 else ops[:, :1].T:
            ops[:, t] += ops[:, t] >= taken
    return ops


def _others(row: np.ndarray, rows: int, candidates: int, rng: np.random.Generator) -> np.ndarray:
    """Return for each row one uniform over the rows of other images; a single image has itself alone."""
    if rows <= candidates:
        return row
    bits = rng.bit_generator.random_raw(len(row)) >> np.uint64(32)
    other = (bits * np.uint64(rows - candidates) >> np.uint64(32)).astype(np.int64)
    return other + candidates * (other >= row // candidates * candidates)
