"""Example data sets on which the results of the paper are checked and plotted."""

import numpy as np

from outspan import rng
from outspan.shapes import Float64
from outspan.theory.bounds import Setting


def plain(n: int, seed: int, *, lam: float = 0.2, sigma: float = 0.05) -> Setting:
    """Return Gaussian rows of norm about 1 in p = 2n dimensions, and a random unit beta that `flip` does not change."""
    g = rng.generator(seed, "theory", "plain", n)
    beta = g.standard_normal(2 * n)
    beta += beta[::-1]
    return Setting(g.standard_normal((n, 2 * n)) / (2 * n) ** 0.5, beta / np.linalg.norm(beta), lam, sigma)


def spiked(n: int, seed: int, *, spike: float, lam: float = 0.2, sigma: float = 0.05, new: float = 0.2) -> Setting:
    """Return rows that share their first entry, and beta = e_1 + new e_p. The last entry, e_p, is 0 in every row."""
    g = rng.generator(seed, "theory", "spiked", n)
    X = g.standard_normal((n, 2 * n)) / (2 * n) ** 0.5
    X[:, 0], X[:, -1] = spike, 0.0
    X[0, 0] = 1.0
    return Setting(X, np.eye(1, 2 * n, 0)[0] + new * np.eye(1, 2 * n, 2 * n - 1)[0], lam, sigma)


def swap(s: Setting) -> Float64[np.ndarray, "p p"]:
    """Return the projection along (new e_1 - e_p): it keeps every label and moves part of e_1 to e_p."""
    q = np.zeros(s.X.shape[1])
    q[0], q[-1] = s.beta[-1], -s.beta[0]
    q /= np.linalg.norm(q)
    return np.eye(len(q)) - np.outer(q, q)


def line(n: int, *, gamma: float = 3.0, lam: float = 0.1, sigma: float = 0.0) -> Setting:
    """Return samples at ±gamma on a line: the counterexample to Theorem 2."""
    X = gamma * np.where(np.arange(n) % 2, -1.0, 1.0)[:, None]
    return Setting(X, np.ones(1), lam, sigma)


def wide_centred(seed: int) -> Setting:
    """Return centred rows of equal norm with a wide spectrum, so that single mixup samples differ in effect."""
    g = rng.generator(seed, "theory", "wide")
    half = g.standard_normal((20, 30)) * np.geomspace(3, 0.1, 30)
    half *= 1.2 / np.linalg.norm(half, axis=1, keepdims=True)
    beta = g.standard_normal(30)
    return Setting(np.concatenate([half, -half]), beta / np.linalg.norm(beta), 0.1, 0.1)
