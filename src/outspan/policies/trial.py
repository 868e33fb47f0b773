"""The trial of weak transforms in the policy `auto`: does a model still predict the label of a crop or a flip?"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from outspan.policies.fits import NAMES, Estimate
from outspan.transforms.table import find

UNDECIDED = -1.0  # the fraction of the draws of a weak transform that will be applied, before the end of its trial
_PART = 0.12  # first fraction of the run, in which a few samples get the weak transforms
_EPOCHS = 10.0  # and of the epochs, if this is less: later a model may have memorized the samples as they are
_LONGEST = 0.25  # of the run, while the model has hardly learned anything
_FEWEST_ROUNDS = 3
_LITTLE = 0.15  # learned
# The loss of fit, relative to the fit above chance, up to which a weak transform is used after the trial, and from which not.
_SAFE, _UNSAFE = 0.24, 0.29
_UNGRADED = 0.75  # both limits are lower for a transform without a level, such as a flip, because it cannot be weakened


@dataclass(frozen=True)
class Trial:
    """When the trial ends, in a run of `steps` that is cut into rounds."""

    epochs: float
    steps: int
    round_steps: int

    @property
    def earliest(self) -> int:
        """The step at which it ends if the model has learned enough to tell."""
        return self._round_up(min(_PART, _EPOCHS / self.epochs))

    @property
    def latest(self) -> int:
        """The step at which it ends in any case."""
        return max(self.earliest, self._round_up(_LONGEST))

    def is_over(self, estimate: Estimate, step: int) -> bool:
        """Return whether the weak transforms can be judged after this number of steps."""
        return step >= (self.earliest if estimate.learned > _LITTLE else self.latest)

    def _round_up(self, part: float) -> int:
        return self.round_steps * max(_FEWEST_ROUNDS, math.ceil(part * self.steps / self.round_steps))


def judge(names: Iterable[str], estimate: Estimate) -> dict[str, float]:
    """Return the fraction of the draws of each weak transform that will be applied: 0 if the model has learned nothing."""
    above_chance = estimate.fit - estimate.chance
    return {name: _judge(name, estimate, above_chance) if above_chance > 0 else 0.0 for name in names}


def _judge(name: str, estimate: Estimate, above_chance: float) -> float:
    index = NAMES.index(name)
    most = (estimate.drops[index] + estimate.errors[index]) / above_chance / (1 if find(name).graded else _UNGRADED)
    return min(max(float((_UNSAFE - most) / (_UNSAFE - _SAFE)), 0.0), 1.0)
