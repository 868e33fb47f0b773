"""The transforms that keep labels."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from outspan import rng
from outspan.dropin.arguments import as_batch, check_pixels, convert_alpha, convert_whole, enum_value, unpack
from outspan.dropin.draws import Transform, draw_generator
from outspan.messages import shown
from outspan.plan import Plan
from outspan.policies import torchvision
from outspan.policies.drawing import check_proposal
from outspan.policies.steps import Proposal, Schedule
from outspan.shapes import UInt8
from outspan.transforms.apply import apply
from outspan.transforms.table import find

_POLICIES = {"imagenet": "imagenet", "cifar10": "cifar", "svhn": "svhn"}
_MAX_BINS = 1000
_MAX_DEPTH = 100  # of the transforms that a proposal can apply to an image
_MIXED = (
    "the proposal mixes different images, which also changes labels: use one that keeps labels, such as "
    "outspan.randaugment(2, 9), and add MixUp or CutMix, or use the policy outspan.Plain"
)


class _KeepsLabels(Transform):
    """A transform that keeps labels."""

    def __call__(self, images: UInt8[Tensor, "*B C H W"] | tuple[Any, ...], *others: Any, step: int | None = None) -> Any:
        """Return the augmented images, followed by the other arguments if there are any. One tuple counts as all arguments."""
        own, others, in_tuple = unpack(images, others)
        batch = as_batch(own)
        height, width = batch.shape[2:]
        plan = self._proposal((height, width))(len(batch), rng=draw_generator(self, step))
        if _mixes_samples(plan):
            raise ValueError(_MIXED)
        done = apply(batch, plan).view(own.shape)
        return (done, *others) if in_tuple else done

    def _proposal(self, size: torchvision.Size) -> Proposal:
        """Return the proposal for images of a size."""
        raise NotImplementedError


@dataclass(frozen=True)
class Augment(_KeepsLabels):
    """Apply the plan of any proposal, for example `Augment(outspan.policy("rand-m9-n2-mstd0.5"))`."""

    propose: Proposal

    def __post_init__(self) -> None:
        check_proposal(self.propose)
        _check_keeps_labels(self.propose)
        super().__post_init__()

    def _proposal(self, size: torchvision.Size) -> Proposal:
        return self.propose


@dataclass(frozen=True)
class RandAugment(_KeepsLabels):
    """RandAugment (arXiv:1909.13719) with torchvision's 14 transforms and magnitudes: `num_ops` of them, one after another."""

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"  # the only one; torchvision's InterpolationMode.NEAREST is the same
    fill: Any = None  # black, the only one

    def __post_init__(self) -> None:
        convert_whole(self, "num_ops", 0, _MAX_DEPTH)
        convert_whole(self, "num_magnitude_bins", 2, _MAX_BINS)
        convert_whole(self, "magnitude", 0)
        if self.magnitude >= self.num_magnitude_bins:
            limit = f"below num_magnitude_bins, {self.num_magnitude_bins}"
            raise ValueError(f"magnitude must be {limit}, got {shown(self.magnitude)}")
        check_pixels(self.interpolation, self.fill)
        super().__post_init__()

    def _proposal(self, size: torchvision.Size) -> Proposal:
        return torchvision.randaugment(self.num_ops, self.magnitude, self.num_magnitude_bins, size)


@dataclass(frozen=True)
class TrivialAugmentWide(_KeepsLabels):
    """TrivialAugment with the wide ranges (arXiv:2103.10158): one of torchvision's 14 transforms at a random magnitude."""

    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"  # the only one
    fill: Any = None  # black, the only one

    def __post_init__(self) -> None:
        convert_whole(self, "num_magnitude_bins", 2, _MAX_BINS)
        check_pixels(self.interpolation, self.fill)
        super().__post_init__()

    def _proposal(self, size: torchvision.Size) -> Proposal:
        return torchvision.trivialaugment(self.num_magnitude_bins, size)


@dataclass(frozen=True)
class AutoAugment(_KeepsLabels):
    """AutoAugment (arXiv:1805.09501) with torchvision's magnitudes: one of the 25 pairs of "imagenet", "cifar10" or "svhn"."""

    policy: Any = "imagenet"  # or torchvision's AutoAugmentPolicy
    interpolation: Any = "nearest"  # the only one
    fill: Any = None  # black, the only one

    def __post_init__(self) -> None:
        name = enum_value(self.policy)
        if not isinstance(name, str) or name not in _POLICIES:
            raise ValueError(f"policy must be one of {', '.join(_POLICIES)}, got {shown(name)}")
        check_pixels(self.interpolation, self.fill)
        super().__post_init__()

    def _proposal(self, size: torchvision.Size) -> Proposal:
        return torchvision.autoaugment(_POLICIES[enum_value(self.policy)], size)


@dataclass(frozen=True)
class AugMix(_KeepsLabels):
    """AugMix (arXiv:1912.02781) with torchvision's magnitudes: chains of transforms, mixed with the image."""

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1  # number of transforms of a chain; below 1: 1 to 3, at random
    alpha: float = 1.0
    all_ops: bool = True  # also brightness, color, contrast and sharpness
    interpolation: Any = "nearest"  # the only one; torchvision's default is bilinear
    fill: Any = None  # black, the only one

    def __post_init__(self) -> None:
        convert_whole(self, "severity", 1, 10)
        convert_whole(self, "mixture_width", 1, 100)
        convert_whole(self, "chain_depth", -1, _MAX_DEPTH)
        convert_alpha(self, self.alpha)
        if not isinstance(self.all_ops, bool):
            raise ValueError(f"all_ops must be True or False, got {shown(self.all_ops)}")
        check_pixels(self.interpolation, self.fill)
        super().__post_init__()

    def _proposal(self, size: torchvision.Size) -> Proposal:
        lengths = (self.chain_depth, self.chain_depth) if self.chain_depth > 0 else (1, 3)
        return torchvision.augmix(self.severity, self.mixture_width, lengths, self.alpha, self.all_ops, size)


def _check_keeps_labels(propose: Proposal) -> None:
    """Refuse a proposal that can mix different images, because labels would not be mixed. AugMix mixes versions of one."""
    if isinstance(propose, Schedule):
        raise ValueError(f"propose must be one proposal, got {shown(propose)}: use outspan.Plain(schedule) for a schedule")
    plan = propose(2, rng=rng.generator(0, "dropin", "check"))
    if not isinstance(plan, Plan) or len(plan) != 2:
        result = f"a plan of {len(plan)} outputs" if isinstance(plan, Plan) else shown(plan)
        raise ValueError(f"propose must return a Plan with one output per image, got {result} for 2 images")
    # A transform that is not in these rows may be in others. So one that mixes, but has no partners here, is refused.
    mixing = any(find(name).mixes for name in plan.names)
    if mixing and (_mixes_samples(plan) or bool((plan.partners < 0).all())):
        raise ValueError(_MIXED)


def _mixes_samples(plan: Plan) -> bool:
    row, step = (plan.partners >= 0).nonzero(as_tuple=True)
    return not torch.equal(plan.source[row], plan.source[plan.partners[row, step]])
