"""Draw plans from a table of steps, for one batch or for several batches at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import torch

from outspan.plan import Plan
from outspan.policies.steps import Proposal, Schedule, Step
from outspan.transforms.table import find

# A function that chooses a step for every entry of a plan. Arguments: 20 random bits per entry, uint64 [rows, depth], and one
# generator per batch of rows, for more randomness. Result: indices into the table of steps, intp [rows, depth].
Pick = Callable[[np.ndarray, Sequence[np.random.Generator]], np.ndarray]


def propose(steps: Sequence[Step], depth: int, pick: Pick) -> Proposal:
    """Return the proposal that gives every row `depth` of the steps, as chosen by `pick`."""
    return _Sampler(steps, depth, pick)


class _Sampler:
    """Draws from a table of steps. Several batches are drawn together, each from its own generator."""

    def __init__(self, steps: Sequence[Step], depth: int, pick: Pick) -> None:
        self.steps, self.depth, self.pick = steps, depth, pick
        self.names = tuple(dict.fromkeys(step.name for step in steps))
        self.op = np.array([self.names.index(step.name) for step in steps], dtype=np.int16)
        graded = np.array([find(step.name).graded for step in steps], dtype=np.float32)  # ungraded steps have level 0
        self.low = graded * np.array([step.low for step in steps], dtype=np.float32)
        self.span = graded * np.array([step.high - step.low for step in steps], dtype=np.float32)
        self.threshold = np.array([step.probability * 2**19 for step in steps])  # apply a step if its 19 bits are below this
        self.bins = np.array([step.bins for step in steps])
        self.mirrored = np.array([step.mirrored for step in steps], dtype=bool)
        self.placed = np.array([find(step.name).placed for step in steps], dtype=bool)
        self.mixes = np.array([find(step.name).mixes for step in steps], dtype=bool)

    def __call__(self, size: int, *, rng: np.random.Generator, candidates: int = 1) -> Plan:
        return self.together(size, [rng], candidates)

    def together(self, size: int, generators: Sequence[np.random.Generator], candidates: int = 1) -> Plan:
        """Return one plan for several batches, one per generator. Each batch has the rows that its generator draws alone."""
        if not self.depth:
            return _empty_plan(size * len(generators), candidates)
        rows = size * candidates
        # One random number per entry: 20 bits choose the step, 24 the level, 19 whether it is applied, 1 the sign.
        drawn = [rng.bit_generator.random_raw((rows, self.depth)) for rng in generators]
        bits = drawn[0] if len(drawn) == 1 else np.concatenate(drawn)
        step = self.pick(bits >> np.uint64(44), generators)
        places = np.zeros((*bits.shape, 4), dtype=np.float32)
        for entries, _, rng in self._entries(self.placed, step, generators):
            places.reshape(-1, 4)[entries] = rng.random((len(entries), 4), dtype=np.float32)
        partners = np.full(bits.shape, -1)
        for entries, first, rng in self._entries(self.mixes, step, generators):
            partners.reshape(-1)[entries] = first + _draw_partners(entries // self.depth - first, rows, candidates, rng)
        ops = self.op.take(step)
        if (self.threshold < 2**19).any():
            ops[(bits >> np.uint64(1) & np.uint64(0x7FFFF)) >= self.threshold.take(step)] = -1
        return Plan(
            self.names,
            torch.from_numpy(ops),
            torch.from_numpy(self._levels(bits, step)),
            torch.from_numpy(places),
            torch.from_numpy(partners),
            *_source_and_out(size * len(generators), candidates),
        )

    def _levels(self, bits: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Return the levels of all entries, float32 [rows, depth], from their random bits and chosen steps."""
        fraction = (bits >> np.uint64(20) & np.uint64(0xFFFFFF)).astype(np.float32) * np.float32(2**-24)
        if self.bins.any():
            count = self.bins.take(step)
            binned = (fraction * count).astype(np.int64) / np.maximum(count - 1, 1)
            fraction = np.where(count > 0, binned, fraction).astype(np.float32)
        levels = fraction * self.span.take(step) + self.low.take(step)
        if self.mirrored.any():
            levels[self.mirrored.take(step) & (bits & np.uint64(1) == 1)] *= -1
        return levels

    def _entries(
        self, has_property: np.ndarray, step: np.ndarray, generators: Sequence[np.random.Generator]
    ) -> Iterator[tuple[np.ndarray, int, np.random.Generator]]:
        """Yield for each batch the flat indices of the entries whose step has a property, its first row, and its generator."""
        if not has_property.any():
            return
        entries = has_property.take(step).ravel().nonzero()[0]
        if len(generators) == 1:
            yield entries, 0, generators[0]
            return
        rows = len(step) // len(generators)
        ends = np.searchsorted(entries, np.arange(len(generators) + 1) * rows * self.depth).tolist()
        for i, rng in enumerate(generators):
            if ends[i] < ends[i + 1]:
                yield entries[ends[i] : ends[i + 1]], i * rows, rng


