"""The plans of an ensemble: members with the same seed and augmentation share one draw."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from outspan.config import Recipe
from outspan.plan import Plan
from outspan.policies.plain import Plain
from outspan.policies.sampler import merge
from outspan.shapes import Int64


class Group(NamedTuple):
    """Members whose plans are drawn together: they have the same augmentation, or augmentations that can be merged."""

    policy: Plain
    seeds: list[int]  # one plan is drawn per seed
    blocks: list[int]  # for each seed, the index of its block, which is that of its order in `Draws.orders`


@dataclass(frozen=True, eq=False)
class Draws:
    """What is drawn in a step: one batch of images per order, one plan per seed and augmentation.

    An order is a random permutation of the training images, and its block is its batch of images in a step. A drawn batch is
    a block augmented by one plan; members with the same seed and augmentation share it.
    """

    groups: Sequence[Group]
    orders: Sequence[int]  # the seed of each order
    members: Int64[Tensor, " members"]  # for each member, the index of its drawn batch
    count: int  # number of drawn batches

    def draw(self, labels: Int64[Tensor, " rows"], step: int) -> Plan:
        """Return one plan for all batches of a step; `labels` are those of all orders, on the host."""
        size = len(labels) // len(self.orders)
        plans = []
        for policy, seeds, blocks in self.groups:
            block_labels = labels.view(len(self.orders), size)[torch.tensor(blocks)].flatten()
            plan = policy.draw_several(block_labels, seeds=seeds, step=step)
            if blocks != list(range(len(blocks))):  # several batches read the same images
                offset = size * (torch.tensor(blocks) - torch.arange(len(blocks)))
                in_order = len(plan.source) == len(block_labels)  # then row i of the plan reads image i
                plan = replace(
                    plan, source=plan.source + (offset.repeat_interleave(size) if in_order else offset[plan.source // size])
                )
            plans.append(plan)
        return plans[0] if len(plans) == 1 else Plan.cat(plans)

    def spread(self, batches: Tensor) -> Tensor:
        """Return the batch of each member, [members, ...], from the drawn batches, [count, ...]."""
        if self.count == 1:
            return batches.expand(len(self.members), -1, -1)
        return batches[self.members] if self.count < len(self.members) else batches


def build_draws(
    members: Sequence[Recipe], build: Callable[[Recipe], Plain], device: torch.device, shared: int | None = None
) -> Draws:
    """Return what the members draw; with `shared`, all members use the draws of that seed."""
    recipes = [recipe if shared is None else replace(recipe, seed=shared) for recipe in members]
    orders = list(dict.fromkeys(recipe.seed for recipe in recipes))
    groups: list[Group] = []
    batch_indices: list[int] = []
    for augmentation, alike in groupby(recipes, lambda recipe: replace(recipe, seed=0)):
        first, seeds = sum(len(group.seeds) for group in groups), [recipe.seed for recipe in alike]
        distinct = list(dict.fromkeys(seeds))
        batch_indices += [first + distinct.index(seed) for seed in seeds]
        groups.append(Group(build(augmentation), distinct, [orders.index(seed) for seed in distinct]))
    return Draws(_merge_neighbours(groups), orders, torch.tensor(batch_indices, device=device), len(set(batch_indices)))


def _merge_neighbours(groups: Sequence[Group]) -> list[Group]:
    """Merge neighbouring groups where possible. The order stays the same."""
    merged: list[Group] = []
    parts: list[Group] = []  # the groups that the last merged group consists of
    for group in groups:
        joined = _merge([*parts, group]) if parts else None
        if joined is None:
            parts = [group]
            merged.append(group)
        else:
            parts.append(group)
            merged[-1] = joined
    return merged


def _merge(groups: Sequence[Group]) -> Group | None:
    """Return one group that draws the same plans as these groups, or None if they cannot be merged."""
    policies = [group.policy for group in groups]
    if len({(policy.defaults, policy.same_class) for policy in policies}) > 1:
        return None
    propose = merge([policy.propose for policy in policies], [len(group.seeds) for group in groups])
    if propose is None:
        return None
    seeds = [seed for group in groups for seed in group.seeds]
    blocks = [block for group in groups for block in group.blocks]
    return Group(replace(policies[0], propose=propose), seeds, blocks)
