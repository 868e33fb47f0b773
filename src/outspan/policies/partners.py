"""Whom an image is mixed with: partners of its own class, or of others, in a given share."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from outspan.plan import Plan
from outspan.shapes import Num
from outspan.transforms.table import find


def check_same_class(share: float) -> None:
    """Refuse what is neither a share nor -1."""
    if share != -1 and not 0 <= share <= 1:
        raise ValueError(f"same_class must lie in [0, 1], or be -1 for partners as they come, got {share}")


def partners_by_class(
    plan: Plan, labels: Num[Tensor, "B ..."], share: float, generators: Sequence[np.random.Generator]
) -> Plan:
    """Draw the partners of mixing steps anew: with probability `share` of the image's own class, else of another.

    There is a batch of outputs for each generator, and partners are of the same batch. Each is uniform over those that are
    allowed; where there is none the image is mixed with itself. Rows that mix in their own image, as AugMix's, stay.
    """
    if labels.is_floating_point() or labels.ndim != 1:
        raise ValueError(f"same_class needs class numbers [B], got {labels.dtype} {list(labels.shape)}")
    mixes = np.array([*(find(name).mixes for name in plan.names), False])  # op -1 reads the last
    ops, source, partners = plan.ops.numpy(), plan.source.numpy(), plan.partners.numpy().copy()
    for rows, rng in zip(np.split(plan.out.numpy(), len(generators)), generators, strict=True):
        pool = _Pool(labels.numpy()[source[rows]])
        for step in range(ops.shape[1]):
            drawn = rows[pool.draw(share, rng)]
            before = partners[rows, step]
            own = mixes[ops[rows, step]] & (before >= 0) & (source[before] != source[rows])
            partners[rows[own], step] = drawn[own]
    return replace(plan, partners=torch.from_numpy(partners))


class _Pool:
    """The labels of a batch, sorted: each class is a run of it."""

    def __init__(self, labels: np.ndarray) -> None:
        self.order = np.argsort(labels, kind="stable")
        self.place = np.empty_like(self.order)
        self.place[self.order] = np.arange(len(labels))
        runs = labels[self.order]
        self.start = np.searchsorted(runs, labels, "left")
        self.count = np.searchsorted(runs, labels, "right") - self.start

    def draw(self, share: float, rng: np.random.Generator) -> np.ndarray:
        """Return for each of the batch another of it: of the same class with this probability, else of another class."""
        size = len(self.order)
        same, at = rng.random(size) < share, rng.random(size)
        alike = (at * (self.count - 1)).astype(np.int64)
        alike += self.start + (alike >= self.place - self.start)  # not itself
        other = (at * (size - self.count)).astype(np.int64)
        other += self.count * (other >= self.start)  # over its own class
        there = np.where(same, self.count > 1, self.count < size)
        return self.order[np.where(there, np.where(same, alike, other), self.place)]
