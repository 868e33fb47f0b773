"""The minimum norm estimator, exactly: X^+ Y, its bias and variance, and rank-one updates of a pseudo-inverse."""

import numpy as np

from outspan.shapes import Float64
from outspan.theory.ridge import Error
from outspan.theory.rows import Rows, check, finite


def minnorm_estimate(X: Float64[np.ndarray, "n p"], Y: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " p"]:
    """Return X^+ Y, the shortest of the vectors that fit Y best."""
    finite("X", X)
    finite("Y", Y)
    if len(X) != len(Y):
        raise ValueError(f"X and Y must have as many rows, got {len(X)} and {len(Y)}")
    return np.linalg.lstsq(X, Y, rcond=None)[0]


def minnorm_error(
    X: Float64[np.ndarray, "n p"], beta: Float64[np.ndarray, " p"], sigma: float, *, added: Rows | None = None
) -> Error:
    """Return bias and variance of the minimum norm estimator from Y = X beta + noise of deviation sigma."""
    check(X, beta, sigma, added)
    A = X if added is None else np.concatenate([X, added.x])
    U, s, V = _svd(A)
    labels = U[: len(X)].T
    off = beta - V.T @ (V @ beta)
    if added is not None:
        labels = labels + U[len(X) :].T @ added.weights
        wrong = added.weights @ (X @ beta) - added.x @ beta  # of the labels, in the mean
        off = off - V.T @ (U[len(X) :].T @ wrong / s)
    return Error(float(off @ off), float(sigma**2 * np.sum((labels / s[:, None]) ** 2)))


def pinv_update(
    A: Float64[np.ndarray, "d d"], A_pinv: Float64[np.ndarray, "d d"], u: Float64[np.ndarray, " d"]
) -> Float64[np.ndarray, "d d"]:
    """Return (A + u u^T)^+ of a square A from its pseudo-inverse, where both rows and columns span u or neither do.

    For a symmetric A that is always so. Otherwise what u has outside the rows and outside the columns are two vectors, where
    the paper has one (Meyer 1973, 10.1137/0124033).
    """
    inside, across = A_pinv @ u, u @ A_pinv
    column, row = u - A @ inside, u - across @ A
    tiny = 1e-10 * np.linalg.norm(u)
    out = np.linalg.norm(column) > tiny, np.linalg.norm(row) > tiny
    if out[0] != out[1]:
        raise ValueError("u must lie in the span of both the rows and the columns of A, or of neither")
    beta = 1 + u @ inside
    if not out[0]:  # Sherman and Morrison
        if abs(beta) <= 1e-14 * (1 + abs(u) @ abs(inside)):
            raise ValueError("A + u u^T must have the rank of A, got 1 + u^T A^+ u = 0")
        return A_pinv - np.outer(inside, across) / beta
    column, row = column / (column @ column), row / (row @ row)
    return A_pinv - np.outer(inside, column) - np.outer(row, across) + beta * np.outer(row, column)


def row_space(X: Float64[np.ndarray, "n p"]) -> Float64[np.ndarray, "r p"]:
    """Return orthonormal rows that span the rows of X."""
    return _svd(X)[2]


def rank(X: Float64[np.ndarray, "n p"]) -> int:
    """Return the number of singular values of X that are more than rounding."""
    return len(_svd(X)[1])


def smallest_singular(X: Float64[np.ndarray, "n p"]) -> float:
    """Return mu_min(X), of a matrix of full rank."""
    s = _svd(X)[1]
    if len(s) < min(X.shape):
        raise ValueError(f"X must have full rank {min(X.shape)}, got rank {len(s)}")
    return float(s[-1])


def _svd(
    X: Float64[np.ndarray, "n p"],
) -> tuple[Float64[np.ndarray, "n r"], Float64[np.ndarray, " r"], Float64[np.ndarray, "r p"]]:
    """Return the thin singular value decomposition without what is rounding."""
    wide = X.shape[0] < X.shape[1]
    Q, R = np.linalg.qr(X.T if wide else X)  # first: it halves the time for a matrix of 1,000 by 20,000
    U, s, V = np.linalg.svd(R.T if wide else R)
    U, V = (U, V @ Q.T) if wide else (Q @ U, V)
    r = int(np.sum(s > s[0] * max(X.shape) * np.finfo(float).eps))
    return U[:, :r], s[:r], V[:r]
