"""What mixing transforms do to labels."""

import torch
from torch import Tensor

from outspan.kernels import send
from outspan.plan import Plan
from outspan.shapes import Float32, Num
from outspan.transforms.apply import check_plan, check_source, magnitudes, rows_by_transform
from outspan.transforms.table import ALL, find


def mix_labels(labels: Num[Tensor, "B ..."], plan: Plan, classes: int, size: tuple[int, int]) -> Float32[Tensor, "M classes"]:
    """Return soft targets for the plan's outputs: the same recursion as the pixels; `size` is height, width.

    `labels` are class numbers [B] or already soft [B, classes].

    >>> plan = Plan.of([["mixup"], []], levels=[[0.25], []], partners=[[1], []])
    >>> mix_labels(torch.tensor([0, 1]), plan, 2, (32, 32)).tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    """
    soft, device = _soft(labels, classes), labels.device
    mixing = {name: share for name in plan.names if (share := find(name).share) is not None}
    if not mixing:  # what else the plan does is no matter of labels
        check_source(plan, len(labels))
        return soft[send(plan.source[plan.out], device)].float()
    check_plan(plan, len(labels), ALL)
    state = soft[send(plan.source, device)]
    for step in range(plan.ops.shape[1]):
        changes = rows_by_transform(plan, step, mixing)
        before, state = state, state.clone() if changes else state
        for name, rows in changes.items():
            share = mixing[name](magnitudes(plan, name, rows, step), plan.places[rows, step].double(), size)
            share = send(share, device).unsqueeze(1)
            here, partner = send(rows, device), send(plan.partners[rows, step], device)
            state[here] = (1 - share) * before[here] + share * before[partner]
    return state[send(plan.out, device)].float()


def _soft(labels: Tensor, classes: int) -> Tensor:
    if labels.ndim == 2:
        if labels.shape[1] != classes:
            raise ValueError(f"soft labels must have {classes} columns, got {labels.shape[1]}")
        if labels.device.type == "cpu" and not labels.isfinite().all():  # a GPU's host would wait for this look
            raise ValueError("soft labels must be finite, got NaN or infinity")
        return labels.double()
    if labels.is_floating_point() or labels.ndim != 1:
        raise ValueError(f"labels must be class numbers [B] or soft [B, {classes}], got {labels.dtype} {list(labels.shape)}")
    # On a GPU this look would make the host wait; there an index out of range is caught by the device.
    if labels.device.type == "cpu" and labels.numel() and not (labels.min() >= 0 and labels.max() < classes):
        raise ValueError(f"labels must lie in [0, {classes - 1}], got {labels.min()} to {labels.max()}")
    return torch.eye(classes, dtype=torch.float64, device=labels.device)[labels.long()]
