"""A batch as a policy returns it, and the checks of what a policy is called with."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from outspan.plan import Plan
from outspan.shapes import Float32, Images, Int64, Normalized, Num
from outspan.text.tokens import Passages


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs of a model, ready to train on: images or tokens, their soft targets, and the plan that made them."""

    inputs: Normalized | Int64[Tensor, "B T"]
    targets: Float32[Tensor, "B classes"]
    drawn: Plan = field(repr=False)  # the plan of all candidates
    chosen: Int64[Tensor, " B"] | None = field(default=None, repr=False)  # outputs of `drawn` that were kept; None: all
    losses: Float32[Tensor, "images candidates"] | None = field(default=None, repr=False)  # of all candidates, if scored

    @property
    def plan(self) -> Plan:
        """The plan of these inputs alone. On a GPU, reading it waits for the device."""
        return self.drawn if self.chosen is None else self.drawn[self.chosen.cpu()]


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
