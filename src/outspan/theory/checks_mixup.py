"""The checks of Theorem 2, its lemma and the moments of mixup."""

from collections.abc import Callable

import numpy as np

from outspan import rng
from outspan.theory import mixup, simulate
from outspan.theory.bounds import Setting, Statement
from outspan.theory.checks import Case, Check, make_case, ridge_check
from outspan.theory.examples import line, wide_centred
from outspan.theory.generate import centred
from outspan.theory.rows import mixed

_ALPHA = 0.3


def mixup_cases(seed: int) -> list[Case]:
    """Return the cases of mixup."""
    X = centred(40, 20, 1.05, rng.generator(seed, "theory", "centred"))
    beta = np.linalg.qr(X.T)[0][:, 0]
    s, noisy = Setting(X, beta, 0.9, 0.02), Setting(X, beta, 0.9, 1.0)
    wide = wide_centred(seed)
    return [
        *_second_moment(X),
        make_case("Mixup, the constant c", "Beta(0.4, 0.7)", _constant(0.4, 0.7)),
        make_case("Theorem 2", "γ = 1.05", _theorem_2(s, 1.05)),
        make_case("Theorem 2", "±3 on a line", _theorem_2(line(40, sigma=0.005), 3.0)),
        make_case("Theorem 2", "σ = 1", _theorem_2(noisy, 1.05)),
        make_case("Lemma 2, bias", "the worst pair, α = 0.3", _worst_pair(wide, mixup.lemma_2_bias, "bias")),
        make_case("Lemma 2, variance", "the worst pair, α = 0.3", _worst_pair(wide, mixup.lemma_2_variance, "variance")),
        make_case("Lemma 2, noise", "α = 0.3", _noise(s)),
    ]


def _second_moment(X: np.ndarray) -> list[Case]:
    """Return the cases of E|x|^2 of a mixup sample x: partners drawn independently, and distinct partners."""
    n = len(X)
    squares = np.sum((_ALPHA * X[:, None] + (1 - _ALPHA) * X[None]) ** 2, axis=2)
    distinct = (squares.sum() - np.trace(squares)) / (n * (n - 1))

    def sample(draws: int, g: np.random.Generator, *, replacement: bool) -> simulate.Draws:
        i = g.integers(0, n, draws)
        j = g.integers(0, n, draws) if replacement else (i + g.integers(1, n, draws)) % n
        return squares[i, j]

    def check(exact: float, replacement: bool) -> Check:
        statement = mixup.mixup_moment(X, _ALPHA, replacement=replacement)
        return Check(statement, float(exact), lambda draws, g: sample(draws, g, replacement=replacement))

    return [
        make_case("Mixup, second moment", "independent partners", check(squares.mean(), True)),
        make_case("Mixup, second moment", "distinct partners", check(distinct, False)),
    ]


def _constant(a: float, b: float) -> Check:
    """Return the check of c = E[(1 - 2 alpha)^2]."""
    c = mixup.beta_constant(a, b)
    nodes, weights = mixup.beta_nodes(a, b)
    exact = float(weights @ (1 - 2 * nodes) ** 2)
    return Check(Statement("=", c, c, {}), exact, lambda draws, g: (1 - 2 * g.beta(a, b, draws)) ** 2)


def _theorem_2(s: Setting, gamma: float) -> Check:
    """Return the check of Theorem 2 against the mean over all pairs and over alpha."""
    exact = sum(mixup.mixup_gain(s))
    return Check(mixup.theorem_2(s, gamma), exact, lambda draws, g: simulate.mixup_decrease(s, 1.0, 1.0, draws, g))


def _worst_pair(s: Setting, lemma: Callable[[Setting, int, int, float], Statement], part: simulate.Part) -> Check:
    """Return the check of a lemma for the pair where it deviates most. The lemma states a bound for every pair."""
    checks = [
        ridge_check(s, lemma(s, i, j, _ALPHA), mixed(s.X, i, j, _ALPHA), fixed_penalty=True, part=part)
        for i in range(8)
        for j in range(8)
    ]
    return max(checks, key=lambda check: check.statement.printed - check.exact)


def _noise(s: Setting) -> Check:
    """Return the check of E|X_aug^T noise_aug|^2."""
    added = mixed(s.X, 0, 1, _ALPHA)
    B = s.X.T + added.x.T @ added.weights
    exact = s.sigma**2 * float(np.sum(B**2))
    return Check(mixup.mixup_noise(s, 0, 1, _ALPHA), exact, lambda draws, g: simulate.noise_squares(s, B, draws, g))
