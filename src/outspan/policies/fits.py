"""How well a model fits the samples that it trains on, and how much each transform lowers this fit.

The *fit* of a sample is exp(-KL divergence between target and prediction). For a sample with one class, this is the probability
that the model gives to the class.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from outspan.devices import to_device
from outspan.plan import Plan
from outspan.policies.losses import entropy, smooth
from outspan.policies.objectives import MULTI_LABEL, SINGLE_LABEL, Objective
from outspan.policies.ranks import sum_over_ranks
from outspan.transforms.table import ALL

NAMES = tuple(ALL)
_MEMORY = 0.8  # weight of the earlier rounds
_RIDGE = 2.0  # rows without an effect that the regression adds for each transform
_DEVIATION = 0.35  # standard deviation of the fit of a sample, at most


@dataclass(frozen=True, eq=False)
class Estimate:
    """What the regression says about the recent rounds."""

    fit: float  # mean fit of samples without transforms
    chance: float  # mean fit of the best prediction that is the same for all samples
    evenness: float  # what was learned of the mean class, relative to the mean sample: below 1 if it is less of rare classes
    drops: np.ndarray  # by transform (NAMES), how much it lowers the fit
    errors: np.ndarray  # their standard errors, about

    @property
    def learned(self) -> float:
        """The fit relative to chance: 0 if the model only guesses, 1 if it is perfect."""
        return _learned(self.fit, self.chance)


class Fits:
    """A linear regression of the fit of a sample on its transforms, over the recent rounds of a run."""

    objective: Objective = SINGLE_LABEL

    def __init__(self, classes: int, label_smoothing: float) -> None:
        self._decisions = 1  # that the loss of a sample is the sum of
        self.classes, self.label_smoothing = classes, label_smoothing
        self._counts = np.zeros((1 + len(NAMES), 1 + len(NAMES)))  # X^T X; column 0 is the intercept
        self._sums = torch.zeros(1 + len(NAMES))  # X^T fit, on the device of the losses
        self._classes = torch.zeros(2, classes)  # sums of the targets, and of the targets times the fit, by class

    def add(self, rows: np.ndarray, losses: Tensor, targets: Tensor, *, world: int = 1) -> None:
        """Add the samples of a batch: the rows that `indicators` returns, their losses [B] and their targets [B, classes].

        With `world` > 1, the batches of all ranks are added, on every rank.
        """
        excess = self.objective.excess(losses, targets, smoothing=self.label_smoothing)
        fit = torch.exp(-excess / self._decisions).nan_to_num(0.0, 0.0, 0.0)
        x, columns = to_device(torch.from_numpy(rows.astype(np.float32)), losses.device), rows.shape[1]
        sums, classes, counts = x.T @ fit, self._sum_by_class(fit, targets), rows.T @ rows
        if world > 1:
            sums, classes = sum_over_ranks(sums), sum_over_ranks(classes)
            counts = sum_over_ranks(to_device(torch.from_numpy(counts), losses.device)).cpu().numpy()
        self._sums, self._classes = self._sums.to(losses.device), self._classes.to(losses.device) + classes
        self._sums[:columns] += sums  # without transforms there is one column, the intercept
        self._counts[:columns, :columns] += counts

    def _sum_by_class(self, fit: Tensor, targets: Tensor) -> Tensor:
        return torch.stack([torch.ones_like(fit), fit]) @ targets

    def end_round(self) -> None:
        """Give the rounds so far a smaller weight than the next one."""
        self._counts, self._sums, self._classes = _MEMORY * self._counts, _MEMORY * self._sums, _MEMORY * self._classes

    def estimate(self) -> Estimate:
        """Solve the regression. On a GPU this waits for the device."""
        penalty = np.diag([1e-3, *[_RIDGE] * len(NAMES)])
        fit, *effects = np.linalg.solve(self._counts + penalty, self._sums.double().cpu().numpy())
        errors = min(_DEVIATION, max(fit, 0.0)) / np.sqrt(np.maximum(np.diag(self._counts)[1:], 1))
        return Estimate(float(fit), *self._chance_and_evenness(), -np.array(effects), errors)

    def _chance_and_evenness(self) -> tuple[float, float]:
        counts, fits = self._classes.double().cpu()
        constant, seen = self._constant(counts / counts.sum()), counts > 0
        chance = float(counts @ constant / counts.sum())
        of_samples = _learned(float(fits.sum() / counts.sum()), chance)
        of_classes = _learned(float((fits[seen] / counts[seen]).mean()), float(constant[seen].mean()))
        return chance, _ratio(of_classes, of_samples)

    def _constant(self, frequency: Tensor) -> Tensor:
        """Return the fit of each class for the prediction that is best if it is the same for all samples."""
        one = torch.nn.functional.one_hot(torch.tensor([0]), self.classes).double()
        lowest = float(entropy(smooth(one, self.label_smoothing)))
        log = smooth(frequency, self.label_smoothing).clamp(min=1e-12).log()
        losses = -(1 - self.label_smoothing) * log - self.label_smoothing * log.mean()
        return torch.exp(lowest - losses)

    def drawn(self) -> np.ndarray:
        """Return which transforms were drawn so far, bool by NAMES."""
        return np.diag(self._counts)[1:] > 0

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors that a checkpoint must store."""
        # `add` changes the sums in place.
        return {"counts": torch.from_numpy(self._counts.copy()), "sums": self._sums.clone(), "classes": self._classes}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a `state_dict`, or from a larger one that contains it."""
        self._counts = state["counts"].cpu().numpy().copy()
        self._sums, self._classes = state["sums"].clone(), state["classes"].clone()


def with_new_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a state of a policy with the transforms that were added to the end of the table since it was stored."""
    added = 1 + len(NAMES) - len(state["sums"]) if state.get("sums", torch.empty(())).ndim == 1 else 0
    if added <= 0:
        return state
    fill = {"counts": ((0, added, 0, added), 0.0), "sums": ((0, added), 0.0), "weights": ((0, added), 1.0)}
    padded = {
        name: torch.nn.functional.pad(state[name], pad, value=value) for name, (pad, value) in fill.items() if name in state
    }
    return state | padded


