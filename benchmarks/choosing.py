"""Compare ways of choosing augmentations on CIFAR-10 at equal time: one process, one compiled model, many short runs.

    PYTHONPATH=src python3 benchmarks/choosing.py --variants random,proportional4 --time-of random:111 --result choosing.json
    PYTHONPATH=src python3 benchmarks/choosing.py --images 5000 --epochs 800 --processes 5 --variants random,amount2
    python benchmarks/choosing.py --smoke                                        # every variant, tiny, on the CPU

All variants share the data, the initial weights of a seed, the order of the images and the schedule. Weights are reset in
place, so that nothing is compiled or recorded twice. Every run also keeps an average of the weights (EMA). Choose settings by
the validation accuracy, which is measured on train images that are held out; never by the test accuracy.

Several processes at once (`--processes`) finish more runs in the same time where the host sets the pace, best under CUDA MPS.
Then step times mean nothing, so that runs are compared at equal steps.
"""

import argparse
import copy
import itertools
import json
import statistics
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine, wait
from torch import Tensor, multiprocessing, nn

from outspan import rng
from outspan.config import Recipe
from outspan.data.preprocess import make_preprocess
from outspan.data.sets import hold_out, load
from outspan.devices import to_device
from outspan.models.evaluating import evaluating
from outspan.plan import Plan
from outspan.policies.auto import Auto
from outspan.policies.batch import Batch
from outspan.policies.drawing import draw
from outspan.policies.hard_samples import HardSamples
from outspan.policies.losses import excess_loss, soft_cross_entropy
from outspan.policies.plain import Plain
from outspan.policies.proposals import Proposal, Step, any_of, natural, natural_names, over_range, sequence
from outspan.policies.published import randaugment, trivialaugment
from outspan.policies.table import parse_transforms
from outspan.policies.targets import make_targets
from outspan.policies.uncertain import Uncertain, choose
from outspan.training.graphs import GraphModel
from outspan.training.logits import accuracy, compute_logits
from outspan.training.setup import use_algorithms
from outspan.training.state import Group, State, initial_model, make_optimizer
from outspan.training.step import Learner, lr_at, take_step
from outspan.transforms.normalize import Normalize
from outspan.transforms.table import PAPER_16, find

DEFAULTS = "cifar-cutout"  # applied after every policy
CLASSES = 10
DECAY = 0.999  # of the average of the weights
WINDOW = 50  # steps between two looks at the clock and at the loss
WARM, TIMED = 100, 400  # steps that measure a variant's step time: the first compile and record
TIMED_WINDOW = 10  # the median over windows of so many steps is a phase's step time
TRACES = 20  # points of a run at which the trace is written
WIDEST = 1.5  # beyond, posterize keeps no bit of some images
SLOTS = 4  # transforms of an image at most, where their number is set by `amount`
LAG = 8  # steps until the host reads a loss, so that it need not wait for the device
SMOOTHING = 1 / 50  # of the fit that moves the strength, per step
PACE = 10  # times that the strength could cross its whole range in one run, at full drive
DRIVE = 0.1  # distance from the target, as a probability, from which on the drive is full
LOOK = 50  # steps between two looks at the images that are held out
UNSEEN = 1000  # held-out images that are looked at
MIN_SECONDS = 45  # seconds that must be left to try a variant
Policy = Callable[..., Batch]


@dataclass(frozen=True)
class Variant:
    """One way to augment and choose. Any field can be changed by name on the command line: `max4+finish=0.2`."""

    base: str = "random"  # or "randaugment", "trivialaugment"
    transforms: str = "paper16"
    depth: int = 2
    strength: float = 1.0  # below 1 scales levels and probabilities; above 1 levels alone, up to each transform's limit
    amount: float = 0.0  # expected number of transforms per image, at most SLOTS; 0: depth transforms, each with p 0.5
    cutmix: float = 0.0  # probability of CutMix after the transforms
    finish: float = 0.0  # last fraction of the steps, with the defaults alone
    candidates: int = 1
    select: str = "proportional"  # or "max"
    score_every: int = 1  # between, one candidate is drawn plainly
    start: float = 0.0  # choose only in this part of the run
    stop: float = 1.0
    part: float = 1.0  # fraction of the batch whose candidates are scored; the rest is drawn plainly
    proxy: str = ""  # a small model that learns along and scores; empty: the main model scores
    proxy_every: int = 1  # the proxy learns from every k-th batch
    reference: bool = False  # subtract the loss under the average of the scoring model's weights
    pool: int = 0  # rank all rows together: of each step's pool x batch rows, train on one batch
    draws: int = 1  # draws of each image in a batch of draws x fewer images, none of them scored
    auto: str = ""  # the amount moves while training: "fit", "gap", "image", "confidence" or "ramp" (see Controller)
    target: float = 0.7  # "fit" and "image": of the probability of the true label, on augmented images
    slack: float = 1.0  # "gap": augmented images may be so many times as hard as unseen ones
    hold: float = 0.0  # "gap": fraction of the train images that are held out, and trained on after `release`
    release: float = 0.8
    cap: float = 4.0  # the largest amount
    widen: float = 0.0  # an amount of 1 + a widens the levels by a x widen, up to WIDEST
    skip: float = 0.0  # of the images whose stored loss is below the mean, the fraction that a pass over the data leaves out
    skip_stop: float = 0.875  # leave out images only before this part of the run
    rescale: bool = False  # weight the easy images that remain, so that the gradient keeps its mean
    memory: float = 0.0  # of the stored losses
    proposal: str = ""  # "natural": the proposal of the policy auto; "natural-wide": the same at strength 2
    policy: str = ""  # "auto": the policy of the library
    hard: float = 0.0  # `skip` of outspan.HardSamples: as `skip` above, with its guard against wrong labels
    norm: bool = False  # score by the norm of the loss's gradient with respect to the logits
    confident: bool = False  # with `hard`: the stored loss of an image sets its strength
    even: str = ""  # spread over the visits of an image, instead of drawn: "flip", or "all" of flip, crop and cutout


