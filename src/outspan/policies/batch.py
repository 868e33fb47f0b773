"""The batch that a policy returns, how its plan is drawn and executed, and checks of the arguments of a policy."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from outspan.plan import Plan
from outspan.policies.ranks import Part, own_plan
from outspan.shapes import BatchLabels, Float32, Inputs, Int64, Normalized
from outspan.transforms.normalize import DEFAULT_PREPROCESS, Preprocess, RedrawingPreprocess

# Further attempts if a draw leaves its sample unchanged. Those of a group are drawn and executed together, which is faster.
_REDRAWS = range(1, 4), range(4, 16)


@dataclass(frozen=True, eq=False)
class Batch:
    """Augmented inputs for the model, their soft targets, and the plan that produced them.

    If the policy was called with a `Part`, the inputs are those of the rank, and all others are those of the whole batch.
    """

    inputs: Normalized | Int64[Tensor, "B T"]
    targets: Float32[Tensor, "N classes"]
    drawn: Plan = field(repr=False)  # the plan of all candidates
    chosen: Int64[Tensor, " N"] | None = field(default=None, repr=False)  # the outputs of `drawn` that were kept; None: all
    losses: Float32[Tensor, "images candidates"] | None = field(default=None, repr=False)  # of all candidates; None: not scored
    unchanged: tuple[int, int] | None = None  # of the texts with transforms, how many are unchanged, and their number

    @property
    def plan(self) -> Plan:
        """The plan of these inputs, without the candidates that were not kept. On a GPU, reading it waits for the device."""
        return self.drawn if self.chosen is None else self.drawn[self.chosen.cpu()]


def check_preprocess(preprocess: object) -> None:
    """Raise a ValueError unless `preprocess` is None or can execute plans."""
    if not isinstance(preprocess, Preprocess | None):
        name = f"{type(preprocess).__module__}.{type(preprocess).__name__}"
        raise ValueError(f"preprocess must be an outspan.Normalize, or another Preprocess, got {name}")


def check_batch(inputs: Inputs, labels: BatchLabels, preprocess: Preprocess | None) -> None:
    """Raise a ValueError unless `preprocess` accepts the inputs and there is one label per sample."""
    (preprocess or DEFAULT_PREPROCESS).check(inputs.own if isinstance(inputs, Part) else inputs)
    if not isinstance(labels, Tensor):
        raise ValueError(f"labels must be a torch tensor, [B] or [B, classes], got {type(labels).__name__}")
    if labels.ndim == 0 or len(inputs) != len(labels):
        count = len(labels) if labels.ndim else "a single number"
        raise ValueError(f"labels must be one per sample, got {count} for {len(inputs)} samples")


def execute(inputs: Inputs, plan: Plan, preprocess: Preprocess | None) -> Tensor:
    """Apply a plan and preprocess the outputs for the model; None scales bytes to [0, 1]. Of a `Part`, apply its own rows."""
    if isinstance(inputs, Part):
        inputs, plan = inputs.own, own_plan(plan, inputs.rows, len(inputs))
    return (preprocess or DEFAULT_PREPROCESS).execute(inputs, plan)


@dataclass(frozen=True, eq=False)
class Drawn:
    """A plan and the model's input of its outputs."""

    plan: Plan
    inputs: Tensor = field(repr=False)  # those of the rank, of a `Part`
    unchanged: tuple[int, int] | None = None  # as in `Batch`


def draw_and_execute(inputs: Inputs, draw: Callable[[range], Plan], preprocess: Preprocess | None) -> Drawn:
    """Execute the plan `draw(range(1))`. Outputs that it does not change are drawn again, if they are texts.

    `draw` returns the plans of several attempts as one plan, one after another. Each output gets the first attempt that changes
    it. The returned plan has the final draws, so replaying it gives the same inputs.
    """
    plan = draw(range(1))
    if not isinstance(preprocess, RedrawingPreprocess):
        return Drawn(plan, execute(inputs, plan, preprocess))
    samples, rows = (inputs.own, inputs.rows) if isinstance(inputs, Part) else (inputs, range(len(inputs)))
    outputs = preprocess.augment(samples, own_plan(plan, rows, len(inputs)))
    count, drawn = len(plan), [plan]
    begin, end = (end * count // max(1, len(inputs)) for end in (rows.start, rows.stop))
    final = torch.arange(count)  # which output of all drawn plans each output gets
    unchanged = _gather(inputs, torch.from_numpy(outputs.unchanged())).nonzero().squeeze(1)
    for attempts in _REDRAWS:
        if not len(unchanged):
            break
        again = draw(attempts)
        own = unchanged[(unchanged >= begin) & (unchanged < end)]
        several = again[(own + count * torch.arange(len(attempts)).unsqueeze(1)).flatten()]
        several = replace(several, source=several.source - rows.start)
        first = torch.zeros(end - begin, dtype=torch.int64)  # the first attempt that changes the output
        first[own - begin] = torch.from_numpy(outputs.redraw((own - begin).numpy(), several))
        first = _gather(inputs, first)[unchanged]
        final[unchanged] = unchanged + count * (attempts.start + first.clamp(max=len(attempts) - 1))
        unchanged = unchanged[first == len(attempts)]
        drawn.append(again)
    plan = plan if len(drawn) == 1 else Plan.cat(drawn)[final]
    has_transforms = ((plan.ops >= 0) & (plan.levels != 0)).any(dim=1)
    return Drawn(plan, outputs.to_inputs(), (len(unchanged), int(has_transforms[plan.out].sum())))


def _gather(inputs: Inputs, values: Tensor) -> Int64[Tensor, " N"]:
    """Return one number per output. Those of a `Part` are gathered from all ranks."""
    return (inputs.gather(values.float().to(inputs.device)).cpu() if isinstance(inputs, Part) else values).long()


def check_label_type(labels: Tensor, *, multi_label: bool) -> None:
    """Refuse multi-hot labels, of dtype bool, unless a policy expects them, and others if it does."""
    if (labels.dtype == torch.bool) != multi_label:
        raise ValueError(f"multi_label must be {not multi_label} for labels of {labels.dtype}: pass it to Auto")
