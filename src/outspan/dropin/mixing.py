"""The transforms that mix images and their labels."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from outspan.dropin.arguments import as_batch, check_tensor, convert_alpha, convert_whole, unpack
from outspan.dropin.draws import Transform, draw_generator
from outspan.policies.batch import check_batch
from outspan.policies.published import cutmix, mixup
from outspan.policies.steps import Proposal
from outspan.policies.targets import make_targets
from outspan.shapes import Images, describe
from outspan.transforms.apply import apply

_MAX_CLASSES = 100_000  # a batch of 128 soft labels has 100 MB then


@dataclass(frozen=True)
class MixUp(Transform):
    """Mixup (arXiv:1710.09412): blend every image, and its label, with another one. Each has its own weight and partner."""

    alpha: float = 1.0
    num_classes: int | None = None  # None: labels are [B, classes]

    def __post_init__(self) -> None:
        _convert(self)
        super().__post_init__()

    def __call__(
        self,
        images: Images | tuple[Any, ...],
        *others: Any,
        step: int | None = None,
    ) -> tuple[Any, ...]:
        """Return the mixed images, as bytes, the soft labels, and the arguments after the labels.

        The arguments are images, labels and any others, or one tuple of them.
        """
        return _mix(self, mixup(self.alpha), images, others, step)


@dataclass(frozen=True)
class CutMix(Transform):
    """CutMix (arXiv:1905.04899): paste a box of another image into every image. Each has its own box and partner."""

    alpha: float = 1.0
    num_classes: int | None = None  # None: labels are [B, classes]

    def __post_init__(self) -> None:
        _convert(self)
        super().__post_init__()

    def __call__(
        self,
        images: Images | tuple[Any, ...],
        *others: Any,
        step: int | None = None,
    ) -> tuple[Any, ...]:
        """Return the images, as bytes, the soft labels, and the arguments after the labels.

        The arguments are images, labels and any others, or one tuple of them.
        The area of the box is the weight of the other label.
        """
        return _mix(self, cutmix(self.alpha), images, others, step)


def _mix(
    transform: MixUp | CutMix, propose: Proposal, images: Any, others: tuple[Any, ...], step: int | None
) -> tuple[Any, ...]:
    images, others, _ = unpack(images, others)
    name, classes = type(transform).__name__, transform.num_classes
    how = f"call {name} on a batch, after the loader or in its collate_fn, as mix(images, labels)"
    check_tensor(images, "[B, C, H, W]", how)
    if images.ndim != 4:
        raise ValueError(f"images must be a uint8 tensor [B, C, H, W], got {describe(images)}: {how}")
    if not others:
        raise ValueError(f"labels are missing: {how}")
    images, labels = as_batch(images), others[0]
    check_batch(images, labels, None)
    if labels.ndim == 2 and not labels.shape[1]:
        raise ValueError(f"labels must be [B] or [B, classes] with at least one class, got {list(labels.shape)}")
    if classes is None and labels.ndim != 2:
        raise ValueError(f"num_classes is missing: class indices need it, as in {name}(num_classes=10)")
    plan = propose(len(images), rng=draw_generator(transform, step))
    targets = make_targets(images, labels.as_subclass(Tensor), plan, classes or labels.shape[1])
    return (apply(images, plan), targets, *others[1:])


def _convert(transform: MixUp | CutMix) -> None:
    convert_alpha(transform, transform.alpha)
    if transform.num_classes is not None:
        convert_whole(transform, "num_classes", 2, _MAX_CLASSES)
