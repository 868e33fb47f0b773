"""Proposals: functions of a batch size and a generator that draw a plan."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from outspan.limits import PROFILES, check_value, check_whole
from outspan.messages import shown
from outspan.plan import Plan
from outspan.policies.sampler import propose
from outspan.policies.steps import Proposal, Step
from outspan.transforms.table import PAPER_16, find


def sequence(*steps: Step) -> Proposal:
    """Give every row these steps in order: `sequence(Step("rotate", -1, 1), Step("horizontal_flip", probability=0.5))`."""
    _check_steps("sequence", steps)
    return propose(steps, len(steps), _pick_in_order)


def any_of(steps: Sequence[Step], depth: int, *, replacement: bool = True) -> Proposal:
    """Give every row `depth` of the steps, chosen uniformly; without replacement they are distinct."""
    if isinstance(steps, str) or not isinstance(steps, Sequence):
        raise ValueError(f"any_of takes a list of steps, got {shown(steps)}: write any_of([Step(name), ...], depth)")
    _check_steps("any_of", steps)
    check_whole("depth", depth, 0)
    if (depth > len(steps) and not replacement) or (depth and not steps):
        names = ", ".join(dict.fromkeys(step.name for step in steps)) or "none"
        problem = f"depth must lie in [0, {len(steps)}], the number of transforms to draw from ({names}), got {shown(depth)}"
        raise ValueError(f"{problem}: set depth={len(steps)}, or add transforms")
    check_value("depth", int(depth))
    return propose(tuple(steps), int(depth), partial(_pick_any, len(steps), replacement))


def one_pair(steps: Sequence[Step]) -> Proposal:
    """Give every row one pair of adjacent steps (the first two, the next two, ...), chosen uniformly."""
    return propose(steps, 2, partial(pick_pair, len(steps) // 2))


def parse_pairs(pairs: Sequence[str]) -> list[tuple[str, float, int]]:
    """Return the names, probabilities and magnitudes of published pairs, one after another.

    >>> parse_pairs(["rotate 0.7 2, equalize 0.3"])
    [('rotate', 0.7, 2), ('equalize', 0.3, 0)]
    """
    words = [(*step.split(), "0") for pair in pairs for step in pair.split(", ")]
    return [(name, float(probability), int(magnitude)) for name, probability, magnitude, *_ in words]


def uniform(
    depth: int = 2,
    *,
    transforms: tuple[str, ...] = PAPER_16,
    probability: float = 0.5,
    replacement: bool = False,
    profile: str = "paper",
) -> Proposal:
    """Give every row `depth` transforms, chosen uniformly, at levels uniform over the paper's range.

    Each is applied with `probability`. The paper's authors draw this probability from U(0, 1), which is equivalent to 0.5.
    Without `replacement` the transforms of a row are distinct. The profile "released" uses the ranges of the authors' code.
    """
    _check_names(transforms)
    return any_of([over_range(name, probability, profile) for name in transforms], depth, replacement=replacement)


def natural(depth: int = 2, *, transforms: tuple[str, ...] = PAPER_16) -> Proposal:
    """Give every row `depth` transforms, chosen uniformly, at levels uniform over half of the paper's range.

    This is the proposal of the policy "auto". Transforms that mix samples, and `invert`, are left out if there are others:
    they need more training than a short run has.
    """
    steps = [over_range(name) for name in natural_names(transforms)]
    steps = [replace(step, low=step.low / 2, high=step.high / 2) for step in steps]
    return any_of(steps, depth, replacement=False)


def natural_names(transforms: tuple[str, ...]) -> tuple[str, ...]:
    """Return the transforms that `natural` draws from."""
    _check_names(transforms)
    return tuple(name for name in transforms if not find(name).mixes and name != "invert") or transforms


def over_range(name: str, probability: float = 1.0, profile: str = "paper") -> Step:
    """Return the step of a transform at a level uniform over the paper's range, of either sign if it has two directions."""
    if profile not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got {shown(profile)}")
    if (profile, name) == ("released", "posterize"):
        return Step(name, 1.25, 2.0, probability, bins=4)  # 3, 2, 1 or 0 bits: a quarter of the images becomes black
    return Step(name, -1.0 if find(name).signed else 0.0, 1.0, probability)