SMALL = "wide_resnet-16-1"
NO_MIXUP = ",".join(name for name in parse_transforms("paper16") if name != "mixup")
VARIANTS: dict[str, Variant] = {
    "none": Variant(depth=0),
    "random": Variant(),
    "strength0.5": Variant(strength=0.5),
    "strength0.75": Variant(strength=0.75),
    "depth3": Variant(depth=3),
    "depth4": Variant(depth=4),
    "amount1": Variant(amount=1),  # as random, drawn as up to 4 transforms
    "amount2": Variant(amount=2),
    "amount3": Variant(amount=3),
    "strength1.5": Variant(strength=1.5),
    "cutmix": Variant(cutmix=0.5),
    "strong": Variant(strength=1.5, cutmix=0.5),
    "auto-fit": Variant(auto="fit"),
    "auto-gap": Variant(auto="gap", hold=0.05),
    "auto-image": Variant(auto="image"),
    "auto-confidence": Variant(auto="confidence", cap=2),
    "auto-ramp": Variant(auto="ramp"),
    "nomixup": Variant(transforms=NO_MIXUP),
    "randaugment": Variant(base="randaugment"),
    "trivialaugment": Variant(base="trivialaugment"),
    "finish0.1": Variant(finish=0.1),
    "finish0.2": Variant(finish=0.2),
    "strength0.5-finish0.2": Variant(strength=0.5, finish=0.2),
    "proportional4": Variant(candidates=4),
    "proportional2": Variant(candidates=2),
    "max4": Variant(candidates=4, select="max"),
    "proportional4-nomixup": Variant(candidates=4, transforms=NO_MIXUP),
    "proportional4-finish0.2": Variant(candidates=4, finish=0.2),
    "proxy": Variant(candidates=4, proxy=SMALL),
    "proxy-every4": Variant(candidates=4, proxy=SMALL, proxy_every=4),
    "proxy-max": Variant(candidates=4, proxy=SMALL, select="max"),
    "proxy16-2": Variant(candidates=4, proxy="wide_resnet-16-2"),
    "proxy10-1": Variant(candidates=4, proxy="wide_resnet-10-1"),
    "proxy10-1-every4": Variant(candidates=4, proxy="wide_resnet-10-1", proxy_every=4),
    "rho": Variant(candidates=4, proxy=SMALL, reference=True, select="max"),
    "hardest-rows": Variant(candidates=2, pool=2, proxy=SMALL, proxy_every=4, select="max"),  # 2 draws of each image
    "hardest-images": Variant(candidates=1, pool=2, proxy=SMALL, proxy_every=4, select="max"),  # 1 draw of twice the images
    "proportional-rows": Variant(candidates=2, pool=2, proxy=SMALL, proxy_every=4),
    "proportional-images": Variant(candidates=1, pool=2, proxy=SMALL, proxy_every=4),
    "part0.25": Variant(candidates=4, part=0.25),
    "part0.5": Variant(candidates=4, part=0.5),
    "every2": Variant(candidates=4, score_every=2),
    "first-half": Variant(candidates=4, stop=0.5),
    "last-half": Variant(candidates=4, start=0.5, finish=0.1),
    "draws4": Variant(draws=4),
    "skip": Variant(skip=0.5),
    "skip-rescale": Variant(skip=0.5, rescale=True),
    "natural": Variant(proposal="natural"),
    "natural-wide": Variant(proposal="natural-wide"),
    "hard": Variant(hard=0.5),
    "library-auto": Variant(policy="auto", hard=0.5),
    "norm4": Variant(candidates=4, norm=True),
    "hard-confident": Variant(hard=0.5, confident=True),
    "hard-even": Variant(hard=0.5, even="all"),
}


def find_variant(name: str) -> Variant:
    """Return a variant by name, with fields changed: "proxy+finish=0.2+strength=0.5"."""
    first, *changes = name.split("+")
    if first not in VARIANTS:
        raise ValueError(f"unknown variant {first!r} (known: {', '.join(VARIANTS)})")
    known = {field.name: type(field.default) for field in fields(Variant)}
    values = dict(change.partition("=")[::2] for change in changes)
    if wrong := values.keys() - known.keys():
        raise ValueError(f"unknown field {min(wrong)!r} in {name!r} (known: {', '.join(known)})")
    typed = {key: value == "True" if known[key] is bool else known[key](value) for key, value in values.items()}
    return replace(VARIANTS[first], **typed)


def proposal_of(variant: Variant, amount: float | None = None) -> Proposal:
    """Return what a variant draws from. An amount given here replaces its own; it also sets the levels, and CutMix beyond 1."""
    s, depth, cutmix = variant.strength, variant.depth, variant.cutmix
    published = {
        "randaugment": lambda: randaugment(3, 4),
        "trivialaugment": trivialaugment,
        "natural": natural,
        "natural-wide": lambda: any_of([over_range(name) for name in natural_names(PAPER_16)], 2, replacement=False),
    }
    if name := variant.proposal or (variant.base if variant.base in published else ""):
        propose = published[name]()
        return then(propose, sequence(Step("cutmix", 0.0, 1.0, cutmix))) if cutmix else propose
    probability = 0.5 * min(s, 1)
    if amount is not None:
        probability, depth, beyond = amount / SLOTS, SLOTS, max(amount - 1, 0.0)
        s, cutmix = min(amount, 1 + variant.widen * beyond, WIDEST), min(beyond, 1) * cutmix
    elif variant.amount:
        probability, depth = variant.amount / SLOTS, SLOTS
    steps = []
    for name in parse_transforms(variant.transforms):
        (lowest, highest), step = find(name).levels, over_range(name, probability)
        steps.append(replace(step, low=max(s * step.low, lowest), high=min(s * step.high, highest)))
    propose = any_of(steps, depth, replacement=False)
    return then(propose, sequence(Step("cutmix", 0.0, 1.0, cutmix))) if cutmix else propose


