"""Proposals: functions of a batch size and a generator that draw a plan."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from outspan.limits import PROFILES
from outspan.messages import shown
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


@dataclass(frozen=True)
class Schedule:
    """Proposals that take turns over a run: each until its step, the last for ever."""

    proposals: tuple[Proposal, ...]
    ends: tuple[int, ...]  # of all but the last, in order

    def at(self, step: int) -> Proposal:
        """Return the proposal of a step."""
        return self.proposals[bisect_right(self.ends, step)]


# 20 random bits a step, uint64 [rows, depth], a batch of rows for each generator that more may come from -> which option, intp
Pick = Callable[[np.ndarray, Sequence[np.random.Generator]], np.ndarray]


def propose(options: Sequence[Step], depth: int, pick: Pick) -> Proposal:
    """Return the proposal that takes, at each of `depth` steps of a row, the option that `pick` names."""
    return _Picked(options, depth, pick)


def one_pair(options: Sequence[Step]) -> Proposal:
    """Return the proposal that gives a row one of the pairs that stand next to one another in `options`, all alike likely."""
    return propose(options, 2, partial(_pick_pair, np.uint64(len(options) // 2)))


# What picks is a partial of a function and no closure: policies are sent to other processes.
def _pick_pair(pairs: np.uint64, bits: np.ndarray, _: Sequence[np.random.Generator]) -> np.ndarray:
    return 2 * (bits[:, :1] * pairs >> np.uint64(20)).astype(np.intp) + np.arange(2)


def _pick_in_order(bits: np.ndarray, _: Sequence[np.random.Generator]) -> np.ndarray:
    return np.broadcast_to(np.arange(bits.shape[1]), bits.shape)


def _pick_any(count: int, replacement: bool, bits: np.ndarray, _: Sequence[np.random.Generator]) -> np.ndarray:
    return _choose(bits, count, replacement)


class _Picked:
    """Draws from a table of options. Several batches are drawn as one, each from its own generator."""

    def __init__(self, options: Sequence[Step], depth: int, pick: Pick) -> None:
        self.options, self.depth, self.pick = options, depth, pick
        self.names = tuple(dict.fromkeys(option.name for option in options))
        self.op = np.array([self.names.index(option.name) for option in options], dtype=np.int16)
        graded = np.array([find(option.name).graded for option in options], dtype=np.float32)  # else the level is 0
        self.low = graded * np.array([option.low for option in options], dtype=np.float32)
        self.span = graded * np.array([option.high - option.low for option in options], dtype=np.float32)
        self.chance = np.array([option.probability * 2**19 for option in options])
        self.bins = np.array([option.bins for option in options])
        self.mirrored = np.array([option.mirrored for option in options], dtype=bool)
        self.placed = np.array([find(option.name).placed for option in options], dtype=bool)
        self.mixes = np.array([find(option.name).mixes for option in options], dtype=bool)

    def __call__(self, size: int, *, rng: np.random.Generator, candidates: int = 1) -> Plan:
        return self.together(size, [rng], candidates)

    def together(self, size: int, generators: Sequence[np.random.Generator], candidates: int = 1) -> Plan:
        """Return one plan for a batch of each generator, one after another: the rows are what each draws alone."""
        if not self.depth:
            return _nothing(size * len(generators), candidates)
        rows = size * candidates
        # One number a step: 20 bits choose, 24 are the level, 19 decide whether, 1 the direction.
        drawn = [rng.bit_generator.random_raw((rows, self.depth)) for rng in generators]
        bits = drawn[0] if len(drawn) == 1 else np.concatenate(drawn)
        option = self.pick(bits >> np.uint64(44), generators)
        share = (bits >> np.uint64(20) & np.uint64(0xFFFFFF)).astype(np.float32) * np.float32(2**-24)
        if self.bins.any():
            count = self.bins.take(option)
            share = np.where(count > 0, (share * count).astype(np.int64) / np.maximum(count - 1, 1), share).astype(np.float32)
        levels = share * self.span.take(option) + self.low.take(option)
        if self.mirrored.any():
            levels[self.mirrored.take(option) & (bits & np.uint64(1) == 1)] *= -1
        places = np.zeros((*bits.shape, 4), dtype=np.float32)
        for at, _, rng in self._entries(self.placed, option, generators):
            places.reshape(-1, 4)[at] = rng.random((len(at), 4), dtype=np.float32)
        partners = np.full(bits.shape, -1)
        for at, first, rng in self._entries(self.mixes, option, generators):
            partners.reshape(-1)[at] = first + _others(at // self.depth - first, rows, candidates, rng)
        ops = self.op.take(option)
        if (self.chance < 2**19).any():
            ops[(bits >> np.uint64(1) & np.uint64(0x7FFFF)) >= self.chance.take(option)] = -1
        return Plan(
            self.names,
            torch.from_numpy(ops),
            torch.from_numpy(levels),
            torch.from_numpy(places),
            torch.from_numpy(partners),
            *_rows(size * len(generators), candidates),
        )

    def _entries(
        self, kind: np.ndarray, option: np.ndarray, generators: Sequence[np.random.Generator]
    ) -> Iterator[tuple[np.ndarray, int, np.random.Generator]]:
        """Return, for each batch that has any, which entries are of some kind, the batch's first row, and its generator."""
        if not kind.any():
            return
        at = kind.take(option).ravel().nonzero()[0]
        if len(generators) == 1:
            yield at, 0, generators[0]
            return
        rows = len(option) // len(generators)
        ends = np.searchsorted(at, np.arange(len(generators) + 1) * rows * self.depth).tolist()
        for i, rng in enumerate(generators):
            if ends[i] < ends[i + 1]:
                yield at[ends[i] : ends[i + 1]], i * rows, rng


