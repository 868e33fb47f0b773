"""The plain policy: draw one plan a batch and apply it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from outspan import rng
from outspan.messages import shown
from outspan.plan import Plan
from outspan.policies.partners import check_same_class, partners_by_class
from outspan.policies.proposals import Proposal, Schedule, draw_together
from outspan.policies.published import DEFAULTS
from outspan.shapes import Float32, Images, Int64, Normalized, Num
from outspan.text.apply import Framed
from outspan.text.apply import apply as apply_to_text
from outspan.text.tokens import Passages
from outspan.transforms.apply import apply
from outspan.transforms.labels import mix_labels
from outspan.transforms.normalize import Normalize


@dataclass(frozen=True, eq=False)
class Batch:
    """Images, or the tokens of texts, ready to train on, their soft targets, and what was done to them."""

    images: Normalized | Int64[Tensor, "B T"]
    targets: Float32[Tensor, "B classes"]
    drawn: Plan = field(repr=False)  # everything that was drawn
    chosen: Int64[Tensor, " B"] | None = field(default=None, repr=False)  # which outputs of it these are; None is all
    losses: Float32[Tensor, "images candidates"] | None = field(default=None, repr=False)  # of everything drawn, if scored

    @property
    def plan(self) -> Plan:
        """The plan of these images alone. Asking for it waits for the device."""
        return self.drawn if self.chosen is None else self.drawn[self.chosen.cpu()]


@dataclass(frozen=True)
class Plain:
    """Apply what is proposed, then the default transforms: `policy(images, labels, step=step)`."""

    propose: Proposal | Schedule
    classes: int
    defaults: str | Proposal = "none"
    normalize: Normalize | Framed | None = None  # None scales bytes to [0, 1]
    seed: int = 0
    same_class: float = -1.0  # the share of mixing partners that are of an image's own class; -1 takes them as they come

    def __post_init__(self) -> None:
        find_defaults(self.defaults)
        check_same_class(self.same_class)

    def __call__(self, images: Images | Passages, labels: Num[Tensor, "B ..."], *, step: int) -> Batch:
        """Augment a batch; what is drawn depends on the seed and the step alone, and with `same_class` on the labels.

        Those must then be class numbers, and on a GPU reading them waits for the device.
        """
        check_batch(images, labels)
        plan = self.draw_several(labels if self.same_class < 0 else labels.cpu(), seeds=[self.seed], step=step)
        return Batch(execute(images, plan, self.normalize), aim(images, labels, plan, self.classes), plan)

    def draw_several(self, labels: Num[Tensor, "B ..."], *, seeds: Sequence[int], step: int) -> Plan:
        """Draw the plans of a step of several seeds as one; their batches, and the labels of these, lie one after another."""
        plan = draw_several(self.propose, self.defaults, len(labels) // len(seeds), seeds=seeds, step=step)
        if self.same_class < 0:
            return plan
        return partners_by_class(plan, labels, self.same_class, [rng.generator(seed, "partners", step) for seed in seeds])


def check_batch(images: Images | Passages, labels: Num[Tensor, "B ..."], *, texts: bool = True) -> None:
    """Refuse anything but a batch of images, or of texts where `texts` allows them, with one label per sample."""
    if isinstance(images, Passages) and not texts:
        raise ValueError("this policy is for images, a uint8 tensor [B, C, H, W], got texts: use Plain or Uncertain")
    if not isinstance(images, Passages) and (not isinstance(images, Tensor) or images.ndim != 4):
        raise ValueError(f"images must be a uint8 tensor [B, C, H, W], got {_described(images)}")
    if not isinstance(labels, Tensor):
        raise ValueError(f"labels must be a torch tensor, [B] or [B, classes], got {type(labels).__name__}")
    if labels.ndim == 0 or len(images) != len(labels):
        count = len(labels) if labels.ndim else "a single number"
        raise ValueError(f"labels must be one per image, got {count} for {len(images)} images")


def _described(images: Any) -> str:
    if isinstance(images, Tensor):
        return f"{images.dtype} {list(images.shape)}"
    kind = type(images).__name__
    return (
        f"a {kind} of {type(images[0]).__name__}" if isinstance(images, list | tuple) and images else f"a value of type {kind}"
    )


def find_defaults(defaults: str | Proposal) -> Proposal:
    """Return the default transforms by name; a proposal is its own."""
    if not isinstance(defaults, str):
        return defaults
    if defaults not in DEFAULTS:
        raise ValueError(f"defaults must be a proposal or one of {', '.join(DEFAULTS)}, got {shown(defaults)}")
    return DEFAULTS[defaults]


def draw(
    propose: Proposal | Schedule, defaults: str | Proposal, size: int, *, seed: int, step: int, candidates: int = 1
) -> Plan:
    """Draw the plan of a step: what is proposed, then the defaults."""
    return draw_several(propose, defaults, size, seeds=[seed], step=step, candidates=candidates)


def draw_several(
    propose: Proposal | Schedule, defaults: str | Proposal, size: int, *, seeds: Sequence[int], step: int, candidates: int = 1
) -> Plan:
    """Draw the plans of a step of several seeds as one; their batches lie one after another."""
    propose = propose.at(step) if isinstance(propose, Schedule) else propose
    plan = draw_together(propose, size, [rng.generator(seed, "augment", step) for seed in seeds], candidates)
    if defaults == "none":
        return plan
    generators = [rng.generator(seed, "defaults", step) for seed in seeds]
    after = draw_together(find_defaults(defaults), size, generators, candidates)
    return plan.then(after) if after.ops.numel() else plan


def aim(images: Images | Passages, labels: Tensor, plan: Plan, classes: int) -> Float32[Tensor, "M classes"]:
    """Return the soft targets of a plan's outputs; nothing mixes texts."""
    height, width = (1, 1) if isinstance(images, Passages) else images.shape[-2:]
    return mix_labels(labels, plan, classes, (height, width))


def execute(images: Images | Passages, plan: Plan, normalize: Normalize | Framed | None) -> Tensor:
    """Apply a plan and normalise; cutout is filled with the data's mean. Texts come out as tokens."""
    if isinstance(images, Passages):
        return apply_to_text(images, plan)
    if isinstance(normalize, Framed):
        raise ValueError("normalize must be a Normalize or None for images, got Framed, which is for texts")
    channels = images.shape[1]
    last = normalize or Normalize((0.0,) * channels, (1.0,) * channels)
    if len(last.mean) != channels:
        raise ValueError(f"normalize must have a mean a channel, got {len(last.mean)} for images of {channels}")
    return apply(images, plan, fill=[round(255 * min(max(mean, 0), 1)) for mean in last.mean], normalize=last)


def soft_cross_entropy(logits: Tensor, targets: Tensor, *, reduction: str = "mean") -> Tensor:
    """Return the cross entropy against soft targets [B, classes], averaged, or "none" for one number a sample."""
    return torch.nn.functional.cross_entropy(logits, targets, reduction=reduction)


def smooth(targets: Tensor, share: float) -> Tensor:
    """Return targets [..., classes] of which a share is spread evenly over the classes."""
    return (1 - share) * targets + share / targets.shape[-1] if share else targets
