"""Draw the plan of a training step: the proposal of the policy, then the default transforms."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from outspan import rng
from outspan.messages import shown
from outspan.plan import Plan
from outspan.policies.proposals import sequence
from outspan.policies.published import DEFAULTS
from outspan.policies.ranks import own_plan, within_ranks
from outspan.policies.sampler import draw_together
from outspan.policies.steps import Proposal, Schedule
from outspan.policies.strength import scale

_NOTHING = sequence()
FIRST = range(1)  # the first attempt at the draw of a step


def find_defaults(defaults: str | Proposal) -> Proposal:
    """Return the default transforms by name; a proposal is returned as it is."""
    if not isinstance(defaults, str) and callable(defaults):
        return defaults
    if not isinstance(defaults, str) or defaults not in DEFAULTS:
        raise ValueError(f"defaults must be a proposal or one of {', '.join(DEFAULTS)}, got {shown(defaults)}")
    return DEFAULTS[defaults]


def check_proposal(propose: object, name: str = "propose") -> None:
    """Refuse what is not a proposal or a schedule of proposals, such as a name, or `natural` instead of `natural()`."""
    for proposal in propose.proposals if isinstance(propose, Schedule) else (propose,):
        problem = f"{name} must be a proposal such as outspan.randaugment(2, 9), got {shown(proposal)}"
        if not callable(proposal):
            raise ValueError(problem)
        try:
            arguments = inspect.signature(proposal)
        except ValueError:  # some functions that are not written in Python have no signature
            continue
        try:
            arguments.bind(0, rng=None, candidates=1)
        except TypeError:
            how = "if it returns a proposal, call it, as in outspan.natural()"
            raise ValueError(f"{problem}, which does not take (size, *, rng, candidates): {how}") from None


def draw(
    propose: Proposal | Schedule,
    defaults: str | Proposal,
    size: int,
    *,
    seed: int,
    step: int,
    candidates: int = 1,
    strength: float = 1.0,
    weights: Mapping[str, float] | None = None,
    confidence: Tensor | None = None,
    ranks: tuple[int, int] = (0, 1),
    attempts: range = FIRST,
) -> Plan:
    """Draw the plan of a step: the proposal's transforms, scaled as `scale` does, then the defaults.

    `ranks` are the rank of this process and the number of ranks, each with `size` samples. The plan of all ranks is drawn, and
    that of this rank is returned. Each attempt at a step has its own draws. The plans of several `attempts` are returned as one
    plan, one after another.
    """
    world = ranks[1]
    if world > 1:
        propose, defaults = within_ranks(propose, world), within_ranks(find_defaults(defaults), world)
    if confidence is not None:  # the rows of other ranks are not returned
        confidence = confidence.repeat(world * len(attempts))
    options = {"candidates": candidates, "strength": strength, "weights": weights, "confidence": confidence}
    plan = draw_several(propose, defaults, size * world, seeds=[seed], step=step, attempts=attempts, **options)
    if len(attempts) > 1:
        plan = replace(plan, source=plan.source % (size * world))  # all read the same samples
    return _own_plan(plan, size, ranks, len(attempts))


def _own_plan(plan: Plan, size: int, ranks: tuple[int, int], count: int) -> Plan:
    """Return the part of this rank, `size` samples each, of `count` plans of all ranks, one after another."""
    rank, world = ranks
    if world == 1:
        return plan
    rows, each = range(rank * size, (rank + 1) * size), len(plan) // count
    return Plan.cat([own_plan(plan[i * each : (i + 1) * each], rows, size * world) for i in range(count)])


def draw_several(
    propose: Proposal | Schedule,
    defaults: str | Proposal,
    size: int,
    *,
    seeds: Sequence[int],
    step: int,
    candidates: int = 1,
    strength: float = 1.0,
    weights: Mapping[str, float] | None = None,
    confidence: Tensor | None = None,
    attempts: range = FIRST,
) -> Plan:
    """Draw the plans of one step for several seeds, or for several attempts of a seed, as one plan, one after another."""
    propose = propose.at(step) if isinstance(propose, Schedule) else propose
    propose = propose if strength else _NOTHING
    addresses = [(seed, (step, attempt) if attempt else (step,)) for seed in seeds for attempt in attempts]
    plan = draw_together(propose, size, [rng.generator(seed, "augment", *at) for seed, at in addresses], candidates)
    if plan.ops.numel() and (strength != 1 or weights is not None or confidence is not None):
        plan = scale(plan, strength, [rng.generator(seed, "strength", *at) for seed, at in addresses], weights, confidence)
    return add_defaults(plan, defaults, size, seeds=[seed for seed, _ in addresses], step=step, candidates=candidates)


def add_defaults(
    plan: Plan,
    defaults: str | Proposal,
    size: int,
    *,
    seeds: Sequence[int],
    step: int,
    candidates: int = 1,
    ranks: tuple[int, int] = (0, 1),
) -> Plan:
    """Return a plan for batches of `size` samples, one per seed, followed by the default transforms; `ranks` as in `draw`.

    Batches of the same seed, which are attempts at a step, get the same default transforms.
    """
    if defaults == "none":
        return plan
    generators, world = [rng.generator(seed, "defaults", step) for seed in seeds], ranks[1]
    after = draw_together(within_ranks(find_defaults(defaults), world), size * world, generators, candidates)
    after = _own_plan(after, size, ranks, len(seeds))
    return plan.then(after) if after.ops.numel() else plan


def check_addition(name: str, proposal: Proposal | Schedule | None) -> None:
    """Refuse what cannot follow the transforms of another proposal. None is allowed."""
    if proposal is None:
        return
    check_proposal(proposal, name)
    if isinstance(proposal, Schedule) or len(proposal(1, rng=rng.generator(0, "names")).ops) != 1:
        kind = "a schedule" if isinstance(proposal, Schedule) else "one that mixes versions of an image, such as augmix"
        raise ValueError(f"{name} must be a proposal with one row per sample, got {kind}: pass it as propose")


def names_of(propose: Proposal | None) -> list[str]:
    """Return the transforms of a proposal."""
    return [] if propose is None else [*propose(1, rng=rng.generator(0, "names")).names]
