"""Rows that augmentation adds to the data. Their labels depend linearly on the training labels.

Every augmentation of the paper has this form. A label-invariant transform keeps the label of its source (weights e_i).
Mixup mixes two labels (alpha e_i + (1 - alpha) e_j). From a projected row, the part inside the span of the data is
subtracted. The weights determine the mean of the new labels, and how their noise depends on the training noise.
"""

from dataclasses import dataclass

import numpy as np

from outspan.shapes import Float64


@dataclass(frozen=True, eq=False)
class Rows:
    """k rows x [k, p] to add to the data X, Y. Their labels are weights @ Y, with weights [k, n]."""

    x: Float64[np.ndarray, "k p"]
    weights: Float64[np.ndarray, "k n"]

    def __post_init__(self) -> None:
        for name, values in (("x", self.x), ("weights", self.weights)):
            finite(f"{name} of the rows", values)
        if len(self.x) != len(self.weights):
            raise ValueError(f"{len(self.x)} rows need {len(self.x)} rows of weights, got {len(self.weights)}")


def transformed(X: Float64[np.ndarray, "n p"], F: Float64[np.ndarray, "p p"], i: int) -> Rows:
    """Return F x_i with the label of x_i."""
    source = _unit(len(X), i)
    return Rows((X[i] @ F.T)[None], source[None])


def mixed(X: Float64[np.ndarray, "n p"], i: int, j: int, alpha: float) -> Rows:
    """Return the mixup sample alpha x_i + (1 - alpha) x_j, with the label mixed in the same way."""
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must lie in [0, 1], got {alpha}")
    weights = alpha * _unit(len(X), i) + (1 - alpha) * _unit(len(X), j)
    return Rows((weights @ X)[None], weights[None])


def summed(first: Rows, second: Rows) -> Rows:
    """Return the additive composition: the sums of the rows and of their labels."""
    return Rows(first.x + second.x, first.weights + second.weights)


def join(*rows: Rows) -> Rows:
    """Return all rows in one object."""
    return Rows(np.concatenate([r.x for r in rows]), np.concatenate([r.weights for r in rows]))


def projected(X: Float64[np.ndarray, "n p"], rows: Rows) -> Rows:
    """Return the part z of each row x outside the span of X and of the rows before it, with the label y - <(X^T)^+ x, Y>.

    The paper prints diag((X^T)^+ x) Y, which is not a number.
    """
    _check_rows(X, rows)
    A, L, P = X, np.eye(len(X)), np.linalg.pinv(X.T)
    for x, weights in zip(rows.x, rows.weights, strict=True):
        inside = P @ x
        z = x - A.T @ inside
        z -= A.T @ (P @ z)  # again: the first step leaves rounding errors inside the span
        if np.linalg.norm(z) <= 1e-12 * np.linalg.norm(x):
            z = np.zeros_like(z)  # inside the span: the rest is rounding error
        A, L = np.vstack([A, z]), np.vstack([L, weights - inside @ L])
        P = np.vstack([P, z / (z @ z or 1.0)])  # z is orthogonal to all before it
    return Rows(A[len(X) :], L[len(X) :])


def is_label_invariant(
    F: Float64[np.ndarray, "p p"], X: Float64[np.ndarray, "n p"], beta: Float64[np.ndarray, " p"], *, tolerance: float = 1e-9
) -> bool:
    """Return whether <Fx, beta> = <x, beta> for every row x of X.

    >>> X, beta = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.array([1.0, -0.5, 0.5])
    >>> is_label_invariant(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]]), X, beta)  # the paper's example
    True
    """
    if F.shape != (X.shape[1],) * 2:
        raise ValueError(f"F must have shape {[X.shape[1]] * 2}, got {list(F.shape)}")
    finite("F", F)
    deviation = np.abs(X @ (F.T @ beta - beta))
    return bool(np.all(deviation <= tolerance * np.linalg.norm(X, axis=1) * np.linalg.norm(beta)))


def finite(name: str, values: Float64[np.ndarray, "..."]) -> None:
    """Raise a ValueError that names the argument if a value is NaN or infinite."""
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, got {values[~np.isfinite(values)][0]}")


def check_model(
    X: Float64[np.ndarray, "n p"], beta: Float64[np.ndarray, " p"], sigma: float, added: Rows | None = None
) -> None:
    """Raise a ValueError if shapes do not match, a value is not finite, or sigma is negative."""
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"X must be a matrix with at least one row and one column, got shape {list(X.shape)}")
    if beta.shape != X.shape[1:]:
        raise ValueError(f"beta must have {X.shape[1]} entries, as a row of X has, got shape {list(beta.shape)}")
    for name, values in (("X", X), ("beta", beta)):
        if values.dtype != np.float64:
            raise ValueError(f"{name} must be float64, got {values.dtype}")
        finite(name, values)
    if not 0 <= sigma < np.inf:
        raise ValueError(f"sigma must be at least 0, got {sigma}")
    if added is not None:
        _check_rows(X, added)


def _check_rows(X: Float64[np.ndarray, "n p"], rows: Rows) -> None:
    if rows.x.shape[1] != X.shape[1] or rows.weights.shape[1] != len(X):
        expected, got = [X.shape[1], len(X)], [rows.x.shape[1], rows.weights.shape[1]]
        raise ValueError(f"added rows and their weights must have {expected} columns for X of shape {list(X.shape)}, got {got}")


def _unit(n: int, i: int) -> Float64[np.ndarray, " n"]:
    if not 0 <= i < n:
        raise ValueError(f"the index of a row of X must lie in [0, {n - 1}], got {i}")
    return np.eye(1, n, i)[0]
