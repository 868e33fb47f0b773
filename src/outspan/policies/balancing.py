"""Imbalanced classes: weights of the loss by class, and epochs in which all classes are equally frequent."""

import math

import numpy as np
import torch
from torch import Tensor

from outspan.messages import shown
from outspan.policies.objectives import MULTI_LABEL, Objective
from outspan.shapes import Float32, Int64

_LARGEST = 1e6  # class weight


def balanced_order(labels: Int64[Tensor, " N"], generator: np.random.Generator) -> Int64[Tensor, " N"]:
    """Return a random order of N rows in which all classes that occur are equally frequent, up to one row.

    Rows of a rare class come several times, each about equally often. Of a frequent class, a random part is left out.
    """
    known = np.unique(labels.cpu().numpy(), return_inverse=True)[1]
    counts = np.bincount(known)
    members = np.split(np.argsort(known, kind="stable"), np.cumsum(counts)[:-1])
    wanted = np.full(len(counts), len(known) // len(counts))
    wanted[generator.permutation(len(counts))[: len(known) % len(counts)]] += 1
    drawn = []
    for rows, count in zip(members, wanted.tolist(), strict=True):
        passes = [generator.permutation(rows) for _ in range(math.ceil(count / len(rows)))]
        drawn += [one[: count - i * len(rows)] for i, one in enumerate(passes)]
    return torch.from_numpy(generator.permutation(np.concatenate(drawn)))


def find_class_weights(
    text: str, counts: Int64[Tensor, " classes"], samples: int, objective: Objective
) -> Float32[Tensor, "... C"] | None:
    """Return the weight of each class in the loss, None if all are 1.

    If a sample can have several labels, they are [2, C]: of samples with the class, and of samples without it.

    Args:
        text: "balanced", numbers separated by commas, or "" for none.
        counts: The number of training samples of each class.
        samples: The number of training samples.
        objective: What the model is trained for.
    """
    if not text:
        return None
    if text == "balanced":
        if not counts.all():
            missing = int((counts == 0).nonzero()[0])
            raise ValueError(f"class_weights 'balanced' needs training samples of every class, got none of class {missing}")
        return objective.balance(counts.double(), samples).float()
    try:
        weights = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"class_weights must be 'balanced' or one number per class, e.g. '1,2.5', got {shown(text)}") from None
    if len(weights) != len(counts):
        raise ValueError(f"class_weights must have one number per class, {len(counts)}, got {len(weights)}")
    for weight in weights:
        if not 0 <= weight <= _LARGEST:
            raise ValueError(f"each of class_weights must lie in [0, {_LARGEST:g}], got {weight:g}")
    if not any(weights):
        raise ValueError("class_weights must not all be 0")
    of_present = torch.tensor(weights)
    return torch.stack([of_present, torch.ones_like(of_present)]) if objective is MULTI_LABEL else of_present
