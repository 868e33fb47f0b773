"""Algorithm 1: draw several random candidates per sample and train on those with the highest loss."""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor, nn

from outspan import rng
from outspan.devices import to_device
from outspan.limits import check_whole
from outspan.messages import shown
from outspan.models.evaluating import evaluating
from outspan.models.outputs import read_logits
from outspan.plan import Plan
from outspan.policies.batch import Batch, check_batch, draw_and_execute
from outspan.policies.drawing import check_proposal, draw
from outspan.policies.losses import check_loss, sample_losses, soft_cross_entropy
from outspan.policies.objectives import MULTI_LABEL, find_objective
from outspan.policies.ranks import Part, find_ranks
from outspan.policies.settings import check_settings, check_transforms
from outspan.policies.steps import Proposal, Schedule
from outspan.policies.strength import check_confidence, strength_at
from outspan.policies.targets import make_targets
from outspan.shapes import BatchLabels, Float32, Inputs, Int64
from outspan.transforms.normalize import Preprocess

_POWERS = {"max": math.inf, "proportional": 1.0}


@dataclass(frozen=True)
class Uncertain:
    """A policy that draws several random compositions of transforms per sample and keeps those with the highest loss.

    Example::

        policy = outspan.Uncertain(model, outspan.uniform(depth=2), candidates=4, preprocess=normalize)
        batch = policy(images, labels, step=step)  # step: the number of batches so far, over all epochs
        loss = outspan.soft_cross_entropy(model(batch.inputs), batch.targets)

    The loss is that of the current model in evaluation mode. docs/policies.md describes all options.
    """

    model: nn.Module
    propose: Proposal | Schedule
    _: KW_ONLY
    candidates: int = 4  # number of compositions drawn per sample
    keep: int = 1  # number of them that are returned; the batch becomes `keep` times as large
    select: str | float = "max"  # or "proportional" to the loss, or to a power of it (a number)
    score: str = "loss"  # or "excess": the loss minus its minimum for a mixed label
    score_every: int = 1  # k: score only every k-th step, and draw at random in the others
    loss: Callable[..., Tensor] = soft_cross_entropy  # of logits and soft targets: a function with `reduction`, or a module
    # The settings that all policies share; `Settings` describes them.
    classes: int | None = None  # None: the number of the model's logits
    defaults: str | Proposal = "none"
    preprocess: Preprocess | None = None
    strength: float = 1.0
    finish: float = 0.0
    steps: int | None = None
    seed: int = 0
    rank: int | None = None  # of this process, and the number of processes; None: those of the process group
    world: int | None = None

    def __post_init__(self) -> None:
        for name in ("candidates", "keep", "score_every"):
            check_whole(name, getattr(self, name), 1)
        if self.keep > self.candidates:
            raise ValueError(f"keep must be in [1, {self.candidates}], got {self.keep}")
        if self.score not in ("loss", "excess"):
            raise ValueError(f"score must be 'loss' or 'excess', got {shown(self.score)}")
        known = isinstance(self.select, str) and self.select in _POWERS
        if not known and not (isinstance(self.select, int | float) and self.select >= 0):
            raise ValueError(f"select must be 'max', 'proportional' or a power of at least 0, got {shown(self.select)}")
        if not isinstance(self.model, nn.Module):
            raise ValueError(f"model must be a torch module, got {type(self.model).__name__}")
        check_loss(self.loss)
        check_proposal(self.propose)
        find_ranks(self.rank, self.world)
        check_settings(self.defaults, self.preprocess, self.strength, self.finish, self.steps, self.classes)
        check_transforms(self.preprocess, self.propose)

    def __call__(
        self, inputs: Inputs, labels: BatchLabels, *, step: int, confidence: Float32[Tensor, " B"] | None = None
    ) -> Batch:
        """Return `keep` augmented samples for each sample of the batch; those of one sample are adjacent.

        `confidence`, in [0, 1], multiplies the strength of each sample.
        """
        check_batch(inputs, labels, self.preprocess)
        objective = find_objective(labels)
        if objective is MULTI_LABEL and self.loss is soft_cross_entropy:
            raise ValueError(
                "loss is the cross entropy, for one label per sample, and the labels are multi-hot: pass loss="
                "torch.nn.BCEWithLogitsLoss()"
            )
        ranks = find_ranks(self.rank, self.world)
        options = {"seed": self.seed, "step": step, "ranks": ranks, "confidence": check_confidence(confidence, len(inputs))}
        strength = strength_at(step, self.strength, self.finish, self.steps)
        scoring = step % self.score_every == 0 and self.keep < self.candidates and strength > 0
        count = self.candidates if scoring else self.keep
        options |= {"candidates": count, "strength": strength}

        def redraw(attempts: range) -> Plan:
            return draw(self.propose, self.defaults, len(inputs), attempts=attempts, **options)

        drawn = draw_and_execute(inputs, redraw, self.preprocess)
        plan, augmented = drawn.plan, drawn.inputs
        if not scoring:
            targets = make_targets(inputs, labels, plan, self._count_classes(augmented))
            return Batch(augmented, targets, plan, unchanged=drawn.unchanged)
        with evaluating(self.model):
            logits = _logits(self.model(augmented))
            if self.classes not in (None, logits.shape[1]):
                raise ValueError(f"classes must be the number of the model's logits, {logits.shape[1]}, got {self.classes}")
            targets = make_targets(inputs, labels, plan, logits.shape[1])
            losses = self._score(logits, targets, inputs).view(len(inputs), count)
            score = losses - objective.entropy(targets).view_as(losses) if self.score == "excess" else losses
        chosen = choose(score, self.keep, self._power, seed=self.seed, step=step, ranks=ranks)
        losses, targets = losses.clone(), targets.clone()  # tensors of inference mode cannot be trained on
        own = chosen
        if isinstance(inputs, Part):
            own = chosen[inputs.rows.start * self.keep : inputs.rows.stop * self.keep] - inputs.rows.start * count
        return Batch(augmented[own], targets[chosen], plan, chosen, losses, drawn.unchanged)

    def _score(self, logits: Tensor, targets: Tensor, inputs: Inputs) -> Tensor:
        """Return the loss of each candidate. Those of a `Part` are gathered: every rank scores its own."""
        if isinstance(inputs, Part):
            count = len(targets) // len(inputs)
            targets = targets[inputs.rows.start * count : inputs.rows.stop * count]
        losses = sample_losses(self.loss, logits, targets)
        return inputs.gather(losses) if isinstance(inputs, Part) else losses

    @property
    def _power(self) -> float:
        return _POWERS[self.select] if isinstance(self.select, str) else float(self.select)

    def _count_classes(self, augmented: Tensor) -> int:
        if self.classes is not None:
            return self.classes
        with evaluating(self.model):
            return _logits(self.model(augmented[:1])).shape[1]


