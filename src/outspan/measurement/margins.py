"""Margins: the largest class probability minus the second largest."""

import numpy as np
from torch import Tensor

from outspan.shapes import Float32, Num

BINS = 10


def compute_margins(logits: Float32[Tensor, "n classes"]) -> Float32[Tensor, " n"]:
    """Return the largest probability minus the second largest of every sample. With one class it is 1.

    >>> import torch
    >>> compute_margins(torch.tensor([[0.0, 0.0, -40.0], [50.0, 0.0, 0.0]])).tolist()
    [0.0, 1.0]
    """
    if logits.shape[1] == 1:
        return logits.new_ones(len(logits))
    first, second = logits.softmax(1).topk(2, dim=1).values.unbind(1)
    return first - second


def histogram(values: Num[Tensor, " n"]) -> list[int]:
    """Return the number of margins in each of 10 bins of equal width from 0 to 1. The last bin includes 1."""
    return np.histogram(values.numpy(), bins=BINS, range=(0, 1))[0].tolist()
