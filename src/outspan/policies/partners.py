"""Mixing partners by class: a fraction of the partners has the class of the image."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from outspan.limits import check_number
from outspan.plan import Plan
from outspan.shapes import BatchLabels
from outspan.transforms.table import find


def check_same_class(fraction: float) -> None:
    """Raise a ValueError unless the value is a fraction or -1."""
    check_number("same_class", fraction)
    if fraction != -1 and not 0 <= fraction <= 1:
        raise ValueError(f"same_class must lie in [0, 1], or be -1 to ignore the classes, got {fraction}")


def partners_by_class(plan: Plan, labels: BatchLabels, fraction: float, generators: Sequence[np.random.Generator]) -> Plan:
    """Redraw the partners of mixing steps: with probability `fraction` from the image's own class, else from another class.

    The plan has one batch of outputs per generator, and partners come from the same batch. A partner is uniform over the
    allowed images; if there is none, the image is its own partner. Rows that blend several versions of the same image (AugMix)
    keep their partners.
    """
    if labels.is_floating_point() or labels.ndim != 1:
        raise ValueError(f"same_class needs labels that are class indices [B], got {labels.dtype} {list(labels.shape)}")
    mixes = np.array([*(find(name).mixes for name in plan.names), False])  # op -1 reads the last entry
    ops, source, partners = plan.ops.numpy(), plan.source.numpy(), plan.partners.numpy().copy()
    for rows, rng in zip(np.split(plan.out.numpy(), len(generators)), generators, strict=True):
        pool = _Pool(labels.numpy()[source[rows]])
        for step in range(ops.shape[1]):
            drawn = rows[pool.draw(fraction, rng)]
            before = partners[rows, step]
            redrawn = mixes[ops[rows, step]] & (before >= 0) & (source[before] != source[rows])
            partners[rows[redrawn], step] = drawn[redrawn]
    return replace(plan, partners=torch.from_numpy(partners))


class _Pool:
    """The samples of a batch sorted by label, so that each class is contiguous."""

    def __init__(self, labels: np.ndarray) -> None:
        self.order = np.argsort(labels, kind="stable")
        self.rank = np.empty_like(self.order)
        self.rank[self.order] = np.arange(len(labels))
        ordered = labels[self.order]
        self.start = np.searchsorted(ordered, labels, "left")
        self.count = np.searchsorted(ordered, labels, "right") - self.start

    def draw(self, fraction: float, rng: np.random.Generator) -> np.ndarray:
        """Return a partner for each sample: with probability `fraction` of the same class, else of another class."""
        size = len(self.order)
        same, position = rng.random(size) < fraction, rng.random(size)
        own = (position * (self.count - 1)).astype(np.int64)
        own += self.start + (own >= self.rank - self.start)  # skip the sample itself
        other = (position * (size - self.count)).astype(np.int64)
        other += self.count * (other >= self.start)  # skip the class of the sample
        exists = np.where(same, self.count > 1, self.count < size)
        return self.order[np.where(exists, np.where(same, own, other), self.rank)]
