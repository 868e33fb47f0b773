"""The results of arXiv:2005.00695 on ridge regression with mixup, as printed and as repaired, with their conditions."""

import numpy as np

from outspan.shapes import Float64
from outspan.theory.bounds import Setting, Statement
from outspan.theory.rows import mixed


def beta_constant(a: float, b: float) -> float:
    """Return c = E[(1 - 2 alpha)^2] for alpha of Beta(a, b): 1/3 for the uniform distribution."""
    if not (0 < a < np.inf and 0 < b < np.inf):
        raise ValueError(f"a and b of Beta(a, b) must be above 0, got {a} and {b}")
    return (a - b) ** 2 / ((a + b) * (a + b + 1)) + 1 / (a + b + 1)


def beta_nodes(a: float, b: float, count: int = 16) -> tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, " k"]]:
    """Return the Gauss nodes and weights for an expectation over Beta(a, b), exact to degree 2 count - 1 (Golub, Welsch)."""
    A, B, k = b - 1, a - 1, np.arange(1, count)
    total = 2 * k + A + B
    diagonal = np.r_[(B - A) / (A + B + 2), (B**2 - A**2) / (total * (total + 2))]
    square = 4 * k * (k + A) * (k + B) * (k + A + B) / (total**2 * (total + 1) * np.where(k == 1, 1, total - 1))
    square[0] = 4 * (1 + A) * (1 + B) / ((2 + A + B) ** 2 * (3 + A + B))  # the limit: the general form is 0/0 for A + B = -1
    off = np.sqrt(square)
    values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
    return (1 + values) / 2, vectors[0] ** 2


def mixup_gains(s: Setting, alpha: float) -> tuple[Float64[np.ndarray, "n n"], Float64[np.ndarray, "n n"]]:
    """Return the decrease of bias and variance by the sample alpha x_i + (1 - alpha) x_j, for all pairs, at a fixed penalty.

    By the Sherman-Morrison formula on K = (X^T X + n lam)^-1. With the new row u, its label weights a, h = u^T K u and
    S = X^T X, the bias decreases by
    (n lam)^2 [2 (u^T K beta)(u^T K^2 beta) / (1+h) - (u^T K beta)^2 (u^T K^2 u) / (1+h)^2] and the variance by
    sigma^2 [2 u^T K S K^2 u / (1+h) - (u^T K^2 u)(u^T K S K u) / (1+h)^2 - (2 + |a|^2) u^T K^2 u / (1+h)^2].
    """
    U, singular, V = np.linalg.svd(s.X, full_matrices=False)
    D, penalty = singular**2, s.n * s.lam
    k = 1 / (D + penalty)

    def form(values: np.ndarray) -> np.ndarray:  # u^T f(S) u for all pairs
        M = (U * values) @ U.T
        diagonal = np.diag(M)
        return alpha**2 * diagonal[:, None] + 2 * alpha * (1 - alpha) * M + (1 - alpha) ** 2 * diagonal[None, :]

    def linear(values: np.ndarray) -> np.ndarray:  # u^T f(S) beta for all pairs
        v = U @ (values * singular * (V @ s.beta))
        return alpha * v[:, None] + (1 - alpha) * v[None, :]

    first, second = linear(k), linear(k**2)
    h, square = form(D * k), form(D * k**2)
    bias = penalty**2 * (2 * first * second / (1 + h) - first**2 * square / (1 + h) ** 2)
    weights = alpha**2 + (1 - alpha) ** 2 + 2 * alpha * (1 - alpha) * np.eye(s.n)
    variance = 2 * form(D**2 * k**3) / (1 + h) - square * form(D**2 * k**2) / (1 + h) ** 2
    variance -= (2 + weights) * square / (1 + h) ** 2
    return bias, s.sigma**2 * variance


def mixup_gain(s: Setting, a: float = 1.0, b: float = 1.0) -> tuple[float, float]:
    """Return the expected decrease of bias and variance by one mixup sample: independent partners, alpha of Beta(a, b)."""
    nodes, weights = beta_nodes(a, b)
    gains = np.array([[part.mean() for part in mixup_gains(s, float(alpha))] for alpha in nodes])
    bias, variance = weights @ gains
    return float(bias), float(variance)


