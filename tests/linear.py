"""Random data for the tests of the theory, with more, fewer and as many samples as dimensions."""

from collections.abc import Callable, Sequence

import numpy as np

from outspan import rng
from outspan.shapes import Float64
from outspan.theory.bounds import Setting
from outspan.theory.generate import orthonormal
from outspan.theory.ridge import Error, ridge_error
from outspan.theory.rows import Rows


def setting(case: int, *, n: int = 0, p: int = 0) -> Setting:
    """Return Gaussian data. Penalty, noise and, by default, the sizes are drawn with the number of the case as the seed."""
    g = rng.generator(case, "setting")
    n, p = n or int(g.integers(1, 30)), p or int(g.integers(1, 40))
    return Setting(g.standard_normal((n, p)), g.standard_normal(p), float(g.uniform(0.01, 2)), float(g.uniform(0, 2)))


def any_rows(case: int, s: Setting) -> Rows:
    """Return a few rows with random labels."""
    g = rng.generator(case, "rows")
    k = int(g.integers(1, 4))
    return Rows(g.standard_normal((k, s.X.shape[1])), g.standard_normal((k, s.n)))


def direct_error(s: Setting, added: Rows | None, fit: Callable[[np.ndarray], np.ndarray]) -> list[float]:
    """Return the bias and the variance of an estimator by definition. `fit` returns its matrix from labels to coefficients."""
    A, L = s.X, np.eye(s.n)
    if added is not None:
        A, L = np.vstack([A, added.x]), np.vstack([L, added.weights])
    M = fit(A) @ L
    off = M @ s.X @ s.beta - s.beta
    return [float(off @ off), float(s.sigma**2 * np.trace(M @ M.T))]


def ridge_decrease(s: Setting, added: Rows, fixed_penalty: bool) -> Error:
    """Return the decrease of the error of ridge regression by added rows, from direct solves."""
    return ridge_error(s.X, s.beta, s.lam, s.sigma) - ridge_error(
        s.X, s.beta, s.lam, s.sigma, added=added, fixed_penalty=fixed_penalty
    )


def with_spectrum(
    singular: Float64[np.ndarray, " r"], n: int, p: int, rng: np.random.Generator, *, spikes: Sequence[np.ndarray] = ()
) -> Float64[np.ndarray, "n p"]:
    """Return a random [n, p] matrix with these singular values, the first of them along the orthonormal `spikes`."""
    r = len(singular)
    if not len(spikes) <= r <= min(n, p):
        raise ValueError(
            f"{len(spikes)} spikes and shape [{n}, {p}] need {len(spikes)} to {min(n, p)} singular values, got {r}"
        )
    V = np.column_stack([*spikes, orthonormal(p, r - len(spikes), rng, beside=spikes)])
    return (orthonormal(n, r, rng) * singular) @ V.T
