"""Simulated errors: draws of the noise and plain p x p solves, to test the closed forms against."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from outspan.shapes import Float64
from outspan.theory.bounds import Setting
from outspan.theory.rows import Rows

Part = Literal["total", "bias", "variance"]
Draws = Float64[np.ndarray, " draws"]
Sample = Callable[[int, np.random.Generator], Draws]  # (number of draws, generator) -> draws


def ridge_map(s: Setting, added: Rows | None, *, fixed_penalty: bool = True) -> Float64[np.ndarray, "p n"]:
    """Return the matrix that maps the training labels to the ridge estimate."""
    A, labels = _stack(s, added)
    penalty = s.lam * (s.n if fixed_penalty else len(A))
    return np.linalg.solve(A.T @ A + penalty * np.eye(A.shape[1]), A.T @ labels)


def minnorm_map(s: Setting, added: Rows | None) -> Float64[np.ndarray, "p n"]:
    """Return the matrix that maps the training labels to the minimum norm estimate."""
    A, labels = _stack(s, added)
    return np.linalg.pinv(A) @ labels


def decrease(
    s: Setting, before: np.ndarray, after: np.ndarray, draws: int, rng: np.random.Generator, part: Part = "total"
) -> Draws:
    """Return draws whose mean is the decrease of the error from one linear estimator to another, on the same noise.

    `before` and `after` [p, n] map the training labels to the estimates.
    """
    first = s.sigma * rng.standard_normal((draws, s.n))
    if part == "variance":  # the error if the labels are noise only
        return _squares(first @ before.T) - _squares(first @ after.T)
    mean = s.X @ s.beta
    deviations = [(mean + first) @ M.T - s.beta for M in (before, after)]
    if part == "total":
        return _squares(deviations[0]) - _squares(deviations[1])
    second = s.sigma * rng.standard_normal((draws, s.n))  # two independent draws: the noise averages out of the product
    others = [(mean + second) @ M.T - s.beta for M in (before, after)]
    return np.sum(deviations[0] * others[0], axis=1) - np.sum(deviations[1] * others[1], axis=1)


def mixup_decrease(s: Setting, a: float, b: float, draws: int, rng: np.random.Generator) -> Draws:
    """Return draws whose mean is the decrease of the error by one mixup sample, at the fixed penalty n lam.

    Each draw has its own noise, its own pair of partners, and its own alpha of Beta(a, b).
    """
    p, penalty = s.X.shape[1], s.n * s.lam
    S = s.X.T @ s.X + penalty * np.eye(p)
    before = np.linalg.solve(S, s.X.T)
    chunks = []
    for size in _chunks(draws, max(1, 10**7 // p**2)):
        Y = s.X @ s.beta + s.sigma * rng.standard_normal((size, s.n))
        i, j = rng.integers(0, s.n, (2, size))
        alpha = rng.beta(a, b, size)[:, None]
        u = alpha * s.X[i] + (1 - alpha) * s.X[j]
        label = alpha[:, 0] * Y[np.arange(size), i] + (1 - alpha[:, 0]) * Y[np.arange(size), j]
        right = Y @ s.X + u * label[:, None]
        after = np.linalg.solve(S + u[:, :, None] * u[:, None, :], right[:, :, None])[:, :, 0]
        chunks.append(_squares(Y @ before.T - s.beta) - _squares(after - s.beta))
    return np.concatenate(chunks)


def noise_squares(s: Setting, M: np.ndarray, draws: int, rng: np.random.Generator) -> Draws:
    """Return draws of |M noise|^2, for noise of standard deviation sigma and M [p, n]."""
    return np.sum((s.sigma * rng.standard_normal((draws, s.n)) @ M.T) ** 2, axis=1)


def bias_squares(s: Setting, M: np.ndarray, deviation: np.ndarray, draws: int, rng: np.random.Generator) -> Draws:
    """Return draws whose mean is |deviation|^2, from two independent draws of the noise of the estimator M [p, n]."""
    first, second = (deviation + s.sigma * rng.standard_normal((draws, s.n)) @ M.T for _ in range(2))
    return np.sum(first * second, axis=1)


def one_of(choices: list[Sample], draws: int, rng: np.random.Generator) -> Draws:
    """Return draws of several samplers, each draw from one of them with equal probability."""
    counts = np.bincount(rng.integers(0, len(choices), draws), minlength=len(choices))
    return np.concatenate([choice(int(count), rng) for choice, count in zip(choices, counts, strict=True)])


def _stack(s: Setting, added: Rows | None) -> tuple[np.ndarray, np.ndarray]:
    if added is None:
        return s.X, np.eye(s.n)
    return np.concatenate([s.X, added.x]), np.concatenate([np.eye(s.n), added.weights])


def _squares(rows: np.ndarray) -> Draws:
    return np.sum(rows * rows, axis=1)


def _chunks(total: int, limit: int) -> list[int]:
    return [min(limit, total - start) for start in range(0, total, limit)]