def draw_together(draw: Proposal, size: int, generators: Sequence[np.random.Generator], candidates: int = 1) -> Plan:
    """Return one plan for a batch of each generator; their images lie one batch after another."""
    if isinstance(draw, _Picked):
        return draw.together(size, generators, candidates)
    return side_by_side([draw(size, rng=rng, candidates=candidates) for rng in generators], size)


def merge(proposals: Sequence[Proposal | Schedule], counts: Sequence[int]) -> Proposal | None:
    """Return one proposal that draws so many batches of each, one after another; None where they are not of one depth.

    It draws what each would: `draw_together(merge([a, b], [2, 1]), size, generators)` are two batches of a and one of b.
    """
    parts = [one for one in proposals if isinstance(one, _Picked)]
    depths = {one.depth for one in parts if one.depth}
    if len(parts) < len(proposals) or len(depths) > 1:
        return None
    nothing = Step("identity", probability=0.0)  # where a proposal has no steps
    options = [one.options if one.depth else [nothing] for one in parts]
    first = [sum(map(len, options[:i])) for i in range(len(options))]
    ends = np.cumsum(counts)

    def pick(bits: np.ndarray, generators: Sequence[np.random.Generator]) -> np.ndarray:
        rows, found = len(bits) // ends[-1], np.empty(bits.shape, dtype=np.intp)
        for one, start, end, count in zip(parts, first, ends, counts, strict=True):
            where = slice((end - count) * rows, end * rows)
            found[where] = start + (one.pick(bits[where], generators[end - count : end]) if one.depth else 0)
        return found

    return _Picked([step for some in options for step in some], max(depths, default=0), pick)


def side_by_side(plans: Sequence[Plan], size: int) -> Plan:
    """Return one plan of several, each over `size` images; all the images lie one batch after another."""
    if len(plans) == 1:
        return plans[0]
    joined = Plan.cat(plans)
    starts = torch.arange(len(plans)).repeat_interleave(torch.tensor([len(plan.source) for plan in plans]))
    return replace(joined, source=joined.source + size * starts)


def sequence(*steps: Step) -> Proposal:
    """Give every row these steps in order: `sequence(Step("rotate", -1, 1), Step("horizontal_flip", probability=0.5))`."""
    _check_steps("sequence", steps)
    return propose(steps, len(steps), _pick_in_order)


