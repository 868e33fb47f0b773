"""Errors by drawing the noise, with plain p x p solves: what the closed forms are held against."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from outspan.shapes import Float64
from outspan.theory.bounds import Setting
from outspan.theory.rows import Rows

Part = Literal["total", "bias", "variance"]
Draws = Float64[np.ndarray, " draws"]
Sample = Callable[[int, np.random.Generator], Draws]  # how many draws, from where


def ridge_map(s: Setting, added: Rows | None, *, hold: bool) -> Float64[np.ndarray, "p n"]:
    """Return the matrix that takes the training labels to the ridge estimate."""
    A, labels = _stack(s, added)
    penalty = s.lam * (s.n if hold else len(A))
    return np.linalg.solve(A.T @ A + penalty * np.eye(A.shape[1]), A.T @ labels)


def minnorm_map(s: Setting, added: Rows | None) -> Float64[np.ndarray, "p n"]:
    """Return the matrix that takes the training labels to the minimum norm estimate."""
    A, labels = _stack(s, added)
    return np.linalg.pinv(A) @ labels


def fall(
    s: Setting, before: np.ndarray, after: np.ndarray, draws: int, rng: np.random.Generator, part: Part = "total"
) -> Draws:
    """Return draws whose mean is the fall of an error from one linear estimator to another, on the same noise."""
    first = s.sigma * rng.standard_normal((draws, s.n))
    if part == "variance":  # the error where there is nothing but noise
        return _squares(first @ before.T) - _squares(first @ after.T)
    mean = s.X @ s.beta
    off = [(mean + first) @ M.T - s.beta for M in (before, after)]
    if part == "total":
        return _squares(off[0]) - _squares(off[1])
    second = s.sigma * rng.standard_normal((draws, s.n))  # two independent draws: the noise drops out in the mean
    other = [(mean + second) @ M.T - s.beta for M in (before, after)]
    return np.sum(off[0] * other[0], axis=1) - np.sum(off[1] * other[1], axis=1)


def mixup_fall(s: Setting, a: float, b: float, draws: int, rng: np.random.Generator) -> Draws:
    """Return draws of noise, partners and alpha whose mean is the fall of the error by one mixup sample, penalty held."""
    p, penalty = s.X.shape[1], s.n * s.lam
    S = s.X.T @ s.X + penalty * np.eye(p)
    before = np.linalg.solve(S, s.X.T)
    found = []
    for size in _chunks(draws, max(1, 10**7 // p**2)):
        Y = s.X @ s.beta + s.sigma * rng.standard_normal((size, s.n))
        i, j = rng.integers(0, s.n, (2, size))
        alpha = rng.beta(a, b, size)[:, None]
        u = alpha * s.X[i] + (1 - alpha) * s.X[j]
        label = alpha[:, 0] * Y[np.arange(size), i] + (1 - alpha[:, 0]) * Y[np.arange(size), j]
        right = Y @ s.X + u * label[:, None]
        after = np.linalg.solve(S + u[:, :, None] * u[:, None, :], right[:, :, None])[:, :, 0]
        found.append(_squares(Y @ before.T - s.beta) - _squares(after - s.beta))
    return np.concatenate(found)


def one_of(choices: list[Sample], draws: int, rng: np.random.Generator) -> Draws:
    """Return draws from several sources, each draw from any with equal chance."""
    counts = np.bincount(rng.integers(0, len(choices), draws), minlength=len(choices))
    return np.concatenate([choice(int(count), rng) for choice, count in zip(choices, counts, strict=True)])


def _stack(s: Setting, added: Rows | None) -> tuple[np.ndarray, np.ndarray]:
    if added is None:
        return s.X, np.eye(s.n)
    return np.concatenate([s.X, added.x]), np.concatenate([np.eye(s.n), added.weights])


def _squares(rows: np.ndarray) -> Draws:
    return np.sum(rows * rows, axis=1)


def _chunks(total: int, most: int) -> list[int]:
    return [min(most, total - start) for start in range(0, total, most)]