class MultiLabelFits(Fits):
    """The same for samples with several labels, whose loss is the sum over the classes.

    The fit of a sample is then the geometric mean, over the classes, of the probability of the right answer. Even a model that
    predicts the frequency of each class has a high fit, if labels are rare. So `learned` is relative to this model.
    """

    objective = MULTI_LABEL

    def __init__(self, classes: int, label_smoothing: float) -> None:
        super().__init__(classes, label_smoothing)
        self._decisions = classes
        # By class, and in the last column for all samples: sums of the targets, of the targets times the fit of the model, and
        # of the targets times the fit of predicting frequencies.
        self._classes = torch.zeros(3, classes + 1)

    def _sum_by_class(self, fit: Tensor, targets: Tensor) -> Tensor:
        ones = torch.ones_like(fit)
        columns = torch.cat([targets, ones.unsqueeze(1)], 1)
        sums = self._classes[0].to(targets.device) + columns.sum(0)
        frequency = self.objective.smooth((sums[:-1] / sums[-1]).clamp(1e-6, 1 - 1e-6), self.label_smoothing)
        classes, smoothed = self.classes, self.objective.smooth(targets, self.label_smoothing)
        losses = functional.binary_cross_entropy(frequency.expand_as(targets), smoothed, reduction="none").sum(1)
        constant = torch.exp((self.objective.entropy(smoothed) - losses) / classes)
        return torch.stack([ones, fit, constant]) @ columns

    def _chance_and_evenness(self) -> tuple[float, float]:
        counts, fits, constant = self._classes.double().cpu()
        chance, seen = float(constant[-1] / counts[-1]), counts[:-1] > 0
        fits, constant = ((sums[:-1][seen] / counts[:-1][seen]) for sums in (fits, constant))
        weights = counts[:-1][seen] / counts[:-1].sum()
        of_classes = _learned(float(fits.mean()), float(constant.mean()))
        of_samples = _learned(float(fits @ weights), float(constant @ weights))
        return chance, _ratio(of_classes, of_samples) if bool(seen.any()) else 1.0


def _ratio(of_classes: float, of_samples: float) -> float:
    return min(max(of_classes / max(of_samples, 1e-6), 0.0), 1.0)


def _learned(fit: float, chance: float) -> float:
    return (fit - chance) / max(1 - chance, 1e-6)


def indicators(plan: Plan, steps: int | None = None) -> np.ndarray:
    """Return a 1 for each transform of each output, float64 [outputs, 1 + transforms]; column 0 is 1.

    Only the first `steps` transforms of each output count; None counts all.
    """
    ops = plan.ops[plan.out, :steps].numpy()
    rows = np.zeros((len(ops), 2 + len(NAMES)))
    rows[:, 0] = 1
    columns = np.array([1 + NAMES.index(name) for name in plan.names] + [1 + len(NAMES)])  # the last is for "no transform"
    rows[np.arange(len(ops))[:, None], columns[ops]] = 1  # op -1 is the last
    return rows[:, :-1]
