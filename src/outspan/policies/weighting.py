"""Weights of samples in the loss of an augmented batch."""

import torch
from torch import Tensor
from torch.nn import functional

from outspan.policies.batch import Batch
from outspan.policies.targets import make_targets
from outspan.shapes import BatchLabels, Float32, Inputs


def weigh(
    batch: Batch, inputs: Inputs, labels: BatchLabels, weights: Float32[Tensor, " B"]
) -> tuple[Float32[Tensor, " N"], Float32[Tensor, "N classes"]]:
    """Return the weight of each augmented sample of a batch, and its targets in the weighted loss.

    A mixed sample counts as its parts. If sample i with weight w_i and label y_i has the share s_i, its loss is the sum of
    s_i w_i loss(y_i). As the loss is linear in the label, this is w loss(t), with w the sum of s_i w_i and t the sum of
    s_i w_i y_i, divided by w.
    """
    classes = batch.targets.shape[1]
    samples = torch.arange(len(labels), device=labels.device)
    shares = make_targets(inputs, samples, batch.drawn, len(labels))  # each sample is a class of its own
    shares = shares if batch.chosen is None else shares[batch.chosen]
    weighted = shares * weights
    total = weighted.sum(1)
    each = labels.float() if labels.ndim == 2 else functional.one_hot(labels, classes).float()
    return total, weighted @ each / total.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(1)
