"""The plain policy: draw one plan per batch and apply it."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from outspan import rng
from outspan.plan import Plan
from outspan.policies.batch import Batch, check_batch, draw_and_execute
from outspan.policies.drawing import check_proposal, draw, draw_several
from outspan.policies.partners import check_same_class, partners_by_class
from outspan.policies.ranks import find_ranks
from outspan.policies.settings import check_settings, check_transforms
from outspan.policies.steps import Proposal, Schedule
from outspan.policies.strength import check_confidence, strength_at
from outspan.policies.targets import make_targets
from outspan.shapes import BatchLabels, Float32, Inputs
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
    same_class: float = -1.0  # fraction of mixing partners that have the sample's class; -1: partners of all classes
    # The settings that all policies share; `Settings` describes them.
    classes: int
    defaults: str | Proposal = "none"
    preprocess: Preprocess | None = None
    strength: float = 1.0
    finish: float = 0.0
    steps: int | None = None
    seed: int = 0
    rank: int | None = None  # of this process, and the number of processes; None: those of the process group
    world: int | None = None

    def __post_init__(self) -> None:
        check_proposal(self.propose)
        find_ranks(self.rank, self.world)
        check_settings(self.defaults, self.preprocess, self.strength, self.finish, self.steps, self.classes)
        check_transforms(self.preprocess, self.propose)
        check_same_class(self.same_class)

    def __call__(
        self, inputs: Inputs, labels: BatchLabels, *, step: int, confidence: Float32[Tensor, " B"] | None = None
    ) -> Batch:
        """Augment a batch. The plan depends only on the seed and the step, and with `same_class` on the labels.

        `confidence`, in [0, 1], multiplies the strength of each sample. With `same_class` the labels must be class indices. If
        they are on a GPU, the host waits for them.
        """
        check_batch(inputs, labels, self.preprocess)
        ranks = find_ranks(self.rank, self.world)
        options = {"strength": self._strength_at(step), "confidence": check_confidence(confidence, len(inputs))}
        options |= {"seed": self.seed, "step": step, "ranks": ranks}

        def redraw(attempts: range) -> Plan:
            plan = draw(self.propose, self.defaults, len(inputs), attempts=attempts, **options)
            if self.same_class < 0:
                return plan
            generators = [rng.generator(self.seed, "partners", step, *ranks[:1] if ranks[0] else ()) for _ in attempts]
            return partners_by_class(plan, labels.cpu(), self.same_class, generators)

        drawn = draw_and_execute(inputs, redraw, self.preprocess)
        targets = make_targets(inputs, labels, drawn.plan, self.classes)
        return Batch(drawn.inputs, targets, drawn.plan, unchanged=drawn.unchanged)

    def draw_several(self, labels: BatchLabels, *, seeds: Sequence[int], step: int) -> Plan:
        """Draw the plans of one step for several seeds as one plan. `labels` has the labels of each seed's batch, in order."""
        size, strength = len(labels) // len(seeds), self._strength_at(step)
        plan = draw_several(self.propose, self.defaults, size, seeds=seeds, step=step, strength=strength)
        if self.same_class < 0:
            return plan
        return partners_by_class(plan, labels, self.same_class, [rng.generator(seed, "partners", step) for seed in seeds])

    def _strength_at(self, step: int) -> float:
        return strength_at(step, self.strength, self.finish, self.steps)
