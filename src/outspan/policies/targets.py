"""Soft targets of augmented samples."""

from torch import Tensor

from outspan.plan import Plan
from outspan.shapes import BatchLabels, Float32, Inputs
from outspan.transforms.labels import mix_labels


def make_targets(inputs: Inputs, labels: BatchLabels, plan: Plan, classes: int) -> Float32[Tensor, "M classes"]:
    """Return the soft targets of the plan's outputs: a transform that mixes samples also mixes their labels."""
    height, width = inputs.shape[-2:]
    return mix_labels(labels, plan, classes, (height, width))
