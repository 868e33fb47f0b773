"""Random data and label-invariant transforms."""

from collections.abc import Sequence

import numpy as np

from outspan.shapes import Float64


def orthonormal(p: int, k: int, rng: np.random.Generator, *, beside: Sequence[np.ndarray] = ()) -> Float64[np.ndarray, "p k"]:
    """Return k random orthonormal columns, orthogonal to the vectors `beside`."""
    if not 0 <= k <= p - len(beside):
        raise ValueError(f"k must lie in [0, {p - len(beside)}], the number of free directions, got {k}")
    columns = np.column_stack([*beside, rng.standard_normal((p, k))])
    return np.linalg.qr(columns)[0][:, len(beside) :]


def rotation(beta: Float64[np.ndarray, " p"], angle: float, rng: np.random.Generator) -> Float64[np.ndarray, "p p"]:
    """Return a rotation by `angle`, in radians, in a random plane orthogonal to beta: label-invariant everywhere."""
    u, v = orthonormal(len(beta), 2, rng, beside=[beta]).T
    turn = np.outer(v, u) - np.outer(u, v)
    return np.eye(len(beta)) + np.sin(angle) * turn + (np.cos(angle) - 1) * (np.outer(u, u) + np.outer(v, v))


def flip(p: int) -> Float64[np.ndarray, "p p"]:
    """Return the matrix that reverses the entries of a vector: label-invariant for a symmetric beta."""
    return np.eye(p)[::-1].copy()


def projection(beta: Float64[np.ndarray, " p"], k: int, rng: np.random.Generator) -> Float64[np.ndarray, "p p"]:
    """Return the matrix that projects k random directions orthogonal to beta out of a vector: label-invariant everywhere."""
    Q = orthonormal(len(beta), k, rng, beside=[beta])
    return np.eye(len(beta)) - Q @ Q.T


def centred(n: int, p: int, norm: float, rng: np.random.Generator) -> Float64[np.ndarray, "n p"]:
    """Return n rows of equal norm that add up to 0: random directions, each with its opposite."""
    if n < 2 or n % 2:
        raise ValueError(f"n must be even, because every row has its opposite, got {n}")
    half = rng.standard_normal((n // 2, p))
    half *= norm / np.linalg.norm(half, axis=1, keepdims=True)
    return np.concatenate([half, -half])
