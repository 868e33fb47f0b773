"""The minimum norm estimator X^+ Y: its exact bias and variance, and rank-one updates of a pseudo-inverse."""

import numpy as np

from outspan.shapes import Float64
from outspan.theory.ridge import Error
from outspan.theory.rows import Rows, check_model, finite


def minnorm_estimate(X: Float64[np.ndarray, "n p"], Y: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " p"]:
    """Return X^+ Y, the shortest vector among those that fit Y best."""
    finite("X", X)
    finite("Y", Y)
    if len(X) != len(Y):
        raise ValueError(f"X and Y must have the same number of rows, got {len(X)} and {len(Y)}")
    return np.linalg.lstsq(X, Y, rcond=None)[0]


def minnorm_error(
    X: Float64[np.ndarray, "n p"], beta: Float64[np.ndarray, " p"], sigma: float, *, added: Rows | None = None
) -> Error:
    """Return bias and variance of the minimum norm estimator b = X^+ Y, for Y = X beta + noise of standard deviation sigma.

    The bias is |E[b] - beta|^2 and the variance E|b - E[b]|^2. Rows `added` to X have the labels weights @ Y.
    """
    check_model(X, beta, sigma, added)
    A = X if added is None else np.concatenate([X, added.x])
    U, s, V = _svd(A)
    labels = U[: len(X)].T
    deviation = beta - V.T @ (V @ beta)
    if added is not None:
        labels = labels + U[len(X) :].T @ added.weights
        label_error = added.weights @ (X @ beta) - added.x @ beta  # the mean over the noise
        deviation = deviation - V.T @ (U[len(X) :].T @ label_error / s)
    return Error(float(deviation @ deviation), float(sigma**2 * np.sum((labels / s[:, None]) ** 2)))


def pinv_update(
    A: Float64[np.ndarray, "d d"], A_pinv: Float64[np.ndarray, "d d"], u: Float64[np.ndarray, " d"]
) -> Float64[np.ndarray, "d d"]:
    """Return (A + u u^T)^+ from A^+, if u lies in the span of both the rows and the columns of the square A, or of neither.

    For a symmetric A this is always true. For others, the parts of u outside the rows and outside the columns are two
    different vectors; the paper has only one (Meyer 1973, 10.1137/0124033).
    """
    inside, across = A_pinv @ u, u @ A_pinv
    column, row = u - A @ inside, u - across @ A
    tolerance = 1e-10 * np.linalg.norm(u)
    outside = np.linalg.norm(column) > tolerance, np.linalg.norm(row) > tolerance
    if outside[0] != outside[1]:
        raise ValueError("u must lie in the span of both the rows and the columns of A, or of neither")
    beta = 1 + u @ inside
    if not outside[0]:  # the Sherman-Morrison formula
        if abs(beta) <= 1e-14 * (1 + abs(u) @ abs(inside)):
            raise ValueError("A + u u^T must have the rank of A, got 1 + u^T A^+ u = 0")
        return A_pinv - np.outer(inside, across) / beta
    column, row = column / (column @ column), row / (row @ row)
    return A_pinv - np.outer(inside, column) - np.outer(row, across) + beta * np.outer(row, column)


def row_space(X: Float64[np.ndarray, "n p"]) -> Float64[np.ndarray, "r p"]:
    """Return an orthonormal basis of the span of the rows of X."""
    return _svd(X)[2]


def rank(X: Float64[np.ndarray, "n p"]) -> int:
    """Return the rank of X: the number of its singular values above rounding error."""
    return len(_svd(X)[1])


def smallest_singular(X: Float64[np.ndarray, "n p"]) -> float:
    """Return mu_min(X), the smallest singular value of a matrix of full rank."""
    s = _svd(X)[1]
    if len(s) < min(X.shape):
        raise ValueError(f"X must have full rank {min(X.shape)}, got rank {len(s)}")
    return float(s[-1])


def _svd(
    X: Float64[np.ndarray, "n p"],
) -> tuple[Float64[np.ndarray, "n r"], Float64[np.ndarray, " r"], Float64[np.ndarray, "r p"]]:
    """Return the thin singular value decomposition U, s, V without the singular values at rounding error."""
    wide = X.shape[0] < X.shape[1]
    Q, R = np.linalg.qr(X.T if wide else X)  # QR first halves the time for 1,000 x 20,000
    U, s, V = np.linalg.svd(R.T if wide else R)
    U, V = (U, V @ Q.T) if wide else (Q @ U, V)
    r = int(np.sum(s > s[0] * max(X.shape) * np.finfo(float).eps))
    return U[:, :r], s[:r], V[:r]