def _logits(output: object) -> Float32[Tensor, "B classes"]:
    logits = read_logits(output)
    if logits.ndim != 2:
        raise ValueError(f"the model must return logits, a tensor [B, classes], got a tensor {list(logits.shape)}")
    return logits.float()


def choose(
    losses: Float32[Tensor, "images candidates"],
    keep: int,
    power: float,
    *,
    seed: int,
    step: int,
    ranks: tuple[int, int] = (0, 1),
) -> Int64[Tensor, " kept"]:
    """Return the outputs to keep, `keep` per sample: the highest losses, or distinct draws in proportion to loss ** power.

    `ranks` are the rank of this process and the number of ranks; each rank has its own draws.
    """
    images, candidates = losses.shape
    score = losses.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)  # NaN would sort first and be chosen
    if power != math.inf:
        # The largest of log(weight) + Gumbel noise is a draw in proportion to the weight.
        (rank, world), generator = ranks, rng.generator(seed, "select", step)
        noise = generator.gumbel(size=(world, images, candidates))[rank].astype("float32")
        weight = power * score.clamp(min=1e-30).log() if power else torch.zeros_like(score)
        drawn = weight + to_device(torch.from_numpy(noise), losses.device)
        score = torch.where(score == -math.inf, score, drawn)
    best = score.topk(keep, dim=1).indices
    return (best + candidates * torch.arange(images, device=losses.device).unsqueeze(1)).flatten()
