"""The batch that a policy returns, and checks of the arguments of a policy."""

from dataclasses import dataclass, field

from torch import Tensor

from outspan.plan import Plan
from outspan.policies.ranks import Part, own_plan
from outspan.shapes import Float32, Inputs, Int64, Normalized, Num
from outspan.transforms.normalize import DEFAULT_PREPROCESS, Preprocess


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

    @property
    def plan(self) -> Plan:
        """The plan of these inputs, without the candidates that were not kept. On a GPU, reading it waits for the device."""
        return self.drawn if self.chosen is None else self.drawn[self.chosen.cpu()]


def check_preprocess(preprocess: object) -> None:
    """Raise a ValueError unless `preprocess` is None or can execute plans."""
    if not isinstance(preprocess, Preprocess | None):
        name = f"{type(preprocess).__module__}.{type(preprocess).__name__}"
        raise ValueError(f"preprocess must be an outspan.Normalize, or another Preprocess, got {name}")


def check_batch(inputs: Inputs, labels: Num[Tensor, "B ..."], preprocess: Preprocess | None) -> None:
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
