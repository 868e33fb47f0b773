"""A policy that sets the strength of the augmentation, and how often it uses each transform, while the model trains.

It reads only the losses of the batches that the model trains on. So it costs little, holds no data out, and works for images
and texts. A run of 50 steps or more is cut into at least 50 rounds. After each round, a regression over the samples of the
most recent rounds estimates the *fit* of samples without transforms, and how much each transform lowers it (`Fits`).
docs/policies.md gives the rules and docs/research.md the measurements behind them.
"""

import math
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
import torch
from torch import Tensor

from outspan import rng
from outspan.limits import check_positive, check_value
from outspan.plan import Plan
from outspan.policies.batch import Batch, check_batch, check_label_type, draw_and_execute
from outspan.policies.drawing import add_defaults, check_addition, check_proposal, draw, find_defaults, names_of
from outspan.policies.fits import NAMES, Estimate, Fits, MultiLabelFits, indicators, with_new_names
from outspan.policies.ranks import find_ranks
from outspan.policies.settings import check_settings, check_transforms
from outspan.policies.state import check_state
from outspan.policies.steps import Proposal, Schedule
from outspan.policies.strength import check_confidence, strength_at
from outspan.policies.targets import make_targets
from outspan.policies.trial import UNDECIDED, Trial, judge
from outspan.shapes import BatchLabels, Float32, Inputs
from outspan.transforms.normalize import Preprocess
from outspan.transforms.table import find

_ROUNDS = 50
# By epochs: strength at the start, highest strength, fit above which it rises, fraction of samples mixed at a strength of 2.
_STARTS = (2.8, 50.0, 200.0, 400.0), (0.0, 1.0, 1.0, 2.0)
_LIMITS = (50.0, 200.0), (1.0, 2.0)
_GOOD_FITS = (50.0, 100.0), (0.9, 0.95)
_MIXED = (200.0, 400.0), (0.0, 0.5)
_CROPPED = (50.0, 200.0), (0.4, 1.0)  # factor of the strength if crops are used: they augment, too
_WELL_LEARNED = 0.8  # the strength rises only if so much was learned beyond the most frequent classes
_RISE = 0.6  # and in this first fraction of the run: later the fit rises because the learning rate falls
_POOR_FIT, _FAIR_FIT = 0.15, 0.5  # if less than this was learned, the strength falls: to 0, and to 1
_YOUNG = 0.2  # but not in this first fraction of the run, in which a low fit says nothing
_READ_EVERY, _FEW_STEPS = 4, 8  # the losses of every 4th step are read, in rounds of so many steps or more: this costs less
_UNTOUCHED = 16  # one of so many samples of these has no transforms, so that the regression can tell what the transforms do
_SPEED = 10.0  # at a fit of 1, the strength rises by 1 in a tenth of the run
_HARMLESS, _HARMFUL = 0.5, 0.75  # relative loss of fit from which a transform is used less, and at which almost never
_RAREST = 0.05  # every transform is still tried sometimes, so that its weight can rise again
_TRIED, _TRIAL_EVERY = 0.6, 4  # in the trial, the fraction of the draws of weak transforms that are applied, in every 4th step
_TRIAL_STRENGTH = 0.5  # the highest strength then: stronger transforms would hide what the weak ones do