def then(first: Proposal, second: Proposal) -> Proposal:
    """Return the proposal that draws from one and then from the other."""

    def draw_both(size: int, *, rng: np.random.Generator, candidates: int = 1) -> Plan:
        return first(size, rng=rng, candidates=candidates).then(second(size, rng=rng, candidates=candidates))

    return draw_both


class Controller:
    """Moves the amount of augmentation while training; how well the model fits what it learns from decides.

    The fit of an image is exp(-(loss - entropy of its target)): the probability of its label, of 1 where labels are mixed.

    - "fit": one amount for all images. It rises while the mean fit is above the target, and falls while it is below.
    - "gap": the same, and the target comes from images that are held out: 1 - slack (1 - their mean fit).
    - "image": an amount for each image, moved by its own fit in the same way, once per epoch.
    - "confidence": an amount for each image in proportion to its last fit.
    - "ramp": rises with the run, whatever the fit.
    """

    def __init__(self, variant: Variant, size: int, steps: int, batch: int) -> None:
        self.variant, self.steps, self.target = variant, steps, variant.target
        self.visits = max(1.0, steps * batch / size)  # of each image
        self.amount, self.mean_fit = 0.0, 0.0
        self.amounts = np.zeros(size, dtype=np.float32)
        self.pending: deque[tuple[Tensor, Tensor, Any]] = deque()

    @property
    def per_image(self) -> bool:
        """Whether each image has an amount of its own."""
        return self.variant.auto in ("image", "confidence")

    @property
    def mean_amount(self) -> float:
        """The present amount, over all images."""
        return float(self.amounts.mean()) if self.per_image else self.amount

    def observe(self, step: int, rows: Tensor, fits: Tensor) -> None:
        """Take the fits of a step, read those of LAG steps ago, and move. Never depends on how fast the device is."""
        arrived = None
        if fits.is_cuda:
            fits, arrived = torch.empty(fits.shape, pin_memory=True).copy_(fits, non_blocking=True), torch.cuda.Event()
            arrived.record()
        self.pending.append((rows, fits, arrived))
        if len(self.pending) > LAG:
            rows, fits, arrived = self.pending.popleft()
            if arrived:
                arrived.synchronize()
            self._move(step, rows.numpy(), fits.numpy())

    def _move(self, step: int, rows: np.ndarray, fits: np.ndarray) -> None:
        cap, pace = self.variant.cap, PACE * self.variant.cap
        self.mean_fit += max(SMOOTHING, 1 / (step + 1)) * (float(fits.mean()) - self.mean_fit)
        if self.variant.auto == "ramp":
            self.amount = cap * step / self.steps
        elif self.variant.auto == "confidence":
            self.amounts[rows] = cap * fits
        elif self.variant.auto == "image":
            drive = np.clip((fits - self.target) / DRIVE, -1, 1)
            self.amounts[rows] = np.clip(self.amounts[rows] + pace / self.visits * drive, 0, cap)
        else:
            drive = min(max((self.mean_fit - self.target) / DRIVE, -1), 1)
            self.amount = min(max(self.amount + pace / self.steps * drive, 0), cap)

    def see_unseen(self, fit: float) -> None:
        """Set the target from the mean fit of images that are held out."""
        self.target = 1 - self.variant.slack * (1 - fit)


class Adaptive:
    """A plain policy at the controller's present amount, in steps of 1/20; one for the batch, or one for each image."""

    def __init__(self, variant: Variant, controller: Controller, seed: int, **common: Any) -> None:
        self.controller, self.seed, self.common, self.rows = controller, seed, common, np.empty(0, dtype=np.int64)
        self.at = cache(lambda twentieths: Plain(proposal_of(variant, twentieths / 20), seed=seed, **common))

    def __call__(self, images: Tensor, labels: Tensor, *, step: int) -> Batch:
        if not self.controller.per_image:
            return self.at(round(20 * self.controller.amount))(images, labels, step=step)
        propose = partial(self._thin, self.at(20 * SLOTS).propose, self.controller.amounts[self.rows], step)
        return Plain(propose, seed=self.seed, **self.common)(images, labels, step=step)

    def _thin(
        self, propose: Proposal, amounts: np.ndarray, step: int, size: int, *, rng: np.random.Generator, candidates: int = 1
    ) -> Plan:
        """Draw as many transforms as there can be, and leave each out with the probability that its row's amount says."""
        plan = propose(size, rng=rng, candidates=candidates)
        dropped = rng.random(tuple(plan.ops.shape)) >= amounts[:, None] / SLOTS
        levels = plan.levels * torch.from_numpy(np.minimum(amounts, 1))[:, None]
        return replace(plan, ops=plan.ops.masked_fill(torch.from_numpy(dropped), -1), levels=levels)


class Even:
    """A plain policy that spreads flips, and with `places` also crops and cutouts, evenly over the visits of an image."""

    def __init__(self, propose: Proposal, size: int, seed: int, *, places: bool, **common: Any) -> None:
        self.propose, self.seed, self.places, self.common = propose, seed, places, common
        self.visits = np.zeros(size, dtype=np.int64)
        self.starts = rng.generator(seed, "even").random((size, 3))
        self.rows = np.empty(0, dtype=np.int64)

    def __call__(self, images: Tensor, labels: Tensor, *, step: int, **options: Any) -> Batch:
        plan = draw(self.propose, DEFAULTS, len(images), seed=self.seed, step=step, **options)  # ends with crop, flip, cutout
        visits, starts = self.visits[self.rows, None], self.starts[self.rows]
        self.visits[self.rows] += 1
        flipped = (starts[:, 2:] < 0.5) ^ (visits % 2 == 1)
        ops, places = plan.ops.clone(), plan.places.clone()
        flip = np.int16(plan.names.index("horizontal_flip"))
        ops[:, -2] = torch.from_numpy(np.where(flipped, flip, np.int16(-1))[:, 0])
        if self.places:  # the sequence R2 of Roberts: the multiples of the inverse of the plastic number and of its square
            spread = (starts[:, :2] + visits * np.array([0.7548776662466927, 0.5698402909980532])) % 1
            places[:, -3, :2] = torch.from_numpy(spread)
            places[:, -1, :2] = torch.from_numpy((spread + 0.5) % 1)
        plan = replace(plan, ops=ops, places=places.clamp(max=1 - 2**-24))
        preprocess = self.common["preprocess"]
        return Batch(preprocess.execute(images, plan), make_targets(images, labels, plan, CLASSES), plan)


