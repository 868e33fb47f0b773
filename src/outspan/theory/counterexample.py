"""Where Theorem 1 fails as printed: the smallest case there is, and one where a correctly labelled sample hurts."""

from dataclasses import dataclass

import numpy as np

from outspan.theory.bounds import Setting, Statement, theorem_1, theorem_1_rate
from outspan.theory.generate import flip
from outspan.theory.ridge import ridge_error
from outspan.theory.rows import projected, transformed
from outspan.theory.verify import spiked, swap


@dataclass(frozen=True)
class Case:
    """The gain of one sample: as printed, and exactly with the penalty (n + 1) lam and with n lam held."""

    n: int
    p: int
    printed: float
    grown: float
    held: float
    met: bool  # whether the conditions are


def smallest() -> Case:
    """Return equation 1 of one sample in two dimensions: X = (1, 0), beta = (1, 1), F a flip, lam = 1/2, no noise."""
    s = Setting(np.array([[1.0, 0.0]]), np.ones(2), 0.5, 0.0)
    return _case(s, flip(2), theorem_1(s, flip(2), 0))


def spike(n: int, *, seed: int = 0) -> Case:
    """Return equation 2 where all samples share an entry along beta: the larger penalty takes more than the new one gives."""
    s = spiked(n, seed, spike=1.0, sigma=0.0)
    return _case(s, swap(s), theorem_1_rate(s, swap(s), 0))


def _case(s: Setting, F: np.ndarray, said: Statement) -> Case:
    rows = projected(s.X, transformed(s.X, F, 0))
    before = ridge_error(s.X, s.beta, s.lam, s.sigma)
    grown, held = (before - ridge_error(s.X, s.beta, s.lam, s.sigma, added=rows, hold=hold) for hold in (False, True))
    return Case(s.n, s.X.shape[1], said.printed, grown.total, held.total, said.met)