@dataclass(eq=False)
class Auto:
    """A policy that adapts strength and transforms to the data, the model and the length of the run.

    The strength starts from the number of epochs: 0 below 3 epochs, 0.5 at 12, 1 from 50 to 200, 2 from 400 on. It rises while
    the model fits samples without transforms well, and falls if the model learns too little. It is lower while the model has
    learned less of rare classes. In runs of more than 200 epochs, some samples are also mixed with the proposal `mix`, such as
    `outspan.cutmix()`; at a strength of 2 it is up to half of them. A transform with which the model cannot predict the label
    becomes rare, for example a change of color where the color is the class.

    The transforms of `weak`, such as `outspan.crop_and_flip()`, are right for most photographs and wrong for digits or text in
    images. In the first eighth of the run, a few samples get them. Those that hardly lower the fit are used after this trial.
    With crops, the strength of the other transforms is lower.

    Call `learn` with the losses of every batch.

    Example::

        transforms = {"propose": outspan.natural(), "weak": outspan.crop_and_flip()}
        policy = outspan.Auto(**transforms, epochs=20, steps=20 * len(loader), classes=10, preprocess=normalize)
        batch = policy(images, labels, step=step)
        losses = outspan.soft_cross_entropy(model(batch.inputs), batch.targets, reduction="none")
        losses.mean().backward()
        policy.learn(losses.detach(), step=step)
    """

    propose: Proposal | Schedule
    _: KW_ONLY
    epochs: float  # how often the run sees each sample
    weak: Proposal | None = None  # transforms that are used only if a trial shows that the model still predicts the label
    mix: Proposal | None = None  # what is also applied to some samples in runs of more than 200 epochs
    label_smoothing: float = 0.0  # that of the losses
    multi_label: bool = False  # any number of labels per sample: the losses are sums of binary cross entropies
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
    adapted: float = field(init=False)  # the strength that the policy has chosen; `strength` multiplies it
    evenness: float = field(init=False, default=1.0)  # multiplies it, too; below 1 if rare classes are learned less
    weights: np.ndarray = field(init=False, repr=False)  # by transform (NAMES), the fraction of its draws that are applied
    safe: dict[str, float] = field(init=False, repr=False)  # by weak transform, the same: what the trial shows; before, -1
    _fits: Fits = field(init=False, repr=False)
    _batch: tuple[np.ndarray | None, Tensor, int] | None = field(init=False, default=None, repr=False)  # for `learn`

    def __post_init__(self) -> None:
        check_proposal(self.propose)
        find_ranks(self.rank, self.world)
        for name, proposal in (("weak", self.weak), ("mix", self.mix)):
            check_addition(name, proposal)
        check_settings(self.defaults, self.preprocess, self.strength, self.finish, self.steps, self.classes)
        check_transforms(self.preprocess, self.propose, self.weak, self.mix)
        if self.steps is None:
            raise ValueError("steps is missing: pass the total number of steps of the run")
        check_positive("epochs", self.epochs)
        check_value("label_smoothing", self.label_smoothing)
        self.adapted = self._at(_STARTS)
        self.weights = np.ones(len(NAMES))
        always = names_of(find_defaults(self.defaults))  # these need no trial
        self.safe = {name: UNDECIDED for name in names_of(self.weak) if name not in always}
        self._fits = (MultiLabelFits if self.multi_label else Fits)(self.classes, self.label_smoothing)

    def __call__(
        self, inputs: Inputs, labels: BatchLabels, *, step: int, confidence: Float32[Tensor, " B"] | None = None
    ) -> Batch:
        """Augment a batch. The plan depends on the seed, the step, and on what `learn` has read in earlier rounds.

        `confidence`, in [0, 1], multiplies the strength of each sample.
        """
        check_batch(inputs, labels, self.preprocess)
        check_label_type(labels, multi_label=self.multi_label)
        confidence = check_confidence(confidence, len(inputs))
        strength = strength_at(step, self._strength, self.finish, self.steps)
        ranks = find_ranks(self.rank, self.world)
        depth = 0

        def redraw(attempts: range) -> Plan:
            nonlocal depth
            plan = self._draw(len(inputs), step, strength, confidence, ranks, attempts)
            depth = plan.ops.shape[1]
            seeds = [self.seed] * len(attempts)
            return add_defaults(plan, self.defaults, len(inputs), seeds=seeds, step=step, ranks=ranks)

        drawn = draw_and_execute(inputs, redraw, self.preprocess)
        targets = make_targets(inputs, labels, drawn.plan, self.classes)
        rows = None
        if not step % self._read_every:
            rows = indicators(drawn.plan, depth) if strength else np.ones((len(inputs), 1))
        self._batch = rows, targets, ranks[1]
        return Batch(drawn.inputs, targets, drawn.plan, unchanged=drawn.unchanged)

    def _draw(
        self, size: int, step: int, strength: float, confidence: Tensor | None, ranks: tuple[int, int], attempts: range
    ) -> Plan:
        """Draw the transforms of a step."""
        if not strength:
            return draw(self.propose, "none", size, seed=self.seed, step=step, strength=0.0, attempts=attempts)
        read, rest = divmod(step, self._read_every)
        touched = None
        if not rest:
            touched = torch.ones(size)
            touched[(-read - ranks[0] * size) % _UNTOUCHED :: _UNTOUCHED] = 0.0
            confidence = touched if confidence is None else touched * confidence
        options = {"step": step, "confidence": confidence, "ranks": ranks, "attempts": attempts}
        weights = dict(zip(NAMES, self.weights.tolist(), strict=True))
        safe, weak_options = self.safe, {**options, "strength": min(1.0, 2 * strength)}
        if self._is_trial and step < self._trial.latest:
            strength = min(strength, _TRIAL_STRENGTH)
            safe = dict.fromkeys(self.safe, 0.0 if step % _TRIAL_EVERY else _TRIED)
            weak_options |= {"strength": 1.0, "confidence": touched}
        drawn = weights if self.weights.min() < 1 else None  # without weights, a draw takes less time
        plan = draw(self.propose, "none", size, seed=self.seed, strength=strength, weights=drawn, **options)
        if self.weak is not None and any(safe.values()):
            safe = {name: weight * max(safe.get(name, 0.0), 0.0) for name, weight in weights.items()}
            plan = plan.then(draw(self.weak, "none", size, seed=rng.derive(self.seed, "weak"), weights=safe, **weak_options))
        if self.mix is not None and self._mixed:
            mixed = {name: weight * self._mixed for name, weight in weights.items()}
            plan = plan.then(draw(self.mix, "none", size, seed=rng.derive(self.seed, "mix"), weights=mixed, **options))
        return plan

    def learn(self, losses: Float32[Tensor, " B"], *, step: int) -> None:
        """Read the losses of the batch that this policy returned last, one per sample. They are not changed.

        In several processes every process must call this: all learn from the losses of all.
        """
        if self._batch is None or losses.shape != self._batch[1].shape[:1]:
            count = "no batch" if self._batch is None else f"a batch of {len(self._batch[1])}"
            how = 'compute them with reduction="none"'
            raise ValueError(f"losses must be one per sample of the last batch, {how}: got {list(losses.shape)} for {count}")
        (rows, targets, world), self._batch = self._batch, None
        if rows is not None:
            self._fits.add(rows, losses, targets, world=world)
        if (step + 1) % self._round_steps:
            return
        done = (step + 1) / self._total
        if 2 * self._round_steps < step + 1 and done < 1 - self.finish:  # before, there are too few rows; then no transforms
            estimate = self._fits.estimate()
            if self._is_trial and self._trial.is_over(estimate, step + 1):
                self.safe = judge(self.safe, estimate)
            self._adapt(estimate, done)
        if step + 1 >= self._trial.latest:  # without a decision, weak transforms are not used
            self.safe = {name: max(fraction, 0.0) for name, fraction in self.safe.items()}
        self._fits.end_round()

    def _adapt(self, estimate: Estimate, done: float) -> None:
        """Set the weights and the strength after a round; `done` is a fraction of the run."""
        change, start, young = _SPEED * self._round_steps / self._total, min(self._at(_STARTS), 1.0), done <= _YOUNG
        if estimate.learned <= _POOR_FIT:
            self.adapted = self.adapted if young else max(0.0, self.adapted - change)
            return
        self.evenness = estimate.evenness
        least = (estimate.drops - estimate.errors) / max(estimate.fit - estimate.chance, 0.05)  # relative to chance
        self.weights = np.clip((_HARMFUL - least) / (_HARMFUL - _HARMLESS), _RAREST, 1)
        if self.adapted < start:  # it fell while the model learned almost nothing
            self.adapted = min(start, self.adapted + change)
        elif estimate.learned < _FAIR_FIT and not young:
            self.adapted = min(self.adapted, max(1.0, self.adapted - change))
        elif done <= _RISE:
            good = self._at(_GOOD_FITS)
            drive = min((estimate.fit - good) / (1 - good), (estimate.learned - _WELL_LEARNED) / (1 - _WELL_LEARNED))
            self.adapted = min(max(self._at(_LIMITS), self.adapted), self.adapted + change * max(drive, 0.0))

    def metrics(self) -> dict[str, float]:
        """Return the strength, the mixed fraction, and the weights of drawn transforms; weak ones after the trial."""
        drawn = [name for name, is_drawn in zip(NAMES, self._fits.drawn(), strict=True) if is_drawn]
        safe = {name: self.safe.get(name, 1.0) for name in drawn if self.safe.get(name) != UNDECIDED}
        weights = {f"weight_{name}": float(self.weights[NAMES.index(name)]) * fraction for name, fraction in safe.items()}
        mixed = {"mixed": self._mixed} if self.mix is not None else {}
        return {"strength": self._applied_strength, **mixed, **weights}

    def describe(self) -> str:
        """Return what the policy does now, e.g. "strength 0.40, with random_crop, rarely invert and solarize"."""
        rare = [name for name, weight in zip(NAMES, self.weights, strict=True) if weight < 0.5]
        weak = [name for name, weight in self.safe.items() if weight >= 0.5]
        parts = [f"strength {self._applied_strength:.2f}"]
        parts += [f"{100 * self._mixed:.0f} % mixed"] if self._mixed else []
        parts += [f"{how} {' and '.join(names)}" for how, names in (("with", weak), ("rarely", rare)) if names]
        return ", ".join(parts)

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors that a checkpoint must store."""
        safe = torch.tensor([*self.safe.values()], dtype=torch.float64)
        adapted = torch.tensor([self.adapted, self.evenness], dtype=torch.float64)
        return {"adapted": adapted, "safe": safe, "weights": torch.from_numpy(self.weights.copy()), **self._fits.state_dict()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a `state_dict`; tensors that do not fit this policy raise a ValueError."""
        check_state(self.state_dict(), state := with_new_names(state))
        self.adapted, self.evenness = state["adapted"].tolist()
        self.weights = state["weights"].cpu().numpy().copy()
        self.safe = dict(zip(self.safe, state["safe"].tolist(), strict=True))
        self._fits.load_state_dict(state)
        self._batch = None

    @property
    def _total(self) -> int:
        """Steps of the run."""
        assert self.steps is not None  # __post_init__ refuses None
        return self.steps

    @property
    def _round_steps(self) -> int:
        """Steps of a round."""
        return max(1, self._total // _ROUNDS)

    @property
    def _read_every(self) -> int:
        """The losses of every so many-th step are read."""
        return _READ_EVERY if self._round_steps >= _FEW_STEPS else 1

    @property
    def _trial(self) -> Trial:
        """The trial of the weak transforms."""
        return Trial(self.epochs, self._total, self._round_steps)

    @property
    def _strength(self) -> float:
        """The strength of the transforms now, outside the trial."""
        cropped = max([0.0, *(fraction for name, fraction in self.safe.items() if find(name).graded)])
        return self.strength * self.adapted * self.evenness * (1 - cropped * (1 - self._at(_CROPPED)))

    @property
    def _is_trial(self) -> bool:
        """Whether the weak transforms are still tried."""
        return UNDECIDED in self.safe.values()

    @property
    def _applied_strength(self) -> float:
        """The strength of the transforms now."""
        return min(self._strength, _TRIAL_STRENGTH) if self._is_trial else self._strength

    @property
    def _mixed(self) -> float:
        """The fraction of the samples that are mixed now."""
        return self._at(_MIXED) * max(self.adapted * self.evenness - 1, 0.0) * min(self.strength, 1.0)

    def _at(self, by_epochs: tuple[tuple[float, ...], tuple[float, ...]]) -> float:
        """Interpolate a value between numbers of epochs, linearly in their logarithm."""
        epochs, values = by_epochs
        return float(np.interp(math.log(self.epochs), np.log(epochs), values))
