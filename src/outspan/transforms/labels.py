"""Mix labels as the mixing transforms mix images."""

import torch
from torch import Tensor

from outspan.devices import to_device
from outspan.plan import Plan
from outspan.shapes import BatchLabels, Float32
from outspan.transforms.apply import check_plan, check_source, magnitudes, rows_by_transform
from outspan.transforms.table import ALL, find

_ALLOWED = "probabilities of the classes that sum to 1"
_TOLERANCE = 1e-3  # of the sum of a soft label and of its smallest value; larger for dtypes of low precision


def mix_labels(labels: BatchLabels, plan: Plan, classes: int, size: tuple[int, int]) -> Float32[Tensor, "M classes"]:
    """Return soft targets for the plan's outputs, mixed as the pixels are; `size` is (height, width).

    `labels` are class indices [B], soft labels [B, classes], which are probabilities that sum to 1, or multi-hot labels, bool
    [B, classes]: any number of classes per sample.

    >>> plan = Plan.of([["mixup"], []], levels=[[0.25], []], partners=[[1], []])
    >>> mix_labels(torch.tensor([0, 1]), plan, 2, (32, 32)).tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    """
    soft, device = _soft(labels, classes), labels.device
    mixing = {name: weight for name in plan.names if (weight := find(name).label_weight) is not None}
    if not mixing:  # other transforms keep labels
        check_source(plan, len(labels))
        return soft[to_device(plan.source[plan.out], device)].float()
    check_plan(plan, len(labels), ALL)
    state = soft[to_device(plan.source, device)]
    for step in range(plan.ops.shape[1]):
        changes = rows_by_transform(plan, step, mixing)
        before, state = state, state.clone() if changes else state
        for name, rows in changes.items():
            weight = mixing[name](magnitudes(plan, name, rows, step), plan.places[rows, step].double(), size)
            weight = to_device(weight, device).unsqueeze(1)
            here, partner = to_device(rows, device), to_device(plan.partners[rows, step], device)
            state[here] = (1 - weight) * before[here] + weight * before[partner]
    return state[to_device(plan.out, device)].float()


def _check_distributions(soft: Tensor, tolerance: float) -> None:
    """Refuse rows that are not probabilities that sum to 1. On a GPU the error comes later, so that the host does not wait."""
    sums = soft.sum(1)
    fits = (soft >= -tolerance).all(1) & ((sums - 1).abs() <= tolerance)  # false for NaN
    if soft.device.type != "cpu":
        return torch.ops.aten._assert_async.msg(fits.all(), f"soft labels must be {_ALLOWED}")
    if not fits.all():
        row = int(fits.logical_not().nonzero()[0])
        total, least = float(sums[row]), float(soft[row].min())
        negative = f", its smallest value is {least:.4g}" if least < 0 else ""
        several = ": for several labels per sample pass multi-hot labels of dtype bool" if total > 1 and not negative else ""
        raise ValueError(f"soft labels must be {_ALLOWED}, got row {row} with the sum {total:.4g}{negative}{several}")


def _soft(labels: Tensor, classes: int) -> Tensor:
    if labels.ndim == 2:
        if labels.shape[1] != classes:
            raise ValueError(f"soft labels must have {classes} columns, got {labels.shape[1]}")
        soft = labels.double()
        if labels.dtype == torch.bool:
            return soft
        _check_distributions(soft, max(_TOLERANCE, torch.finfo(labels.dtype).eps) if labels.is_floating_point() else _TOLERANCE)
        return soft
    if labels.is_floating_point() or labels.ndim != 1:
        raise ValueError(f"labels must be class indices [B] or soft [B, {classes}], got {labels.dtype} {list(labels.shape)}")
    # On a GPU this check would make the host wait; there the device reports an index out of range.
    if labels.device.type == "cpu" and labels.numel() and not (labels.min() >= 0 and labels.max() < classes):
        raise ValueError(f"labels must lie in [0, {classes - 1}], got {labels.min()} to {labels.max()}")
    soft = torch.zeros((len(labels), classes), dtype=torch.float64, device=labels.device)
    return soft.scatter_(1, labels.long().unsqueeze(1), 1.0)
