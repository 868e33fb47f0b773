"""The results of arXiv:2005.00695 on ridge regression under mixup, as printed and as repaired, with their conditions."""

import numpy as np

from outspan.shapes import Float64
from outspan.theory.bounds import Setting, Statement
from outspan.theory.rows import mixed


def beta_constant(a: float, b: float) -> float:
    """Return c = E[(1 - 2 alpha)^2] for alpha of Beta(a, b): 1/3 for the uniform law."""
    if not (0 < a < np.inf and 0 < b < np.inf):
        raise ValueError(f"the parameters of Beta must be above 0, got {a} and {b}")
    return (a - b) ** 2 / ((a + b) * (a + b + 1)) + 1 / (a + b + 1)


def beta_nodes(a: float, b: float, count: int = 16) -> tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, " k"]]:
    """Return the Gauss nodes and weights for an expectation over Beta(a, b), exact to degree 2 count - 1 (Golub, Welsch)."""
    A, B, k = b - 1, a - 1, np.arange(1, count)
    total = 2 * k + A + B
    diagonal = np.r_[(B - A) / (A + B + 2), (B**2 - A**2) / (total * (total + 2))]
    square = 4 * k * (k + A) * (k + B) * (k + A + B) / (total**2 * (total + 1) * np.where(k == 1, 1, total - 1))
    square[0] = 4 * (1 + A) * (1 + B) / ((2 + A + B) ** 2 * (3 + A + B))  # the limit: the general form is 0/0 where A + B = -1
    off = np.sqrt(square)
    values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
    return (1 + values) / 2, vectors[0] ** 2


def mixup_gains(s: Setting, alpha: float) -> tuple[Float64[np.ndarray, "n n"], Float64[np.ndarray, "n n"]]:
    """Return by how much alpha x_i + (1 - alpha) x_j lowers bias and variance, for all pairs, at the held penalty.

    Sherman and Morrison on K = (X^T X + n lam)^-1: with u the new row, a its weights, h = u^T K u and S = X^T X, bias falls
    by (n lam)^2 [2 (u^T K beta)(u^T K^2 beta) / (1+h) - (u^T K beta)^2 (u^T K^2 u) / (1+h)^2], variance by
    sigma^2 [2 u^T K S K^2 u / (1+h) - (u^T K^2 u)(u^T K S K u) / (1+h)^2 - (2 + |a|^2) u^T K^2 u / (1+h)^2].
    """
    U, singular, V = np.linalg.svd(s.X, full_matrices=False)
    D, penalty = singular**2, s.n * s.lam
    k = 1 / (D + penalty)

    def form(values: np.ndarray) -> np.ndarray:  # u^T f(S) u for all pairs
        M = (U * values) @ U.T
        own = np.diag(M)
        return alpha**2 * own[:, None] + 2 * alpha * (1 - alpha) * M + (1 - alpha) ** 2 * own[None, :]

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
    """Return the expected fall of bias and variance over both partners, drawn independently, and alpha of Beta(a, b)."""
    nodes, weights = beta_nodes(a, b)
    found = np.array([[part.mean() for part in mixup_gains(s, float(alpha))] for alpha in nodes])
    bias, variance = weights @ found
    return float(bias), float(variance)


def mixup_moment(X: np.ndarray, alpha: float, *, replacement: bool = True) -> Statement:
    """E|x_aug|^2, the trace of E[x x^T]: printed (1 - 2 alpha)^2 |X|^2 / n, which no uniform draw gives.

    Partners drawn independently give alpha^2 + (1 - alpha)^2; distinct ones 2 alpha (1 - alpha) / (n - 1) less.
    """
    n, total = len(X), float(np.sum(X**2))
    factor = alpha**2 + (1 - alpha) ** 2 - (0.0 if replacement else 2 * alpha * (1 - alpha) / (n - 1))
    return Statement("=", (1 - 2 * alpha) ** 2 * total / n, factor * total / n, {"rows centred": _is_centred(X)})


def theorem_2(s: Setting, gamma: float, a: float = 1.0, b: float = 1.0) -> Statement:
    """A lower bound on the expected gain of one mixup sample at the held penalty.

    Printed with (gamma + lam)^-3, but the eigenvalues of X^T X / n go up to gamma^2. The repaired bound holds for every n:
    with r = E[alpha^2 + (1 - alpha)^2] = (1 + c) / 2, which E[u u^T] = r X^T X / n puts in the place of c,
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
    """The lemma under Theorem 2, on the bias given the sample: a factor 2 is missing, which matters where it is negative."""
    u = mixed(s.X, i, j, alpha).x[0]
    A = np.linalg.inv(s.X.T @ s.X / s.n + s.lam * np.eye(s.X.shape[1]))
    printed = s.lam**2 * float((u @ A @ A @ s.beta) * (u @ A @ s.beta)) / s.n
    return Statement("≥", printed, float(mixup_gains(s, alpha)[0][i, j]), _mixup_conditions(s))


def lemma_2_variance(s: Setting, i: int, j: int, alpha: float) -> Statement:
    """The lemma under Theorem 2, on the variance given the sample: the cross term of the noises is missing."""
    u = mixed(s.X, i, j, alpha).x[0]
    Ku = np.linalg.solve(s.X.T @ s.X + s.n * s.lam * np.eye(s.X.shape[1]), u)
    printed = -(s.sigma**2) * float(Ku @ Ku)
    return Statement("≥", printed, float(mixup_gains(s, alpha)[1][i, j]), _mixup_conditions(s))


def mixup_noise(s: Setting, i: int, j: int, alpha: float) -> Statement:
    """E|X_aug^T noise_aug|^2: printed without twice |u|^2 in the proof of the lemma, with it in that of the proposition."""
    added = mixed(s.X, i, j, alpha)
    square, own = float(added.x[0] @ added.x[0]), float(added.weights[0] @ added.weights[0])
    total = float(np.sum(s.X**2))
    printed = s.sigma**2 * ((alpha**2 + (1 - alpha) ** 2) * square + total)
    return Statement("=", printed, s.sigma**2 * ((own + 2) * square + total), {})


def _mixup_conditions(s: Setting) -> dict[str, bool]:
    return {"rows centred": _is_centred(s.X), "lam < 1": s.lam < 1}


def _is_centred(X: np.ndarray) -> bool:
    return bool(np.linalg.norm(X.sum(axis=0)) <= 1e-9 * np.linalg.norm(X))