class Net:
    """A model, the average of its weights, and what learns from and scores batches with it, recorded on a GPU."""

    def __init__(
        self, recipe: Recipe, shape: tuple[int, ...], device: torch.device, *, compiled: bool, score_rows: int
    ) -> None:
        on_gpu = device.type == "cuda"
        self.recipe, self.shape, self.on_gpu = recipe, shape, on_gpu
        model = initial_model(recipe, shape, CLASSES).to(device)
        self.model = model.to(memory_format=torch.channels_last) if on_gpu else model
        self.averaged = copy.deepcopy(self.model).requires_grad_(False)
        fast, averaged = self.model, self.averaged
        if compiled:
            fast, averaged = torch.compile(self.model, dynamic=False), torch.compile(self.averaged, dynamic=False)
        self.learn = Learner(fast, 0.0, graphs=on_gpu)
        self.score, self.score_averaged = Chunked(GraphModel(fast), score_rows), Chunked(GraphModel(averaged), score_rows)
        pairs = list(zip(self.averaged.state_dict().values(), self.model.state_dict().values(), strict=True))
        self.floats = [list(tensors) for tensors in zip(*(pair for pair in pairs if pair[0].is_floating_point()), strict=True)]
        self.others = [pair for pair in pairs if not pair[0].is_floating_point()]

    def reset(self, seed: int) -> State:
        """Return to the initial weights of a seed, in place, with a new optimizer."""
        fresh = initial_model(replace(self.recipe, seed=seed), self.shape, CLASSES).state_dict()
        for target in (self.model, self.averaged):
            for name, tensor in target.state_dict().items():
                tensor.copy_(fresh[name])
        self.learn.model.train()
        weights = [p for p in self.model.parameters() if p.ndim > 1]
        others = [p for p in self.model.parameters() if p.ndim <= 1]
        return State(self.model, make_optimizer(self.recipe, [Group(weights, True), Group(others, False)], on_gpu=self.on_gpu))

    def average(self, step: int) -> None:
        """Move the averaged weights and statistics towards the present ones."""
        torch._foreach_lerp_(*self.floats, 1 - min(DECAY, (1 + step) / (10 + step)))


class Chunked(nn.Module):
    """A model that scores `rows` rows at a time, so that all numbers of candidates share one recording; 0 is all at once."""

    def __init__(self, model: nn.Module, rows: int) -> None:
        super().__init__()
        self.model, self.rows = model, rows

    def forward(self, images: Tensor) -> Tensor:
        parts = images.split(self.rows) if self.rows else [images]
        return torch.cat([self.model(part) for part in parts]) if len(parts) > 1 else self.model(images)


