"""Examples of what a run trains on: samples before and after augmentation, for the trackers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import Tensor

from outspan.plan import Plan
from outspan.policies.batch import Batch
from outspan.policies.ranks import Part, own_plan
from outspan.shapes import UInt8
from outspan.transforms.apply import apply
from outspan.transforms.normalize import Preprocess

_EXAMPLES = 8  # examples per epoch


@dataclass(frozen=True, eq=False)
class Example:
    """An image before and after augmentation, as a step has trained on it."""

    original: UInt8[Tensor, "C H W"]
    augmented: UInt8[Tensor, "C H W"]
    composition: str  # the transforms in their order, as "rotate+invert"; "none" without any
    loss: float  # of the augmented image, before the step

    @property
    def caption(self) -> str:
        """The composition and the loss."""
        return f"{self.composition}, loss {self.loss:.3f}"


def make_examples(inputs: Any, batch: Batch, losses: Tensor, noun: str, preprocess: Preprocess) -> list[Example]:
    """Return examples from a batch and the loss of each of its augmented samples. There are none of texts."""
    plan = batch.plan
    if isinstance(inputs, Part):
        inputs, plan = inputs.own, own_plan(plan, inputs.rows, len(inputs))
    plan = plan[:_EXAMPLES]
    return _MAKE[noun](inputs, plan, losses[: len(plan)].tolist(), preprocess)


def _make_of_images(images: Tensor, plan: Plan, losses: Sequence[float], preprocess: Any) -> list[Example]:
    augmented = apply(images, plan, fill=preprocess.fill).cpu()
    originals = images[plan.source[plan.out].to(images.device)].cpu()
    names = ["+".join(plan.names[op] for op in row if op >= 0) or "none" for row in plan.ops[plan.out].tolist()]
    return [Example(*values) for values in zip(originals, augmented, names, losses, strict=True)]


_MAKE: Mapping[str, Callable[..., list[Example]]] = MappingProxyType({"images": _make_of_images, "texts": lambda *_: []})
