"""Ranks: the processes that train one model together. Which rows of a batch belong to a rank, and what these rows mix with.

Every rank draws the plan of the whole batch and executes its own rows. So a row has the same transforms with any number of
ranks. Only mixing partners depend on this number, because they come from the rank's own rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from outspan.limits import check_whole
from outspan.plan import Plan
from outspan.policies.steps import Proposal, Schedule
from outspan.shapes import Inputs
from outspan.transforms.table import find


def find_ranks(rank: int | None = None, world: int | None = None) -> tuple[int, int]:
    """Return a rank and the number of ranks. The default is that of torch's process group, or (0, 1) without one."""
    if (rank is None) != (world is None):
        raise ValueError(f"rank and world must be passed together, got rank={rank} and world={world}")
    if rank is None or world is None:
        is_group = dist.is_available() and dist.is_initialized()
        return (dist.get_rank(), dist.get_world_size()) if is_group else (0, 1)
    check_whole("world", world, 1)
    check_whole("rank", rank, 0)
    if rank >= world:
        raise ValueError(f"rank must be in [0, {world - 1}], one less than world, got {rank}")
    return rank, world


def own_rows(size: int, rank: int, world: int) -> range:
    """Return the rows of a batch that belong to a rank. They are adjacent, and no rank has over one row more than another.

    >>> [own_rows(10, rank, 4) for rank in range(4)]
    [range(0, 3), range(3, 6), range(6, 8), range(8, 10)]
    """
    count, more = divmod(size, world)
    first = rank * count + min(rank, more)
    return range(first, first + count + (rank < more))


def sum_over_ranks(values: Tensor) -> Tensor:
    """Return the sum of a tensor over all ranks of the process group. Every rank must call this."""
    total = values.clone()
    dist.all_reduce(total)
    return total


def own_plan(plan: Plan, rows: range, size: int) -> Plan:
    """Return the plan of some rows of a batch of `size`, for inputs that have these rows only."""
    if len(rows) == size:
        return plan
    candidates = len(plan) // size
    own = plan[rows.start * candidates : rows.stop * candidates]
    return replace(own, source=own.source - rows.start)


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of one rank, passed to a policy as if they were the whole batch, with the labels of the whole batch.

    The policy plans the whole batch and executes the rank's own rows: its `Batch` has the inputs of the rank and the targets
    of the whole batch.
    """

    own: Inputs
    rows: range  # of the whole batch
    size: int  # of the whole batch
    gather: Callable[[Tensor], Tensor]  # from one value per row of a rank to those of the whole batch

    def __len__(self) -> int:
        return self.size

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole batch."""
        return self.size, *self.own.shape[1:]

    @property
    def device(self) -> torch.device:
        """The device of the inputs."""
        return self.own.device


def within_ranks(propose: Proposal | Schedule | None, world: int) -> Any:
    """Return a proposal whose mixing partners come from the rows of the same rank. Its other draws are unchanged."""
    if world == 1 or propose is None:
        return propose
    if isinstance(propose, Schedule):
        return replace(propose, proposals=tuple(_WithinRanks(proposal, world) for proposal in propose.proposals))
    return _WithinRanks(propose, world)


@dataclass(frozen=True)
class _WithinRanks:
    propose: Proposal
    world: int

    def __call__(self, size: int, *, rng: np.random.Generator, candidates: int = 1) -> Plan:
        plan = self.propose(size, rng=rng, candidates=candidates)
        if not any(find(name).mixes for name in plan.names):
            return plan
        bounds = np.array(
            [[rows.start, rows.stop] for rows in (own_rows(size, rank, self.world) for rank in range(self.world))]
        )
        return _redraw_partners(plan, bounds, candidates, rng)


def _redraw_partners(plan: Plan, bounds: np.ndarray, candidates: int, rng: np.random.Generator) -> Plan:
    """Draw the partners of all outputs that mix with another image again, uniform over the outputs of the rank's other images.

    The only image of a rank is its own partner. Rows that blend versions of the same image (AugMix) keep their partners.
    """
    mixes = np.array([*(find(name).mixes for name in plan.names), False])  # op -1 reads the last entry
    ops, source, rows, partners = plan.ops.numpy(), plan.source.numpy(), plan.out.numpy(), plan.partners.numpy().copy()
    image = source[rows]
    first, last = bounds[np.searchsorted(bounds[:, 1], image, "right")].T
    others = (last - first - 1) * candidates
    for step in range(ops.shape[1]):
        before = partners[rows, step]
        redrawn = mixes[ops[rows, step]] & (before >= 0) & (source[before] != image)
        other = (rng.random(len(rows)) * others).astype(np.int64)
        other += first * candidates + candidates * (other >= (image - first) * candidates)  # skip the image itself
        drawn = rows[np.where(others > 0, np.minimum(other, len(rows) - 1), np.arange(len(rows)))]
        partners[rows[redrawn], step] = drawn[redrawn]
    return replace(plan, partners=torch.from_numpy(partners))