def blend(*steps: Step) -> Proposal:
    """Give every row the mean of its sample under each of these steps alone: the paper's additive composition.

    The row itself gets the first step, and helper rows of the same sample get the others. The row blends in the helper rows
    one after another, in bytes. With two steps this is `Image.blend(first, second, 0.5)`.
    """
    _check_steps("blend", steps)
    if len(steps) < 2 or any(find(step.name).mixes for step in steps):
        raise ValueError(f"blend needs 2 or more transforms that keep labels, got {[step.name for step in steps]}")
    return partial(_draw_blend, [sequence(step) for step in steps])


def _draw_blend(proposals: Sequence[Proposal], size: int, *, rng: np.random.Generator, candidates: int = 1) -> Plan:
    rows, late = size * candidates, len(proposals) - 1
    plan = Plan.cat([proposal(size, rng=rng, candidates=candidates) for proposal in proposals])
    helpers = torch.full((len(plan.ops), late), -1)
    helpers[:rows] = torch.arange(rows).unsqueeze(1) + rows * torch.arange(1, late + 1)
    weights = torch.zeros((len(plan.ops), late))
    weights[:rows] = 1 / torch.arange(2, late + 2)  # the k-th image enters with weight 1/k
    return Plan(
        (*plan.names, "mixup"),
        torch.cat([plan.ops, torch.where(helpers >= 0, len(plan.names), -1).short()], dim=1),
        torch.cat([plan.levels, weights], dim=1),
        torch.nn.functional.pad(plan.places, (0, 0, 0, late)),
        torch.cat([plan.partners, helpers], dim=1),
        plan.source,
        torch.arange(rows),
    )


def _check_names(transforms: Sequence[str]) -> None:
    """Refuse what is not a sequence of names. A set is refused because its order differs from process to process."""
    is_sequence = isinstance(transforms, Sequence) and not isinstance(transforms, str)
    if not is_sequence or not all(isinstance(name, str) for name in transforms):
        raise ValueError(f"transforms must be a tuple of names such as ('rotate', 'invert'), got {shown(transforms)}")


def _check_steps(function: str, steps: Sequence[object]) -> None:
    """Refuse names and lists where steps are expected, and show the correct call."""
    for step in steps:
        if isinstance(step, Step):
            continue
        reason = f"{function} takes steps, got {shown(step)}"
        if isinstance(step, str):
            find(step)  # an unknown name is a different error
        if function == "any_of":
            raise ValueError(f"{reason}: write any_of([Step(name), ...], depth)")
        if isinstance(step, str):
            raise ValueError(f"{reason}: write {function}(Step({step!r})), or Step({step!r}, low, high, probability=0.5)")
        if isinstance(step, Sequence):
            raise ValueError(f"{reason}: write {function}(*steps), each step its own argument")
        raise ValueError(f"{reason}: write {function}(Step(name), ...)")


# Here and in the other modules, `pick` is a module function or a partial of one: closures cannot be pickled, and policies are
# pickled for other processes.
def _pick_in_order(bits: np.ndarray, _: Sequence[np.random.Generator]) -> np.ndarray:
    return np.broadcast_to(np.arange(bits.shape[1]), bits.shape)


def pick_pair(pairs: int, bits: np.ndarray, _: Sequence[np.random.Generator]) -> np.ndarray:
    """Turn the first 20 random bits of each row into one of `pairs` pairs of adjacent steps."""
    return 2 * (bits[:, :1] * np.uint64(pairs) >> np.uint64(20)).astype(np.intp) + np.arange(2)


def _pick_any(count: int, replacement: bool, bits: np.ndarray, _: Sequence[np.random.Generator]) -> np.ndarray:
    """Turn the 20 random bits of each entry into an index below `count`. Without replacement the indices of a row differ."""
    depth = bits.shape[1]
    choices = np.array([count if replacement else count - t for t in range(depth)], dtype=np.uint64)
    chosen = (bits * choices >> np.uint64(20)).astype(np.intp)
    for t in range(1, 0 if replacement else depth):
        # Index k is the k-th step that is not taken yet: skip the taken steps up to it, in ascending order.
        for taken in np.sort(chosen[:, :t], axis=1).T if t > 1 else chosen[:, :1].T:
            chosen[:, t] += chosen[:, t] >= taken
    return chosen