def _check_steps(function: str, steps: Sequence[object]) -> None:
    """Refuse names and lists where steps are expected, and show the call that was meant."""
    for step in steps:
        if isinstance(step, Step):
            continue
        reason = f"{function} takes steps, got {step!r:.80}"
        if isinstance(step, str):
            find(step)  # a name that nobody knows is another error
            raise ValueError(f"{reason}: write {function}(Step({step!r})), or Step({step!r}, low, high, probability=0.5)")
        if isinstance(step, Sequence):
            raise ValueError(f"{reason}: write {function}(*steps), each step its own argument")
        raise ValueError(f"{reason}: write {function}(Step(name), ...)")


def any_of(options: Sequence[Step], depth: int, *, replacement: bool = True) -> Proposal:
    """Give every row `depth` of the options, each alike; without replacement they are distinct."""
    if depth < 0 or (depth > len(options) and not replacement) or (depth and not options):
        raise ValueError(f"depth must lie in [0, {len(options)}], the number of transforms to draw from, got {depth}")
    return propose(options, depth, partial(_pick_any, len(options), replacement))


def uniform(
    depth: int = 2,
    *,
    transforms: tuple[str, ...] = PAPER_16,
    probability: float = 0.5,
    replacement: bool = False,
    profile: str = "paper",
) -> Proposal:
    """Draw `depth` transforms a row, each alike, at levels uniform over the paper's range.

    Each is applied with `probability`. Drawing that probability itself from U(0, 1), as the paper's authors do,
    comes to 0.5. Without `replacement` the transforms of a row are distinct. The profile "released" has their code's ranges.
    """
    if isinstance(transforms, str):
        raise ValueError(f"transforms must be several names, got the text {shown(transforms)}")
    return any_of([over_range(name, probability, profile) for name in transforms], depth, replacement=replacement)


def over_range(name: str, probability: float = 1.0, profile: str = "paper") -> Step:
    """Return a transform at a level uniform over the paper's range, in both directions where it has two."""
    if profile not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got {shown(profile)}")
    if (profile, name) == ("released", "posterize"):
        return Step(name, 1.25, 2.0, probability, bins=4)  # 3, 2, 1 and 0 bits, alike often: a quarter goes black
    return Step(name, -1.0 if find(name).signed else 0.0, 1.0, probability)


def blend(*steps: Step) -> Proposal:
    """Give every row the even blend of its image under each of these steps alone: the paper's additive composition.

    The first is applied to the row itself; the others to helper rows of the same image, which the row then blends in one after
    the other, in bytes. Two are `Image.blend(first, second, 0.5)`.
    """
    _check_steps("blend", steps)
    if len(steps) < 2 or any(find(step.name).mixes for step in steps):
        raise ValueError(f"a blend is of 2 or more transforms that keep labels, got {[step.name for step in steps]}")
    return partial(_draw_blend, [sequence(step) for step in steps])


def _draw_blend(alone: Sequence[Proposal], size: int, *, rng: np.random.Generator, candidates: int = 1) -> Plan:
    rows, late = size * candidates, len(alone) - 1
    plan = Plan.cat([one(size, rng=rng, candidates=candidates) for one in alone])
    helpers = torch.full((len(plan.ops), late), -1)
    helpers[:rows] = torch.arange(rows).unsqueeze(1) + rows * torch.arange(1, late + 1)
    weights = torch.zeros((len(plan.ops), late))
    weights[:rows] = 1 / torch.arange(2, late + 2)  # each its share of what is there by then
    return Plan(
        (*plan.names, "mixup"),
        torch.cat([plan.ops, torch.where(helpers >= 0, len(plan.names), -1).short()], dim=1),
        torch.cat([plan.levels, weights], dim=1),
        torch.nn.functional.pad(plan.places, (0, 0, 0, late)),
        torch.cat([plan.partners, helpers], dim=1),
        plan.source,
        torch.arange(rows),
    )


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
