"""Perceptrons as one batched model: each member is what `train` makes of its recipe, up to rounding."""

import math
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from outspan import rng
from outspan.config import Recipe, differing, with_new_names
from outspan.data.sets import Data, is_textual, load_for
from outspan.plan import Plan
from outspan.policies.plain import Plain
from outspan.policies.sampler import merge
from outspan.policies.table import augmentation_of, build_policy, find_policy
from outspan.shapes import Float32, Normalized, Num
from outspan.training import OnStep, Progress, Stopped, checkpoint
from outspan.training.graphs import Learner
from outspan.training.metadata import ENSEMBLE
from outspan.training.state import initial, lr_at, make_optimizer
from outspan.transforms.labels import mix_labels
from outspan.transforms.normalize import Normalize

MEMBER_KEYS = ("policy", "seed", "transforms", "depth", "probability", "magnitude", "defaults", "same_class")  # may differ
_VALUES = 100_000_000  # of a step's images, over all members, that are held as numbers
_READ_EVERY = 50  # steps, where reading a loss would wait for the device


class Ensemble(nn.Module):
    """Perceptrons of one shape as one model: every parameter has a leading axis of members."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        layers = [[layer for layer in member.modules() if isinstance(layer, nn.Linear)] for member in members]
        together = list(zip(*layers, strict=True))
        # [members, in, out], the other way round than a Linear's: so that gradients come out as the weights lie
        weights = [torch.stack([layer.weight.detach().T for layer in alike]) for alike in together]
        self.weights = nn.ParameterList([nn.Parameter(weight.contiguous()) for weight in weights])
        self.biases = nn.ParameterList(
            [nn.Parameter(torch.stack([each.bias.detach()[None] for each in alike])) for alike in together]
        )

    def each(self, inputs: Num[Tensor, "members B pixels"]) -> Num[Tensor, "members B classes"]:
        """Return the logits of each member for its own images."""
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            inputs = torch.baddbmm(bias, inputs.relu() if i else inputs, weight)
        return inputs

    def forward(self, images: Normalized) -> Num[Tensor, "B members classes"]:
        """Return the logits of all members for the same images."""
        return self.each(images.flatten(1).expand(len(self.weights[0]), -1, -1)).transpose(0, 1)

    def member(self, index: int) -> list[tuple[Tensor, Tensor]]:
        """Return the weight and bias of each layer of one member, as a Linear has them."""
        pairs = zip(self.weights, self.biases, strict=True)
        return [(weight[index].detach().T, bias[index, 0].detach()) for weight, bias in pairs]


def is_batchable(recipe: Recipe) -> bool:
    """Return whether a recipe can be a member: a perceptron, a policy that does not ask the model, images all alike in size."""
    perceptron = re.fullmatch("mlp(-[1-9][0-9]*)?", recipe.model) is not None
    asks = find_policy(recipe.policy).uses_model
    return perceptron and not asks and not recipe.validation and recipe.crop == "centre" and not is_textual(recipe.data)


def members_at_once(recipe: Recipe, shape: tuple[int, int, int]) -> int:
    """Return how many members a model may have for a step's images to fit in memory."""
    return max(1, _VALUES // (recipe.batch * math.prod(shape)))


def train_together(
    members: Sequence[Recipe],
    *,
    data: Data | None = None,
    device: str | torch.device = "cpu",
    shared: int | None = None,
    out: Path | None = None,
    save_every: float = 30.0,
    on_step: OnStep | None = None,
) -> tuple[Ensemble, Normalize]:
    """Train several recipes of a perceptron at once, and return the models and the last step before them.

    The recipes differ in their seeds and in what they do to images alone. Each member has its own initialisation, order of
    images and plans. With `shared` all see the order and the draws of that seed: faster, but then those of one augmentation
    differ by their initialisation alone. With `out` it saves itself there and goes on from there, as `train` does; where
    `on_step` returns True it stops.
    """
    _check_members(members)
    run = _Together(list(members), data or load_for(members[0]), torch.device(device), shared, out)
    run.go(on_step, save_every)
    return run.model, run.last


def _check_members(members: Sequence[Recipe]) -> None:
    if not members:
        raise ValueError("there is no recipe to train")
    for recipe in members:
        if not is_batchable(recipe):
            kind = f"{recipe.model} with the policy {recipe.policy} and {recipe.validation} validation images"
            raise ValueError(f"only an mlp whose policy does not ask it, without validation, is trained so, got {kind}")
        for key, (one, other) in differing(members[0], recipe).items():
            if key not in MEMBER_KEYS:
                raise ValueError(f"recipes trained at once must agree in {key}, got {one!r} and {other!r}")


class _Group(NamedTuple):
    """Members whose plans are drawn as one: of one augmentation, or of several alike."""

    policy: Plain
    seeds: list[int]  # of the draws
    blocks: list[int]  # which part of a step's images each draw is for


def _merged(groups: list[_Group]) -> list[_Group]:
    """Return as few groups as can be, in the same order: neighbours whose plans can be drawn as one are one."""
    found: list[list[_Group]] = []
    for group in groups:
        if not found or _merge([*found[-1], group]) is None:
            found.append([])
        found[-1].append(group)
    return [merged for some in found if (merged := _merge(some)) is not None]


def _merge(groups: list[_Group]) -> _Group | None:
    policies = [group.policy for group in groups]
    if len(groups) == 1:
        return groups[0]
    if len({(policy.defaults, policy.same_class) for policy in policies}) > 1:
        return None
    propose = merge([policy.propose for policy in policies], [len(group.seeds) for group in groups])
    if propose is None:
        return None
    seeds, blocks = (
        [number for part in parts for number in part] for parts in zip(*(group[1:] for group in groups), strict=True)
    )
    return _Group(replace(policies[0], propose=propose), seeds, blocks)


class _Together:
    """An ensemble in training."""

    def __init__(self, members: list[Recipe], data: Data, device: torch.device, shared: int | None, out: Path | None) -> None:
        self.members, self.recipe, self.device, self.out = members, members[0], device, out
        self.classes, self.split, self.labels = len(data.classes), data.train.to(device), data.train.labels
        on_gpu = device.type == "cuda"
        mean, std = data.train.statistics()
        self.last = Normalize(mean, std, torch.bfloat16 if on_gpu else torch.float32)
        self.model = Ensemble([initial(recipe, data.train.shape, self.classes) for recipe in members]).to(device)
        self.optimizer = make_optimizer(self.recipe, [*self.model.weights], [*self.model.biases], on_gpu=on_gpu)
        self.learn = Learner(self.model, self.recipe.label_smoothing, graphs=on_gpu, forward=self.model.each)
        drawn = [recipe if shared is None else replace(recipe, seed=shared) for recipe in members]
        self.orders = list(dict.fromkeys(recipe.seed for recipe in drawn))
        self.groups: list[_Group] = []
        reads: list[int] = []  # of each member, which of the drawn batches it trains on
        for kind, alike in groupby(drawn, lambda recipe: replace(recipe, seed=0)):
            first, seeds = sum(len(group.seeds) for group in self.groups), [recipe.seed for recipe in alike]
            own = list(dict.fromkeys(seeds))
            reads += [first + own.index(seed) for seed in seeds]
            policy = build_policy(kind, self.model, data, self.last)
            assert isinstance(policy, Plain), "a policy that asks the model is not batchable"
            self.groups.append(_Group(policy, own, [self.orders.index(seed) for seed in own]))
        self.groups = _merged(self.groups)
        self.drawn, self.reads = len(set(reads)), torch.tensor(reads, device=device)
        self.epoch_steps = -(-len(self.split) // self.recipe.batch)
        self.steps = self.recipe.epochs * self.epoch_steps
        self.step = 0
        if out is not None:
            self._restore(out)

    def go(self, on_step: OnStep | None, save_every: float) -> None:
        """Train to the end, or until `on_step` asks to stop."""
        recipe, losses, said, saved = self.recipe, torch.empty(0), math.nan, time.perf_counter()
        every = 1 if self.device.type == "cpu" else _READ_EVERY
        while self.step < self.steps:
            epoch, at = divmod(self.step, self.epoch_steps)
            orders = [rng.generator(seed, "order", epoch).permutation(len(self.split)) for seed in self.orders]
            parts = zip(*(torch.from_numpy(order).split(recipe.batch) for order in orders), strict=True)
            rows = [torch.cat(part) for part in parts][at:]
            for some, (images, labels) in zip(rows, self.split.batches(rows, self.device), strict=True):
                losses = self._step(images, labels, self.labels[some])
                self.step += 1
                if self.step % every == 0 or self.step == self.steps:
                    said = self._read(losses, epoch)
                samples = len(self.members) * len(labels) // len(self.orders)
                progress = Progress(self.step, self.steps, epoch, recipe.epochs, said, samples)
                stop = on_step is not None and bool(on_step(progress)) and self.step < self.steps
                if self.out is not None and (stop or time.perf_counter() - saved >= save_every) and self.step < self.steps:
                    self._read(losses, epoch)
                    self._save(self.out)
                    saved = time.perf_counter()
                if stop:
                    raise Stopped(
                        f"stopped at step {self.step} of {self.steps}, training {len(self.members)} models at once; "
                        "run the same command again to resume"
                    )

    def _step(self, images: Tensor, labels: Tensor, on_host: Tensor) -> Float32[Tensor, " members"]:
        size = len(labels) // len(self.orders)
        plan = self._draw(on_host, size)
        height, width = images.shape[-2:]
        targets = mix_labels(labels, plan, self.classes, (height, width)).view(self.drawn, size, -1)
        inputs = self.last.execute(images, plan).view(self.drawn, size, -1)
        if self.drawn == 1:
            inputs, targets = (some.expand(len(self.members), -1, -1) for some in (inputs, targets))
        elif self.drawn < len(self.members):
            inputs, targets = inputs[self.reads], targets[self.reads]
        for group in self.optimizer.param_groups:
            group["lr"] = lr_at(self.recipe, self.step, self.steps)
        losses = self.learn(inputs, targets).mean(1)
        if self.recipe.clip:
            self._clip()
        self.optimizer.step()
        return losses

    def _draw(self, labels: Tensor, size: int) -> Plan:
        """Return one plan for everything that is drawn in this step; `labels` are on the host."""
        plans = []
        for policy, seeds, blocks in self.groups:
            own = labels.view(len(self.orders), size)[torch.tensor(blocks)].flatten()
            plan = policy.draw_several(own, seeds=seeds, step=self.step)
            if blocks != list(range(len(blocks))):  # batches that share their images
                moved = size * (torch.tensor(blocks) - torch.arange(len(blocks)))
                plain = len(plan.source) == len(own)  # then the rows of a batch are its images, in order
                plan = replace(
                    plan, source=plan.source + (moved.repeat_interleave(size) if plain else moved[plan.source // size])
                )
            plans.append(plan)
        return plans[0] if len(plans) == 1 else Plan.cat(plans)

    def _clip(self) -> None:
        """Bound the norm of each member's own gradient, as `clip_grad_norm_` does a model's."""
        gradients = [cast(Tensor, parameter.grad) for parameter in self.model.parameters()]
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
        shrink = (self.recipe.clip / (norms + 1e-6)).clamp(max=1).view(-1, 1, 1)
        for gradient in gradients:
            gradient *= shrink

    def _read(self, losses: Tensor, epoch: int) -> float:
        """Return the mean loss; one that is not finite is refused, with its member."""
        for recipe, loss in zip(self.members, losses.tolist(), strict=True):
            if not math.isfinite(loss):
                at = f"at step {self.step - 1}, epoch {epoch}"
                raise ValueError(
                    f"{augmentation_of(recipe)}, seed {recipe.seed}: the loss is {loss} {at}: try a smaller lr, or leave it out"
                )
        return float(losses.mean())

    def _save(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        tensors = checkpoint.pack(self.model, self.optimizer)
        checkpoint.save(out, self.step, tensors, {"members": [asdict(recipe) for recipe in self.members]})

    def _restore(self, out: Path) -> None:
        """Go on where the folder stands."""
        found = checkpoint.load(out, ENSEMBLE)
        if found is None:
            return
        if [asdict(Recipe()) | with_new_names(kept) for kept in found[1]["members"]] != [
            asdict(recipe) for recipe in self.members
        ]:
            raise ValueError(f"{out}: a run of other recipes")
        try:
            checkpoint.unpack(found[0], self.model, self.optimizer)
        except ValueError as error:
            raise ValueError(f"{out}: {error}") from None
        self.step = found[1]["step"]
