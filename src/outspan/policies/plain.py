"""The plain policy: draw one plan per batch and apply it."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from outspan import rng
from outspan.plan import Plan
from outspan.policies.batch import Batch, check_batch, check_preprocess, execute
from outspan.policies.drawing import check_proposal, draw_several, find_defaults
from outspan.policies.partners import check_same_class, partners_by_class
from outspan.policies.steps import Proposal, Schedule
from outspan.policies.strength import check_strength, strength_at
from outspan.policies.targets import make_targets
from outspan.shapes import Inputs, Num
from outspan.transforms.normalize import Preprocess


@dataclass(frozen=True)
class Plain:
    """A policy that draws random transforms for every sample from a proposal, and applies them.

    Example::

        policy = outspan.Plain(outspan.randaugment(2, 9), classes=10, defaults="flip", preprocess=normalize)
        batch = policy(images, labels, step=step)  # step: the number of batches so far, over all epochs
        loss = outspan.soft_cross_entropy(model(batch.inputs), batch.targets)
    """

    propose: Proposal | Schedule
    _: KW_ONLY
    same_class: float = -1.0  # fraction of mixing partners that have the sample's class; -1 does not look at classes
    classes: int  # number of classes, the width of the soft targets
    defaults: str | Proposal = "none"  # transforms that are applied after those of the proposal, e.g. "flip"
    preprocess: Preprocess | None = None  # usually `Normalize`; None scales pixels to [0, 1]
    strength: float = 1.0  # scales the levels and probabilities of the proposal, not of the defaults
    finish: float = 0.0  # last fraction of the steps, in which only the defaults are applied
    steps: int | None = None  # total number of steps of the run; needed for `finish`
    seed: int = 0

    def __post_init__(self) -> None:
        check_proposal(self.propose)
        find_defaults(self.defaults)
        check_preprocess(self.preprocess)
        check_strength(self.strength, self.finish, self.steps)
        check_same_class(self.same_class)

    def __call__(self, inputs: Inputs, labels: Num[Tensor, "B ..."], *, step: int) -> Batch:
        """Augment a batch. The plan depends only on the seed and the step, and with `same_class` on the labels.

        With `same_class` the labels must be class indices. If they are on a GPU, the host waits for them.
        """
        check_batch(inputs, labels, self.preprocess)
        plan = self.draw_several(labels if self.same_class < 0 else labels.cpu(), seeds=[self.seed], step=step)
        return Batch(execute(inputs, plan, self.preprocess), make_targets(inputs, labels, plan, self.classes), plan)

    def draw_several(self, labels: Num[Tensor, "B ..."], *, seeds: Sequence[int], step: int) -> Plan:
        """Draw the plans of one step for several seeds as one plan; `labels` are those of all seeds' batches, in order."""
        size, strength = len(labels) // len(seeds), strength_at(step, self.strength, self.finish, self.steps)
        plan = draw_several(self.propose, self.defaults, size, seeds=seeds, step=step, strength=strength)
        if self.same_class < 0:
            return plan
        return partners_by_class(plan, labels, self.same_class, [rng.generator(seed, "partners", step) for seed in seeds])