@dataclass(frozen=True)
class Ranked:
    """Score candidates and keep one batch of them: of each image's, or of all rows together; optionally by excess loss."""

    model: nn.Module
    reference: nn.Module | None
    propose: Proposal
    candidates: int
    keep: int  # rows
    pooled: bool
    power: float
    preprocess: Normalize
    seed: int
    norm: bool = False  # score by the norm of the gradient of the loss with respect to the logits

    def __call__(self, images: Tensor, labels: Tensor, *, step: int) -> Batch:
        plan = draw(self.propose, DEFAULTS, len(images), seed=self.seed, step=step, candidates=self.candidates)
        pixels = self.preprocess.execute(images, plan)
        targets = make_targets(images, labels, plan, CLASSES)
        score = self._losses(self.model, pixels, targets)
        if self.reference is not None:
            score = score - self._losses(self.reference, pixels, targets)
        groups = 1 if self.pooled else len(images)
        chosen = choose(score.view(groups, -1), self.keep // groups, self.power, seed=self.seed, step=step)
        return Batch(pixels[chosen], targets[chosen], plan, chosen)

    def _losses(self, model: nn.Module, pixels: Tensor, targets: Tensor) -> Tensor:
        with evaluating(model):
            logits = model(pixels).float()
            losses = soft_cross_entropy(logits, targets, reduction="none")
            scores = (logits.softmax(1) - targets).norm(dim=1) if self.norm else losses
        return scores.clone()  # out of inference mode


@dataclass(frozen=True)
class Part:
    """Choose for the first images of a batch, and draw plainly for the rest."""

    chosen: Uncertain
    plain: Plain
    count: int

    def __call__(self, images: Tensor, labels: Tensor, *, step: int) -> Batch:
        first = self.chosen(images[: self.count], labels[: self.count], step=step)
        rest = self.plain(images[self.count :], labels[self.count :], step=step)
        return Batch(torch.cat([first.inputs, rest.inputs]), torch.cat([first.targets, rest.targets]), rest.drawn)


@lru_cache(maxsize=8)
def _order(seed: int, epoch: int, size: int) -> Tensor:
    return torch.from_numpy(rng.generator(seed, "order", epoch).permutation(size))


def rows_of(step: int, count: int, size: int, seed: int) -> Tensor:
    """Return the images of a step. Epochs follow one another without a break: every batch is full."""
    begin, end = step * count, (step + 1) * count
    epochs = range(begin // size, (end - 1) // size + 1)
    return torch.cat([_order(seed, epoch, size)[max(begin - epoch * size, 0) : end - epoch * size] for epoch in epochs])


class HardImages:
    """The images of each step as outspan.HardSamples chooses them, in full batches."""

    def __init__(self, samples: HardSamples, batch: int) -> None:
        self.samples, self.batch, self.epoch = samples, batch, 0
        self.waiting: list[Tensor] = []

    def next(self) -> Tensor:
        """Return the images of a step."""
        if not self.waiting:
            self.samples.set_epoch(self.epoch)
            order = self.samples.order()
            self.waiting = list(order[: len(order) // self.batch * self.batch].split(self.batch))
            self.epoch += 1
        return self.waiting.pop(0)


class Images:
    """The images of each step. A pass over the data leaves out a part of the images whose stored loss is below the mean."""

    def __init__(self, variant: Variant, size: int, seed: int, device: torch.device) -> None:
        self.variant, self.size, self.seed = variant, size, seed
        self.losses = torch.full((size,), float("nan"), device=device)  # divergence from the target, when last seen
        self.waiting, self.weights, self.passes = torch.empty(0, dtype=torch.int64), torch.empty(0), 0

    def next(self, count: int, progress: float) -> tuple[Tensor, Tensor]:
        """Return the images of a step and their weights."""
        while len(self.waiting) < count:
            order, weights = _order(self.seed, self.passes, self.size), torch.ones(self.size)
            if self.variant.skip and progress < self.variant.skip_stop:
                stored = self.losses.cpu()[order]
                easy = stored < stored.nanmean()
                draws = torch.from_numpy(rng.generator(self.seed, "skip", self.passes).random(self.size))
                kept = ~easy | (draws >= self.variant.skip)
                weights[easy] = 1 / (1 - self.variant.skip) if self.variant.rescale else 1.0
                order, weights = order[kept], weights[kept]
            self.waiting, self.weights = torch.cat([self.waiting, order]), torch.cat([self.weights, weights])
            self.passes += 1
        rows, self.waiting = self.waiting[:count], self.waiting[count:]
        weights, self.weights = self.weights[:count], self.weights[count:]
        return rows, weights

    def store(self, rows: Tensor, losses: Tensor) -> None:
        """Keep the losses of a step."""
        if self.variant.memory:
            before = self.losses[rows]
            losses = torch.where(before.isnan(), losses, torch.lerp(losses, before, self.variant.memory))
        self.losses[rows] = losses


def fit_of(losses: Tensor, targets: Tensor) -> Tensor:
    """Return exp(-(loss - entropy of the target)) of each image: 1 is a perfect fit, whether labels are mixed or not."""
    return (-losses - torch.xlogy(targets, targets).sum(1)).exp()


class Trace:
    """How well a run fits what it learns from and what it does not, and its amount of augmentation, over parts of the run."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.fits: list[Tensor] = []
        self.amounts: list[float] = []
        self.parts: list[tuple[int, Tensor, float | None, float | None]] = []

    def add(self, fits: Tensor, amount: float | None) -> None:
        """Take a step."""
        self.fits.append(fits.mean())
        self.amounts += [] if amount is None else [amount]

    def close(self, step: int, validation_fit: float | None) -> None:
        """End a part of the run."""
        amount = statistics.fmean(self.amounts) if self.amounts else None
        self.parts.append((step, torch.stack(self.fits).mean(), amount, validation_fit))
        self.fits, self.amounts = [], []

    def columns(self) -> dict[str, list[Any]]:
        """Return the means over the parts."""
        rows = [[step, *(None if x is None else round(float(x), 4) for x in rest)] for step, *rest in self.parts]
        columns = zip(("step", "fit", "amount", "validation_fit"), zip(*rows, strict=True), strict=False)
        return {name: list(column) for name, column in columns if column[0] is not None}


@dataclass
class Outcome:
    """What a run measured."""

    seconds: float
    windows: list[float]  # ms per step, by window
    phases: list[str]  # of each window
    train_loss: float | None  # over the last epoch; None if it diverged
    trace: dict[str, list[Any]]  # columns of a Trace

    @property
    def step_time(self) -> float:
        """The ms per step: the median of each phase, weighted by its windows. A slow window is not a slow policy."""
        groups = [[ms for ms, at in zip(self.windows, self.phases, strict=True) if at == name] for name in set(self.phases)]
        return sum(len(group) * statistics.median(group) for group in groups) / len(self.windows)


class Bench:
    """The data on its device, the models that are built so far, and the measured step times."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        data = load("cifar10")
        train, self.test = data.train, data.test
        if options.smoke:
            self.test = self.test.take(torch.arange(200))
        if options.images < len(train):  # held out of the images that are not trained on
            rest = train.take(torch.arange(options.images, len(train)))
            train, self.validation = train.take(torch.arange(options.images)), hold_out(rest, options.validation, 0)[1]
        else:
            train, self.validation = hold_out(train, options.validation, 0)
        on_gpu = self.device.type == "cuda"
        dtype = torch.bfloat16 if on_gpu else torch.float32
        self.preprocess = make_preprocess(train.noun, *train.statistics(), dtype, channels_last=on_gpu)
        self.shape, self.train_split = train.shape, train.to(self.device)
        self.recipe = Recipe(data="cifar10", model=options.model, batch=options.batch, lr=options.lr)
        self.compiled = self.device.type == "cuda" and not options.no_compile
        self.machine = machine("triton")
        self.net = cache(self._build)
        self.probe = cache(self._probe)

    def _build(self, role: str, model: str) -> Net:
        recipe = replace(self.recipe, model=model)
        return Net(recipe, self.shape, self.device, compiled=self.compiled, score_rows=self.options.score_rows)

    def steps_in(self, epochs: float) -> int:
        return max(1, round(epochs * len(self.train_split) / self.recipe.batch))

    def proxy_of(self, variant: Variant) -> Net | None:
        name = "wide_resnet-10-1" if self.options.smoke else variant.proxy
        return self.net("proxy", name) if variant.proxy else None

    def policies(
        self, variant: Variant, seed: int, steps: int, controller: Controller | None = None
    ) -> dict[str, tuple[Policy, int]]:
        """Return the policy of each phase, "choose", "plain" and "finish", and how many images it takes a step."""
        propose, batch = proposal_of(variant), self.recipe.batch
        common: dict[str, Any] = {"defaults": DEFAULTS, "preprocess": self.preprocess, "classes": CLASSES}
        plain = Plain(propose, seed=seed, **common)
        if variant.policy == "auto":
            epochs = steps * batch / len(self.train_split)
            mix = sequence(Step("cutmix", 0.0, 1.0))
            plain = Auto(natural(), mix=mix, seed=seed, steps=steps, finish=variant.finish, epochs=epochs, **common)
        finish: Policy = Plain(sequence(), seed=seed, **common)
        if variant.even:
            even = {"places": variant.even == "all", **common}
            plain = Even(propose, len(self.train_split), seed, **even)
            finish = Even(sequence(), len(self.train_split), seed, **even)
        phases: dict[str, tuple[Policy, int]] = {"plain": (plain, batch), "finish": (finish, batch), "choose": (plain, batch)}
        if controller:
            phases["choose"] = phases["plain"] = Adaptive(variant, controller, seed, **common), batch
        scorer = self.proxy_of(variant) or self.net("main", self.recipe.model)
        if variant.draws > 1:  # nothing is scored where all candidates are kept
            draws = {"candidates": variant.draws, "keep": variant.draws}
            phases["choose"] = Uncertain(scorer.score, propose, seed=seed, **draws, **common), batch // variant.draws
        elif variant.pool or variant.reference or variant.norm:
            reference = scorer.score_averaged if variant.reference else None
            images = batch * max(variant.pool, 1) // (variant.candidates if variant.pool else 1)
            power = float("inf") if variant.select == "max" else 1.0
            of_rows = (variant.candidates, batch, variant.pool > 0, power, self.preprocess, seed, variant.norm)
            phases["choose"] = Ranked(scorer.score, reference, propose, *of_rows), images
        elif variant.candidates > 1:
            how = {"candidates": variant.candidates, "select": variant.select, "score_every": variant.score_every}
            chosen = Uncertain(scorer.score, propose, seed=seed, **how, **common)
            rest = Plain(propose, seed=rng.derive(seed, "rest"), **common)
            phases["choose"] = chosen if variant.part == 1 else Part(chosen, rest, round(variant.part * batch)), batch
        return phases

    def train(self, variant: Variant, seed: int, steps: int, window: int = WINDOW) -> Outcome:
        """Train the main model from the start. The host reads a loss only when the device has long passed it."""
        main, proxy, split = self.net("main", self.recipe.model), self.proxy_of(variant), self.train_split
        state, proxy_state = main.reset(seed), proxy.reset(seed) if proxy else None
        controller = Controller(variant, len(split), steps, self.recipe.batch) if variant.auto else None
        phases = self.policies(variant, seed, steps, controller)
        images = Images(variant, len(split), seed, self.device)
        epochs = steps * self.recipe.batch / len(split)
        hard = HardImages(
            HardSamples(len(split), epochs=epochs, classes=CLASSES, skip=variant.hard, seed=seed), self.recipe.batch
        )
        last_epoch, layout = self.steps_in(1), self.preprocess.layout
        kept = len(split) - round(variant.hold * len(split))
        means: list[Tensor] = []
        skipped: list[str] = []
        trace = Trace(max(1, steps // TRACES))
        window, waiting, diverged = min(window, max(1, steps // 4)), None, False
        wait(self.device)
        began = time.perf_counter()
        marks, names = [self._mark()], []
        for step in range(steps):
            progress = step / steps
            choosing = variant.start <= progress < variant.stop
            name = "finish" if progress >= 1 - variant.finish else "choose" if choosing else "plain"
            policy, count = phases[name]
            if variant.hard:
                rows = hard.next()
                if len(hard.waiting) == len(split) // count - 1 and hard.epoch % max(1, round(epochs / 12)) == 1:
                    skipped.append(f"{hard.samples.metrics()['skipped']:.2f}")
            elif variant.skip:
                rows, weights = images.next(count, progress)
                weights = to_device(weights, self.device)
            else:
                rows = rows_of(step, count, kept if progress < variant.release else len(split), seed)
            here = to_device(rows, self.device)
            if isinstance(policy, Adaptive | Even):
                policy.rows = rows.numpy()
            options = {"confidence": hard.samples.confidence(rows)} if variant.confident else {}
            batch = policy(split.images[here], split.labels[here], step=step, **options)
            batch = replace(batch, inputs=batch.inputs.contiguous(memory_format=layout))  # one layout: one recording
            lr, plain_targets = lr_at(self.recipe, step, steps), batch.targets
            if variant.rescale:  # the loss is linear in the targets
                batch = replace(batch, targets=batch.targets * weights[:, None])
            losses = take_step(state, main.learn, main.recipe, batch, lr)
            if variant.skip:
                losses = losses / weights if variant.rescale else losses
                images.store(here, losses.detach() + torch.xlogy(plain_targets, plain_targets).sum(1))
            if variant.hard:
                hard.samples.learn(rows, excess_loss(losses, plain_targets))
            if isinstance(phases["choose"][0], Auto) and name != "finish":
                phases["choose"][0].learn(losses, step=step)
            means.append(losses.mean())
            main.average(step)
            if proxy and proxy_state and step % variant.proxy_every == 0:
                take_step(proxy_state, proxy.learn, proxy.recipe, batch, lr)
                if variant.reference:
                    proxy.average(step)
            if controller or self.options.trace:
                fits = fit_of(losses, batch.targets)
                trace.add(fits, controller.mean_amount if controller else None)
                if controller and name != "finish":
                    controller.observe(step, rows, fits)
                    if variant.auto == "gap" and step % LOOK == LOOK - 1 and progress < variant.release:
                        controller.see_unseen(self._unseen(main, torch.arange(kept, len(split))[:UNSEEN]))
                if (step + 1) % trace.every == 0:
                    trace.close(step + 1, self._validation_fit(main) if self.options.trace else None)
            state.step = step + 1
            if (step + 1) % window == 0:
                marks.append(self._mark())
                names.append(name)
                diverged = waiting is not None and not waiting.isfinite().item()
                waiting = torch.stack(means[-window:]).mean()
                if diverged:
                    break
        wait(self.device)
        seconds = time.perf_counter() - began
        loss = torch.stack(means[-last_epoch:]).mean().item()
        windows = [self._elapsed(*pair) / window for pair in itertools.pairwise(marks)]
        if variant.policy:
            print(phases["choose"][0].describe(), flush=True)
        if variant.hard:
            print("skipped by epoch:", *skipped, flush=True)
        return Outcome(seconds, windows, names, loss if loss == loss and not diverged else None, trace.columns())

    def _unseen(self, main: Net, rows: Tensor) -> float:
        """Return the mean fit of train images that are held out. The host waits for the device here."""
        here = to_device(rows, self.device)
        pixels = self.preprocess(self.train_split.images[here]).contiguous(memory_format=self.preprocess.layout)
        with evaluating(main.score):
            logits = main.score(pixels).float()
        return logits.softmax(1).gather(1, self.train_split.labels[here].view(-1, 1)).mean().item()

    def _validation_fit(self, main: Net) -> float | None:
        """Return the mean fit of validation images. It is written down and decides nothing."""
        if self.validation is None:
            return None
        split = self.validation.take(torch.arange(min(UNSEEN, len(self.validation))))
        logits = compute_logits(main.model, split, self.preprocess, self.device)
        main.learn.model.train()
        return logits.softmax(1).gather(1, split.labels.view(-1, 1)).mean().item()

    def _mark(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _elapsed(self, before: Any, after: Any) -> float:
        """Return the milliseconds between two marks."""
        return before.elapsed_time(after) if self.device.type == "cuda" else 1000 * (after - before)

    def _probe(self, name: str) -> float | None:
        """Return a variant's ms per step, phases in proportion; None if it fails, so that the others still run."""
        warm, timed = (4, 8) if self.options.smoke else (WARM, TIMED)
        began = time.perf_counter()
        try:
            self.train(find_variant(name), 0, warm)
            compiling = time.perf_counter() - began
            measured = self.train(find_variant(name), 0, timed, TIMED_WINDOW).step_time
        except RuntimeError:  # CUDA and the compiler raise these
            traceback.print_exc()
            print(f"{name}: failed, skipped", flush=True)
            return None
        print(f"{name}: {measured:.2f} ms per step (first {warm} steps {compiling:.0f} s)", flush=True)
        return measured

    def run(self, name: str, seed: int, steps: int) -> dict[str, Any]:
        """Train and evaluate a variant; return its row."""
        outcome = self.train(find_variant(name), seed, steps)
        windows = outcome.windows[1:] or outcome.windows
        return {
            **self.evaluate(),
            "epochs": round(steps * self.recipe.batch / len(self.train_split), 2),  # counted in gradients, not in images read
            "steps": steps,
            "seconds": round(outcome.seconds, 2),
            "ms_per_step": round(statistics.median(windows), 4),
            "ms_per_step_mean": round(statistics.fmean(windows), 4),  # what counts where phases differ
            "train_loss": outcome.train_loss,
            "trace": outcome.trace,
            "settings": asdict(find_variant(name)),
            "score_rows": self.options.score_rows,
            "compiled": self.compiled,
            "machine": self.machine,
        }

    def evaluate(self) -> dict[str, float | None]:
        """Return the accuracies of the main model, in %, raw and of the averaged weights."""
        main, accuracies = self.net("main", self.recipe.model), {}
        for target, source in main.others:
            target.copy_(source)
        for split_name, split in (("validation", self.validation), ("test", self.test)):
            for weights, model in (("raw", main.model), ("ema", main.averaged)):
                value = None if split is None else 100 * accuracy(model, split, self.preprocess, self.device)
                accuracies[f"{split_name}_{weights}"] = None if value is None else round(value, 3)
        return accuracies


def split_epochs(text: str, epochs: float) -> tuple[str, float, bool]:
    """Read "random:111" as a variant, its epochs, and whether the text has epochs."""
    name, colon, suffix = text.partition(":")
    return name, float(suffix) if colon else epochs, bool(colon)


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; the settings that depend on one another are filled in."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", default="", help=f"NAME[+FIELD=VALUE][:EPOCHS] with commas; of {', '.join(VARIANTS)}")
    parser.add_argument("--epochs", type=float, default=60)
    parser.add_argument("--time-of", default="", help="NAME:EPOCHS; variants get as many steps as fit in its time")
    parser.add_argument("--seeds", default="0", help="with commas")
    parser.add_argument("--images", type=int, default=50_000, help="train on the first N train images")
    parser.add_argument("--validation", type=int, default=5_000, help="train images held out")
    parser.add_argument("--model", default="wide_resnet-28-2")
    parser.add_argument("--batch", type=int, default=0, help="512; 128 with at most 10,000 images")
    parser.add_argument("--lr", type=float, default=0.0, help="0.2; 0.1 with at most 10,000 images")
    parser.add_argument("--score-rows", type=int, default=0, help="rows the scoring model takes at a time; 0 is all")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no run that would not end in time")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time, compared at equal steps; not with --time-of")
    parser.add_argument("--trace", action="store_true", help="write how well augmented and validation images are fitted")
    parser.add_argument("--result", type=Path, help="a JSON file that rows are added to; rows it has are not run again")
    parser.add_argument("--smoke", action="store_true", help="tiny settings, to see that every variant runs")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.images, options.validation, options.batch, options.epochs = 512, 200, 32, 1
        options.model = "wide_resnet-10-1"
    if options.processes > 1 and options.time_of:
        parser.error("--time-of needs --processes 1: step times are not comparable while other runs share the device")
    small = options.images <= 10_000
    options.batch, options.lr = options.batch or (128 if small else 512), options.lr or (0.1 if small else 0.2)
    options.variants = [split_epochs(text, options.epochs) for text in (options.variants or ",".join(VARIANTS)).split(",")]
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    try:
        for name, _, _ in [*options.variants, split_epochs(options.time_of or "random", 0)]:
            find_variant(name)
    except ValueError as error:
        parser.error(str(error))
    return options


def key_of(options: argparse.Namespace, name: str, epochs: float, own: bool, seed: int) -> dict[str, Any]:
    """Return what tells a run from others."""
    requested = f"time of {options.time_of}" if options.time_of and not own else f"{epochs:g} epochs"
    settings = {field: getattr(options, field) for field in ("images", "model", "validation", "batch", "lr")}
    return {"variant": name, "requested": requested, "seed": seed} | settings


def work(options: argparse.Namespace, end: float, jobs: Any, done: Any) -> None:
    """Run jobs from a queue in a process of its own, until there are none or no time is left."""
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 64
    ms = 0.0
    with use_algorithms(deterministic=False):
        bench = Bench(options)
        while (job := jobs.get()) is not None:
            name, seed, epochs, key = job
            steps = bench.steps_in(epochs)
            needed, left = 5 + 1.03 * steps * ms / 1000, end - time.time()
            if needed > left:
                print(f"{name} seed {seed}: not started, needs {needed:.0f} s of {left:.0f}", flush=True)
                continue
            try:
                row = bench.run(name, seed, steps)
            except RuntimeError:
                traceback.print_exc()
                continue
            ms = row["ms_per_step_mean"]
            done.put(key | row | {"cost": None, "ms_per_step_probe": None, "processes": options.processes})
    done.put(None)


def run_together(options: argparse.Namespace, rows: list[dict[str, Any]], end: float) -> None:
    """Run what is missing, several runs at a time."""
    context = multiprocessing.get_context("spawn")
    jobs, done = context.Queue(), context.Queue()
    for seed, (name, epochs, own) in itertools.product(options.seeds, options.variants):
        key = key_of(options, name, epochs, own, seed)
        if not any(key.items() <= row.items() for row in rows):
            jobs.put((name, seed, epochs, key))
    workers = [context.Process(target=work, args=(options, end, jobs, done)) for _ in range(options.processes)]
    for worker in workers:
        jobs.put(None)
        worker.start()
    finished = 0
    while finished < len(workers):
        row = done.get()
        finished += row is None
        if row is not None:
            add_row(options, rows, row)
    for worker in workers:
        worker.join()


def add_row(options: argparse.Namespace, rows: list[dict[str, Any]], row: dict[str, Any]) -> None:
    """Keep, write and print a row."""
    rows.append(row)
    if options.result:
        options.result.write_text(json.dumps(rows, indent=1) + "\n")
    print(describe(rows[-1:]), flush=True)


def run_alone(options: argparse.Namespace, rows: list[dict[str, Any]], end: float) -> None:
    """Run what is missing one after another, each with as many steps as were asked for or as fit in the time."""
    base, base_epochs, _ = split_epochs(options.time_of or "random", options.epochs)
    with use_algorithms(deterministic=False):
        bench = Bench(options)
        base_ms = bench.probe(base)
        if base_ms is None:
            sys.exit(f"{base}: does not run, so that no cost can be measured")
        for seed, (name, epochs, own) in itertools.product(options.seeds, options.variants):
            key = key_of(options, name, epochs, own, seed)
            if any(key.items() <= row.items() for row in rows):
                continue
            ms = bench.probe(name) if end - time.time() > MIN_SECONDS else None
            if ms is None:
                print(f"{name} seed {seed}: not started", flush=True)
                continue
            in_time = key["requested"].startswith("time")
            steps = round(bench.steps_in(base_epochs) * base_ms / ms) if in_time else bench.steps_in(epochs)
            needed, left = 5 + 1.03 * steps * ms / 1000, end - time.time()
            if needed > left:
                print(f"{name} seed {seed}: not started, needs {needed:.0f} s of {left:.0f}", flush=True)
                continue
            cost = round(ms / base_ms, 4) if base == "random" else None
            timing = {"cost": cost, "ms_per_step_probe": round(ms, 4), "processes": 1}
            add_row(options, rows, key | bench.run(name, seed, steps) | timing)


def main() -> None:
    """Run what is missing, write a row after every run, and print a table."""
    options = read_options()
    end = time.time() + 60 * options.minutes
    torch._dynamo.config.recompile_limit = 64  # models and shapes share the code of nn.Sequential
    rows = json.loads(options.result.read_text()) if options.result and options.result.exists() else []
    (run_together if options.processes > 1 else run_alone)(options, rows, end)
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in ("images", "model", "requested", "variant")), []).append(row)
    print("\nMeans over seeds. Accuracies in %: raw weights, averaged weights (EMA). Cost: step time relative to random.")
    for _, group in sorted(groups.items()):
        print(describe(group))


def describe(rows: list[dict[str, Any]]) -> str:
    """Return one line for the runs of a variant: the means over their seeds."""

    def mean(name: str, form: str) -> str:
        values = [row[name] for row in rows if row[name] is not None]
        return format(statistics.fmean(values), form) if values else "-"

    names = {"validation_raw": "8.2f", "validation_ema": "6.2f", "test_raw": "8.2f", "test_ema": "6.2f", "train_loss": "7.3f"}
    names |= {"epochs": "7.1f", "ms_per_step": "7.2f", "cost": "6.2f", "seconds": "6.0f"}
    first, seeds = rows[0], ",".join(str(row["seed"]) for row in rows)
    figures = "  ".join(f"{name} {mean(name, form)}" for name, form in names.items())
    return f"{first['variant']:24} {first['requested']}, {first['images']} images, seeds {seeds}: {figures}"


if __name__ == "__main__":
    main()
