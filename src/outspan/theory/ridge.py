"""Ridge regression: the estimator, its exact bias and variance with any added rows, and the rank-one update.

For n < p an n x n system is solved and no p x p matrix is built.
"""

from dataclasses import dataclass

import numpy as np

from outspan.shapes import Float64
from outspan.theory.rows import Rows, check_model, finite


@dataclass(frozen=True, slots=True)
class Error:
    """The expected squared distance of an estimator b from beta: bias |E[b] - beta|^2 and variance E|b - E[b]|^2."""

    bias: float
    variance: float

    @property
    def total(self) -> float:
        """The estimation error e(b) = bias + variance."""
        return self.bias + self.variance

    def __sub__(self, other: "Error") -> "Error":
        return Error(self.bias - other.bias, self.variance - other.variance)


def ridge_estimate(X: Float64[np.ndarray, "n p"], Y: Float64[np.ndarray, "..."], lam: float) -> Float64[np.ndarray, "..."]:
    """Return (X^T X + n lam I)^-1 X^T Y, of shape [p] for Y [n] and [p, c] for Y [n, c]."""
    _check_lam(lam)
    finite("X", X)
    finite("Y", Y)
    if len(X) != len(Y):
        raise ValueError(f"X and Y must have the same number of rows, got {len(X)} and {len(Y)}")
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
    fixed_penalty: bool = True,
) -> Error:
    """Return bias and variance of the ridge estimator b = (X^T X + n lam I)^-1 X^T Y.

    Y = X beta + noise of standard deviation sigma. The bias is |E[b] - beta|^2, the variance E|b - E[b]|^2. With k rows
    `added`, whose labels are weights @ Y, the penalty is n lam, or (n + k) lam if `fixed_penalty` is false.
    """
    check_model(X, beta, sigma, added)
    _check_lam(lam)
    n, p = X.shape
    k = 0 if added is None else len(added.x)
    penalty = lam * (n if fixed_penalty else n + k)
    A = X if added is None else np.concatenate([X, added.x])
    if len(A) < p:
        gram = A @ A.T
        system = gram + penalty * np.eye(len(A))
        labels = np.eye(n) if added is None else np.concatenate([np.eye(n), added.weights])
        solved = np.linalg.solve(system, np.column_stack([labels @ (X @ beta), labels]))
        deviation = beta - A.T @ solved[:, 0]
        variance = np.sum(solved[:, 1:] * (gram @ solved[:, 1:]))
    else:
        # E[b] - beta = (A^T A + penalty)^-1 (A^T label_error - penalty beta). label_error is the mean error of the labels of
        # the added rows: 0 if the augmentation keeps the labels correct.
        source, B = penalty * beta, X.T
        if added is not None:
            label_error = added.weights @ (X @ beta) - added.x @ beta
            source, B = source - added.x.T @ label_error, X.T + added.x.T @ added.weights
        solved = np.linalg.solve(A.T @ A + penalty * np.eye(p), np.column_stack([source, B]))
        deviation, variance = solved[:, 0], np.sum(solved[:, 1:] ** 2)
    return Error(float(deviation @ deviation), float(sigma**2 * variance))


def inverse_update(
    A_inv: Float64[np.ndarray, "d d"], u: Float64[np.ndarray, " d"], v: Float64[np.ndarray, " d"]
) -> Float64[np.ndarray, "d d"]:
    """Return (A + u v^T)^-1 = A^-1 - A^-1 u v^T A^-1 / (1 + v^T A^-1 u), the Sherman-Morrison formula."""
    denominator = 1 + v @ A_inv @ u
    if abs(denominator) <= 1e-14 * (1 + abs(v) @ abs(A_inv) @ abs(u)):
        raise ValueError("A + u v^T must be invertible, got 1 + v^T A^-1 u = 0")
    return A_inv - np.outer(A_inv @ u, v @ A_inv) / denominator


def _check_lam(lam: float) -> None:
    if not 0 < lam < np.inf:
        raise ValueError(
            f"lam must be above 0 for ridge regression, got {lam}; for the limit at 0 use outspan.theory.minnorm_error"
        )
