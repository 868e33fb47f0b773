"""A policy that sets the strength of the augmentation, and how often it uses each transform, while the model trains.

It reads only the losses of the batches that the model trains on. So it costs little, holds no data out, and works for images
and texts. A run is cut into at least 50 rounds. After each round, a linear regression over the rows of the most recent rounds
estimates the *fit*, which is exp(-KL divergence between target and prediction), for samples without transforms, and how much
each transform lowers it. For a sample with one class, the fit is the probability of this class. docs/policies.md gives the
rules and docs/research.md the measurements behind them.
"""

import math
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
import torch
from torch import Tensor

from outspan import rng
from outspan.devices import to_device
from outspan.limits import check_positive, check_value
from outspan.plan import Plan
from outspan.policies.batch import Batch, check_batch, execute
from outspan.policies.drawing import add_defaults, check_proposal, draw
from outspan.policies.losses import entropy, excess_loss, smooth
from outspan.policies.settings import check_settings
from outspan.policies.state import check_state
from outspan.policies.steps import Proposal, Schedule
from outspan.policies.strength import check_confidence, strength_at
from outspan.policies.targets import make_targets
from outspan.shapes import Float32, Inputs, Num
from outspan.transforms.normalize import Preprocess
from outspan.transforms.table import ALL

NAMES = tuple(ALL)
_ROUNDS = 50
_MEMORY = 0.8  # weight of the earlier rounds in the regression
_RIDGE = 2.0  # rows without an effect that the regression adds for each transform
_FIRST_EPOCHS, _FULL_EPOCHS = 5.0, 50.0
_LIMITS = (50.0, 200.0, 400.0), (1.0, 2.0, 3.0)  # the highest strength by the number of epochs
_STRONGEST = 2.0  # beyond, the strength says how many samples are mixed: half of them at 3
_MIXED = 0.5
_GOOD_FIT, _POOR_FIT = 0.9, 0.15  # above the first the strength rises, below the second it falls
_WELL_LEARNED = 0.8  # and only if so much was learned beyond the most frequent classes
_UNTOUCHED = 16  # one of so many samples has no transforms, so that the regression can tell what the transforms do
_SPEED = 10.0  # at a fit of 1, the strength rises by 1 in a tenth of the run
_HARMLESS, _HARMFUL = 0.5, 0.75  # relative loss of fit from which a transform is used less, and at which almost never
_RAREST = 0.05  # every transform is still tried sometimes, so that its weight can rise again
_DEVIATION = 0.35  # standard deviation of the fit of a row, about


