"""Soft targets of augmented samples."""

from torch import Tensor

from outspan.plan import Plan
from outspan.shapes import Float32, Images
from outspan.text.tokens import Passages
from outspan.transforms.labels import mix_labels


def make_targets(inputs: Images | Passages, labels: Tensor, plan: Plan, classes: int) -> Float32[Tensor, "M classes"]:
    """Return the soft targets of the plan's outputs: mixing transforms mix the labels too."""
    height, width = (1, 1) if isinstance(inputs, Passages) else inputs.shape[-2:]
    return mix_labels(labels, plan, classes, (height, width))
