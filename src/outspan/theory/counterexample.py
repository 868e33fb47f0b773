"""Counterexamples to Theorem 1 as printed: the smallest possible case, and a correctly labelled sample that hurts."""

from dataclasses import dataclass

import numpy as np

from outspan.theory.bounds import Setting, Statement, theorem_1, theorem_1_rate
from outspan.theory.examples import spiked, swap
from outspan.theory.generate import flip
from outspan.theory.ridge import ridge_error
from outspan.theory.rows import projected, transformed


@dataclass(frozen=True)
class Counterexample:
    """The gain of one sample: as printed, and exact with the penalty (n + 1) lam (`grown`) and fixed n lam (`fixed`)."""

    n: int
    p: int
    printed: float
    grown: float
    fixed: float
    met: bool  # whether the conditions of the theorem are met


@dataclass(frozen=True)
class CounterexampleReport:
    """The counterexample to equation 1, and those to equation 2 for several n."""

    smallest: Counterexample
    spike: tuple[Counterexample, ...]


def counterexamples() -> CounterexampleReport:
    """Return the smallest counterexample to equation 1, and those to equation 2 at n = 10, 40 and 160."""
    return CounterexampleReport(smallest(), tuple(spike(n) for n in (10, 40, 160)))


def smallest() -> Counterexample:
    """Return equation 1 for one sample in two dimensions: X = (1, 0), beta = (1, 1), F a flip, lam = 1/2, no noise."""
    s = Setting(np.array([[1.0, 0.0]]), np.ones(2), 0.5, 0.0)
    return _counterexample(s, flip(2), theorem_1(s, flip(2), 0))


def spike(n: int, *, seed: int = 0) -> Counterexample:
    """Return equation 2 if all samples share an entry along beta: the larger penalty loses more than the sample gains."""
    s = spiked(n, seed, spike=1.0, sigma=0.0)
    return _counterexample(s, swap(s), theorem_1_rate(s, swap(s), 0))


def _counterexample(s: Setting, F: np.ndarray, statement: Statement) -> Counterexample:
    rows = projected(s.X, transformed(s.X, F, 0))
    before = ridge_error(s.X, s.beta, s.lam, s.sigma)
    grown = before - ridge_error(s.X, s.beta, s.lam, s.sigma, added=rows, fixed_penalty=False)
    fixed = before - ridge_error(s.X, s.beta, s.lam, s.sigma, added=rows, fixed_penalty=True)
    return Counterexample(s.n, s.X.shape[1], statement.printed, grown.total, fixed.total, statement.met)