@dataclass(eq=False)
class Auto:
    """A policy that adapts strength and transforms to the data, the model and the length of the run.

    The strength starts from the number of epochs: 0 up to 5 epochs, 1 from 50 on. It rises while the model fits samples
    without transforms well, to at most 1, or 2 in runs of 200 epochs. In longer runs, up to half of the samples are then also
    mixed with the proposal `mix`, such as `outspan.cutmix()`. The strength falls if the model learns almost nothing. A
    transform with which the model cannot predict the label becomes rare, for example a change of color where the color is
    the class. Call `learn` with the losses of every batch.

    Example::

        policy = outspan.Auto(outspan.natural(), epochs=20, steps=20 * len(loader), classes=10, preprocess=normalize)
        batch = policy(images, labels, step=step)
        losses = outspan.soft_cross_entropy(model(batch.inputs), batch.targets, reduction="none")
        losses.mean().backward()
        policy.learn(losses.detach(), step=step)
    """

    propose: Proposal | Schedule
    _: KW_ONLY
    epochs: float  # how often the run sees each sample
    mix: Proposal | None = None  # what is also applied to some samples in runs of more than 200 epochs
    label_smoothing: float = 0.0  # that of the losses
    # The settings that all policies share; `Settings` describes them.
    classes: int
    defaults: str | Proposal = "none"
    preprocess: Preprocess | None = None
    strength: float = 1.0
    finish: float = 0.0
    steps: int | None = None
    seed: int = 0
    adapted: float = field(init=False)  # the strength that the policy has chosen; `strength` multiplies it
    weights: np.ndarray = field(init=False, repr=False)  # by transform (NAMES), the fraction of its draws that are applied
    _counts: np.ndarray = field(init=False, repr=False)  # X^T X of the regression; column 0 is the intercept
    _sums: Tensor = field(init=False, repr=False)  # X^T fit, on the device of the losses
    _targets: Tensor = field(init=False, repr=False)  # sum of the targets of all samples so far, by class
    _batch: tuple[np.ndarray, Tensor] | None = field(init=False, default=None, repr=False)  # X and the targets of this step

    def __post_init__(self) -> None:
        check_proposal(self.propose)
        if self.mix is not None:
            check_proposal(self.mix, "mix")
        check_settings(self.defaults, self.preprocess, self.strength, self.finish, self.steps, self.classes)
        if self.steps is None:
            raise ValueError("steps is missing: pass the total number of steps of the run")
        check_positive("epochs", self.epochs)
        check_value("label_smoothing", self.label_smoothing)
        self.adapted = self._start
        self.weights = np.ones(len(NAMES))
        self._counts, self._sums = np.zeros((1 + len(NAMES), 1 + len(NAMES))), torch.zeros(1 + len(NAMES))
        self._targets = torch.zeros(self.classes)

    def __call__(
        self, inputs: Inputs, labels: Num[Tensor, "B ..."], *, step: int, confidence: Float32[Tensor, " B"] | None = None
    ) -> Batch:
        """Augment a batch. The plan depends on the seed, the step, and on what `learn` has read in earlier rounds.

        `confidence`, in [0, 1], multiplies the strength of each sample.
        """
        check_batch(inputs, labels, self.preprocess)
        confidence = check_confidence(confidence, len(inputs))
        strength = strength_at(step, self._strength, self.finish, self.steps)
        plan, rows = self._draw(len(inputs), step, strength, confidence)
        plan = add_defaults(plan, self.defaults, len(inputs), seeds=[self.seed], step=step)
        targets = make_targets(inputs, labels, plan, self.classes)
        self._batch = rows, targets
        return Batch(execute(inputs, plan, self.preprocess), targets, plan)

    def _draw(self, size: int, step: int, strength: float, confidence: Tensor | None) -> tuple[Plan, np.ndarray]:
        """Draw the transforms of a step, and return them with the rows of the regression."""
        if not strength:
            plan = draw(self.propose, "none", size, seed=self.seed, step=step, strength=0.0)
            return plan, np.ones((size, 1))
        weights = dict(zip(NAMES, self.weights.tolist(), strict=True))
        confidence = torch.ones(size) if confidence is None else confidence.clone()
        confidence[-step % _UNTOUCHED :: _UNTOUCHED] = 0.0
        options = {"step": step, "confidence": confidence}
        plan = draw(self.propose, "none", size, seed=self.seed, strength=strength, weights=weights, **options)
        if self._mixed and self.mix is not None:
            weights = {name: self._mixed * weight for name, weight in weights.items()}
            mixing = draw(self.mix, "none", size, seed=rng.derive(self.seed, "mix"), weights=weights, **options)
            plan = plan.then(mixing)
        return plan, _indicators(plan)

    def learn(self, losses: Float32[Tensor, " B"], *, step: int) -> None:
        """Read the losses of the batch that this policy returned last, one per sample. They are not changed."""
        if self._batch is None or losses.shape != self._batch[1].shape[:1]:
            count = "no batch" if self._batch is None else f"a batch of {len(self._batch[1])}"
            how = 'compute them with reduction="none"'
            raise ValueError(f"losses must be one per sample of the last batch, {how}: got {list(losses.shape)} for {count}")
        (rows, targets), self._batch = self._batch, None
        fit = torch.exp(-excess_loss(losses, targets, smoothing=self.label_smoothing)).nan_to_num(0.0, 0.0, 0.0)
        x, columns = to_device(torch.from_numpy(rows.astype(np.float32)), losses.device), rows.shape[1]
        self._sums, self._targets = self._sums.to(losses.device), self._targets.to(losses.device) + targets.sum(0)
        self._sums[:columns] += x.T @ fit  # without transforms there is one column, the intercept
        self._counts[:columns, :columns] += rows.T @ rows
        assert self.steps is not None
        length = max(1, self.steps // _ROUNDS)
        if (step + 1) % length == 0:
            self._adapt((step + 1) / self.steps, length / self.steps)
            self._counts, self._sums = _MEMORY * self._counts, _MEMORY * self._sums

    def _adapt(self, done: float, length: float) -> None:
        """Set the weights and the strength after a round; `done` and `length` are fractions of the run."""
        if done <= 2 * length or done >= 1 - self.finish:
            return  # too few rows, or no transforms
        penalty = np.diag([1e-3, *[_RIDGE] * len(NAMES)])
        solution = np.linalg.solve(self._counts + penalty, self._sums.double().cpu().numpy())
        fit, effects = float(solution[0]), solution[1:]
        chance = self._chance()
        learned = (fit - chance) / max(1 - chance, 1e-6)
        if learned > _POOR_FIT:
            scale = max(fit - chance, 0.05)
            rows = np.maximum(np.diag(self._counts)[1:], 1)
            loss = (-effects - _DEVIATION / np.sqrt(rows)) / scale  # at least, given the error of the estimate
            self.weights = np.clip((_HARMFUL - loss) / (_HARMFUL - _HARMLESS), _RAREST, 1)
            drive = min((fit - _GOOD_FIT) / (1 - _GOOD_FIT), (learned - _WELL_LEARNED) / (1 - _WELL_LEARNED))
            limit = self._limit
            if self.adapted < self._start:  # it fell while the model learned almost nothing
                drive, limit = 1.0, self._start
            self.adapted = min(limit, self.adapted + _SPEED * length * max(drive, 0.0))
        elif done > 0.25:  # before, a low fit says only that the run is young
            self.adapted = max(0.0, self.adapted - _SPEED * length)

    def _chance(self) -> float:
        """Return the mean fit of the best prediction that is the same for all samples; 1 / classes if they are balanced."""
        counts = self._targets.double().cpu()
        frequency = counts / counts.sum()
        one = torch.nn.functional.one_hot(torch.tensor([0]), self.classes).double()
        lowest = float(entropy(smooth(one, self.label_smoothing)))
        log = smooth(frequency, self.label_smoothing).clamp(min=1e-12).log()
        losses = -(1 - self.label_smoothing) * log - self.label_smoothing * log.mean()
        return float(frequency @ torch.exp(lowest - losses))

    def metrics(self) -> dict[str, float]:
        """Return the strength, the fraction of mixed samples, and the weights of the transforms that were drawn."""
        drawn = zip(NAMES, self.weights, np.diag(self._counts)[1:], strict=True)
        weights = {f"weight_{name}": float(weight) for name, weight, count in drawn if count}
        mixed = {"mixed": self._mixed} if self.mix is not None else {}
        return {"strength": self._strength, **mixed, **weights}

    def describe(self) -> str:
        """Return what the policy does now, e.g. "strength 0.40, rarely invert and solarize"."""
        rare = [name for name, weight in zip(NAMES, self.weights, strict=True) if weight < 0.5]
        parts = [f"strength {self._strength:.2f}"]
        parts += [f"{100 * self._mixed:.0f} % mixed"] if self._mixed else []
        return ", ".join(parts + ([f"rarely {' and '.join(rare)}"] if rare else []))

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors that a checkpoint must store."""
        arrays = {"adapted": np.array(self.adapted), "weights": self.weights, "counts": self._counts}
        tensors = {"sums": self._sums.clone(), "targets": self._targets}  # `learn` adds to the sums in place
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()} | tensors

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a `state_dict`; tensors that do not fit this policy raise a ValueError."""
        check_state(self.state_dict(), state)
        self.adapted = float(state["adapted"])
        self.weights, self._counts = state["weights"].cpu().numpy().copy(), state["counts"].cpu().numpy().copy()
        self._sums, self._targets, self._batch = state["sums"].clone(), state["targets"].clone(), None

    @property
    def _start(self) -> float:
        """The strength at the start of a run of this length."""
        return float(np.clip((self.epochs - _FIRST_EPOCHS) / (_FULL_EPOCHS - _FIRST_EPOCHS), 0, 1))

    @property
    def _limit(self) -> float:
        """The highest strength of a run of this length."""
        return min(float(np.interp(self.epochs, *_LIMITS)), _STRONGEST if self.mix is None else math.inf)

    @property
    def _strength(self) -> float:
        """The strength of the transforms now."""
        return self.strength * min(self.adapted, _STRONGEST)

    @property
    def _mixed(self) -> float:
        """The fraction of the samples that are mixed now."""
        return _MIXED * max(self.adapted - _STRONGEST, 0.0)


def _indicators(plan: Plan) -> np.ndarray:
    """Return a 1 for each transform of each output, float64 [outputs, 1 + transforms]; column 0 is 1."""
    ops = plan.ops[plan.out].numpy()
    rows = np.zeros((len(ops), 2 + len(NAMES)))
    rows[:, 0] = 1
    columns = np.array([1 + NAMES.index(name) for name in plan.names] + [1 + len(NAMES)])  # the last is for "no transform"
    rows[np.arange(len(ops))[:, None], columns[ops]] = 1  # op -1 is the last
    return rows[:, :-1]
