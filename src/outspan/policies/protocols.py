"""What training expects of a policy."""

from typing import Protocol, runtime_checkable

from torch import Tensor

from outspan.policies.batch import Batch
from outspan.shapes import BatchLabels, Inputs


@runtime_checkable
class Policy(Protocol):
    """Turns a batch of samples into augmented inputs and soft targets."""

    def __call__(self, inputs: Inputs, labels: BatchLabels, *, step: int, confidence: Tensor | None = None) -> Batch: ...


@runtime_checkable
class LearningPolicy(Policy, Protocol):
    """A policy that learns from the losses of its batches; checkpoints store its state."""

    def learn(self, losses: Tensor, *, step: int) -> None: ...

    def metrics(self) -> dict[str, float]: ...  # what the policy does now, for the metrics of an epoch

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None: ...
