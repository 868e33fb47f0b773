"""The checks of the minimum norm estimator, and of the formulas for rank-one updates."""

import numpy as np

from outspan import rng
from outspan.theory import minnorm_bounds, simulate
from outspan.theory.bounds import Setting, Statement
from outspan.theory.checks import Case, Check, make_case, minnorm_check
from outspan.theory.examples import plain
from outspan.theory.generate import orthonormal, projection
from outspan.theory.minnorm import minnorm_error, pinv_update
from outspan.theory.ridge import inverse_update
from outspan.theory.rows import mixed, projected, transformed


def minnorm_cases(seed: int) -> list[Case]:
    """Return the cases of the minimum norm estimator."""
    s, noisy = (plain(40, seed, sigma=sigma) for sigma in (0.05, 0.5))
    F = projection(s.beta, 40, rng.generator(seed, "theory", "least"))
    rows = projected(s.X, transformed(s.X, F, 0))
    estimate = simulate.minnorm_map(s, None)
    deviation = (estimate @ s.X - np.eye(len(s.beta))) @ s.beta
    error = minnorm_error(s.X, s.beta, s.sigma)

    def bias_squares(draws: int, g: np.random.Generator) -> simulate.Draws:
        return simulate.bias_squares(s, estimate, deviation, draws, g)

    def noise_squares(draws: int, g: np.random.Generator) -> simulate.Draws:
        return simulate.noise_squares(s, estimate, draws, g)

    def increase(n: int, p: int) -> Check:
        X = rng.generator(seed, "theory", "rise", n).standard_normal((n, p))
        s = Setting(X, orthonormal(p, 1, rng.generator(seed, "theory", "rise beta", p))[:, 0], 0.2, 0.5)
        return minnorm_check(s, minnorm_bounds.proposition_variance(s, 0, 1, 0.3), mixed(s.X, 0, 1, 0.3), "variance")

    invariant_bias = minnorm_check(s, minnorm_bounds.minnorm_invariant_bias(s, F, 0), rows, "bias")
    invariant_variance = minnorm_check(noisy, minnorm_bounds.minnorm_invariant_variance(noisy, F, 0), rows, "variance")
    mixup_bias = minnorm_check(s, minnorm_bounds.proposition_bias(), mixed(s.X, 0, 1, 0.3), "bias")
    return [
        make_case("Min. norm, bias", "n < p", Check(minnorm_bounds.minnorm_bias(s), error.bias, bias_squares)),
        make_case("Min. norm, variance", "n < p", Check(minnorm_bounds.minnorm_variance(s), error.variance, noise_squares)),
        make_case("Min. norm, invariant, bias", "n < p", invariant_bias),
        make_case("Min. norm, invariant, variance", "n < p", invariant_variance),
        make_case("Proposition, a) bias", "n < p", mixup_bias),
        make_case("Proposition, b) variance", "n < p", *(increase(n, 2 * n) for n in (20, 80))),
        make_case("Proposition, b) variance", "n > p", *(increase(n, 10) for n in (100, 400))),
    ]


def update_cases(seed: int) -> list[Case]:
    """Return the cases of the formulas for rank-one updates: the trace of the updated inverse, and of a new inverse."""
    g = rng.generator(seed, "theory", "tools")
    A, u, v = g.standard_normal((6, 6)) + 4 * np.eye(6), g.standard_normal(6), g.standard_normal(6)
    cases = [make_case("Sherman-Morrison", "A not symmetric", _inverse_check(A, u, v))]
    B = g.standard_normal((6, 3))
    symmetric, general = B @ B.T, B @ g.standard_normal((3, 6))
    for name, matrix, vector in (
        ("outside the span", symmetric, u),
        ("in the span", symmetric, symmetric @ u),
        ("X not symmetric", general, u),
    ):
        cases.append(make_case("Pseudo-inverse update", name, _pseudo_inverse_check(matrix, vector)))
    return cases


def _inverse_check(A: np.ndarray, u: np.ndarray, v: np.ndarray) -> Check:
    """Return the check of the trace of (A + u v^T)^-1. The paper prints its denominator with u and v swapped."""
    inverse = np.linalg.inv(A)
    denominator = 1 + u @ inverse @ v
    printed = float(np.trace(inverse) - (v @ inverse @ inverse @ u) / denominator)
    repaired = float(np.trace(inverse_update(inverse, u, v)))
    statement = Statement("=", printed, repaired, {"1 + uᵀA⁻¹v ≠ 0": bool(denominator)})
    return Check(statement, float(np.trace(np.linalg.inv(A + np.outer(u, v)))))


def _pseudo_inverse_check(A: np.ndarray, u: np.ndarray) -> Check:
    """Return the check of the trace of (A + u u^T)^+. The paper prints it with one s, the part of u outside the rows of A."""
    P = np.linalg.pinv(A)
    s, h = u - P @ (A @ u), u @ P @ u
    if np.linalg.norm(s) > 1e-10 * np.linalg.norm(u):
        s = s / (s @ s)
        printed = np.trace(P) - s @ P @ u - u @ P @ s + (1 + h) * (s @ s)
    else:
        printed = np.trace(P) - u @ P @ P @ u / (1 + h)
    repaired = float(np.trace(pinv_update(A, P, u)))
    statement = Statement("=", float(printed), repaired, {"1 + uᵀX⁺u ≠ 0": bool(1 + h)})
    return Check(statement, float(np.trace(np.linalg.pinv(A + np.outer(u, u)))))
