"""Ridge regression, exactly: the estimator, its bias and variance, with any rows added, and the rank-one update.

With n < p everything goes through the n x n system; no p x p matrix is made.
"""

from dataclasses import dataclass

import numpy as np

from outspan.shapes import Float64
from outspan.theory.rows import Rows, check, finite


@dataclass(frozen=True, slots=True)
class Error:
    """The expected squared distance of an estimator from beta: |E[b] - beta|^2 and E|b - E[b]|^2."""

    bias: float
    variance: float

    @property
    def total(self) -> float:
        """The estimation error e(b)."""
        return self.bias + self.variance

    def __sub__(self, other: "Error") -> "Error":
        return Error(self.bias - other.bias, self.variance - other.variance)


def ridge_estimate(X: Float64[np.ndarray, "n p"], Y: Float64[np.ndarray, "..."], lam: float) -> Float64[np.ndarray, "..."]:
    """Return (X^T X + n lam I)^-1 X^T Y, of shape [p] for Y [n], [p, c] for Y [n, c]."""
    _check_lam(lam)
    finite("X", X)
    finite("Y", Y)
    if len(X) != len(Y):
        raise ValueError(f"X and Y must have as many rows, got {len(X)} and {len(Y)}")
    n, p = X.shape
    if n < p:
        return X.T @ np.linalg.solve(X @ X.T + n * lam * np.eye(n), Y)
    return np.linalg.solve(X.T @ X + n * lam * np.eye(p), X.T @ Y)


def ridge_error(
    X: Float64[np.ndarray, "n p"],
    beta: Float64[np.ndarray, " p"],
    lam: float,
    sigma: float,
    *,
    added: Rows | None = None,
    hold: bool = True,
) -> Error:
    """Return bias and variance of the ridge estimator from Y = X beta + noise of deviation sigma.

    With k rows `added` the penalty n lam stays as it is, or becomes (n + k) lam where `hold` is false.
    """
    check(X, beta, sigma, added)
    _check_lam(lam)
    n, p = X.shape
    k = 0 if added is None else len(added.x)
    penalty = lam * (n if hold else n + k)
    A = X if added is None else np.concatenate([X, added.x])
    if len(A) < p:
        gram = A @ A.T
        system = gram + penalty * np.eye(len(A))
        labels = np.eye(n) if added is None else np.concatenate([np.eye(n), added.weights])
        solved = np.linalg.solve(system, np.column_stack([labels @ (X @ beta), labels]))
        off = beta - A.T @ solved[:, 0]
        spread = np.sum(solved[:, 1:] * (gram @ solved[:, 1:]))
    else:
        # The mean departs from beta by (A^T A + penalty)^-1 (A^T wrong - penalty beta), with `wrong` by how much the labels of
        # the added rows are off in the mean: 0 where the augmentation keeps the labels right.
        source, B = penalty * beta, X.T
        if added is not None:
            wrong = added.weights @ (X @ beta) - added.x @ beta
            source, B = source - added.x.T @ wrong, X.T + added.x.T @ added.weights
        solved = np.linalg.solve(A.T @ A + penalty * np.eye(p), np.column_stack([source, B]))
        off, spread = solved[:, 0], np.sum(solved[:, 1:] ** 2)
    return Error(float(off @ off), float(sigma**2 * spread))


def inverse_update(
    A_inv: Float64[np.ndarray, "d d"], u: Float64[np.ndarray, " d"], v: Float64[np.ndarray, " d"]
) -> Float64[np.ndarray, "d d"]:
    """Return (A + u v^T)^-1 from A^-1 by Sherman and Morrison: the denominator is 1 + v^T A^-1 u."""
    denominator = 1 + v @ A_inv @ u
    if abs(denominator) <= 1e-14 * (1 + abs(v) @ abs(A_inv) @ abs(u)):
        raise ValueError("A + u v^T must be invertible, got 1 + v^T A^-1 u = 0")
    return A_inv - np.outer(A_inv @ u, v @ A_inv) / denominator


def _check_lam(lam: float) -> None:
    if not 0 < lam < np.inf:
        raise ValueError(f"lam must be above 0 for ridge, got {lam}; its limit at 0 is in outspan.theory.minnorm")