def draw_together(draw: Proposal, size: int, generators: Sequence[np.random.Generator], candidates: int = 1) -> Plan:
    """Return one plan for several batches of `size` samples, one per generator; the batches follow one another."""
    if isinstance(draw, _Sampler):
        return draw.together(size, generators, candidates)
    return join_batches([draw(size, rng=rng, candidates=candidates) for rng in generators], size)


def merge(proposals: Sequence[Proposal | Schedule], counts: Sequence[int]) -> Proposal | None:
    """Return one proposal that draws `counts[i]` batches of proposal i; None if the proposals differ in depth.

    `draw_together(merge([a, b], [2, 1]), size, generators)` draws two batches of a and one of b. Each batch has the rows that
    a or b draws alone.
    """
    samplers = [proposal for proposal in proposals if isinstance(proposal, _Sampler)]
    depths = {sampler.depth for sampler in samplers if sampler.depth}
    if len(samplers) < len(proposals) or len(depths) > 1:
        return None
    nothing = Step("identity", probability=0.0)  # for proposals without steps
    tables = [sampler.steps if sampler.depth else [nothing] for sampler in samplers]
    starts = [sum(map(len, tables[:i])) for i in range(len(tables))]
    picks = [sampler.pick if sampler.depth else _pick_first for sampler in samplers]
    pick = partial(_pick_merged, picks, starts, counts)
    return _Sampler([step for table in tables for step in table], max(depths, default=0), pick)


def _pick_first(bits: np.ndarray, _: Sequence[np.random.Generator]) -> np.ndarray:
    return np.zeros(bits.shape, dtype=np.intp)


def _pick_merged(
    picks: Sequence[Pick],
    starts: Sequence[int],
    counts: Sequence[int],
    bits: np.ndarray,
    generators: Sequence[np.random.Generator],
) -> np.ndarray:
    """Choose the steps of `counts[i]` batches with `picks[i]`, for each i, among the steps from index `starts[i]` on."""
    rows, chosen, end = len(bits) // sum(counts), [], 0
    for pick, start, count in zip(picks, starts, counts, strict=True):
        first, end = end, end + count
        chosen.append(start + pick(bits[first * rows : end * rows], generators[first:end]))
    return np.concatenate(chosen)


def join_batches(plans: Sequence[Plan], size: int) -> Plan:
    """Return one plan for several batches of `size` samples, from the plan of each; the batches follow one another."""
    if len(plans) == 1:
        return plans[0]
    joined = Plan.cat(plans)
    starts = torch.arange(len(plans)).repeat_interleave(torch.tensor([len(plan.source) for plan in plans]))
    return replace(joined, source=joined.source + size * starts)


@lru_cache(maxsize=64)
def _source_and_out(size: int, candidates: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sample that each row reads, and all rows. They are shared: plans never write to their tensors."""
    return torch.arange(size).repeat_interleave(candidates), torch.arange(size * candidates)


@lru_cache(maxsize=64)
def _empty_plan(size: int, candidates: int) -> Plan:
    """Return the plan without steps. All steps of a run without augmentation share it."""
    rows = size * candidates
    empty = torch.empty((rows, 0))
    return Plan((), empty.short(), empty, torch.empty((rows, 0, 4)), empty.long(), *_source_and_out(size, candidates))


def _draw_partners(row: np.ndarray, rows: int, candidates: int, rng: np.random.Generator) -> np.ndarray:
    """Return a partner for each row, uniform over the rows of other samples; the row itself if there is only one sample."""
    if rows <= candidates:
        return row
    bits = rng.bit_generator.random_raw(len(row)) >> np.uint64(32)
    other = (bits * np.uint64(rows - candidates) >> np.uint64(32)).astype(np.int64)
    return other + candidates * (other >= row // candidates * candidates)