def mixup_moment(X: np.ndarray, alpha: float, *, replacement: bool = True) -> Statement:
    """E|x_aug|^2, the trace of E[x x^T]. The printed (1 - 2 alpha)^2 |X|^2 / n is true for no uniform draw.

    With independent partners the factor of |X|^2 / n is alpha^2 + (1 - alpha)^2. With distinct partners it is smaller by
    2 alpha (1 - alpha) / (n - 1).
    """
    n, total = len(X), float(np.sum(X**2))
    factor = alpha**2 + (1 - alpha) ** 2 - (0.0 if replacement else 2 * alpha * (1 - alpha) / (n - 1))
    return Statement("=", (1 - 2 * alpha) ** 2 * total / n, factor * total / n, {"rows centred": _is_centred(X)})


def theorem_2(s: Setting, gamma: float, a: float = 1.0, b: float = 1.0) -> Statement:
    """A lower bound on the expected gain of one mixup sample at a fixed penalty.

    The paper prints (gamma + lam)^-3, but the eigenvalues of X^T X / n reach gamma^2. The repaired bound holds for every n.
    It has r = E[alpha^2 + (1 - alpha)^2] = (1 + c) / 2 in place of c, because E[u u^T] = r X^T X / n:
    (r / n^2) [(2 lam^2 (gamma^2 + lam)^-3 - 3 gamma^2 / (n lam^2)) |X beta|^2
               - sigma^2 (3 + gamma^2 / (n lam)) |X|^2 / (n lam^2)].
    """
    X, lam, n, c = s.X, s.lam, s.n, beta_constant(a, b)
    signal, size = float(np.sum((X @ s.beta) ** 2)), float(np.sum(X**2))
    printed = lam**2 * c * (gamma + lam) ** -3 * signal / (2 * n**2)
    noise = s.sigma**2 * (3 + gamma**2 / (n * lam)) * size / (n * lam**2)
    repaired = (1 + c) / 2 / n**2 * ((2 * lam**2 * (gamma**2 + lam) ** -3 - 3 * gamma**2 / (n * lam**2)) * signal - noise)
    conditions = {
        **_mixup_conditions(s),
        "|x| ≤ γ": bool(np.linalg.norm(X, axis=1).max() <= gamma * (1 + 1e-12)),
        "γ > 1": gamma > 1,
        "X ≠ 0": size > 0,
        "σ small": s.sigma**2 * 2 * (gamma + lam) ** 3 * size <= n * lam**4 * signal,
    }
    return Statement("≥", printed, repaired, conditions, exact=False)


def lemma_2_bias(s: Setting, i: int, j: int, alpha: float) -> Statement:
    """The lemma of Theorem 2 on the bias, for a given sample. A factor 2 is missing, which matters if the value is negative."""
    u = mixed(s.X, i, j, alpha).x[0]
    A = np.linalg.inv(s.X.T @ s.X / s.n + s.lam * np.eye(s.X.shape[1]))
    printed = s.lam**2 * float((u @ A @ A @ s.beta) * (u @ A @ s.beta)) / s.n
    return Statement("≥", printed, float(mixup_gains(s, alpha)[0][i, j]), _mixup_conditions(s))


def lemma_2_variance(s: Setting, i: int, j: int, alpha: float) -> Statement:
    """The lemma of Theorem 2 on the variance, for a given sample. The cross term of the noise is missing."""
    u = mixed(s.X, i, j, alpha).x[0]
    Ku = np.linalg.solve(s.X.T @ s.X + s.n * s.lam * np.eye(s.X.shape[1]), u)
    printed = -(s.sigma**2) * float(Ku @ Ku)
    return Statement("≥", printed, float(mixup_gains(s, alpha)[1][i, j]), _mixup_conditions(s))


def mixup_noise(s: Setting, i: int, j: int, alpha: float) -> Statement:
    """E|X_aug^T noise_aug|^2. The term 2 |u|^2 is missing in the proof of the lemma, but not in that of the proposition."""
    added = mixed(s.X, i, j, alpha)
    square, weights_square = float(added.x[0] @ added.x[0]), float(added.weights[0] @ added.weights[0])
    total = float(np.sum(s.X**2))
    printed = s.sigma**2 * ((alpha**2 + (1 - alpha) ** 2) * square + total)
    return Statement("=", printed, s.sigma**2 * ((weights_square + 2) * square + total), {})


def _mixup_conditions(s: Setting) -> dict[str, bool]:
    return {"rows centred": _is_centred(s.X), "lam < 1": s.lam < 1}


def _is_centred(X: np.ndarray) -> bool:
    return bool(np.linalg.norm(X.sum(axis=0)) <= 1e-9 * np.linalg.norm(X))
