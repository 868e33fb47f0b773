"""The results of arXiv:2005.00695 on the minimum norm estimator, as printed and as repaired, with their conditions."""

import numpy as np

from outspan.theory.bounds import Setting, Statement, invariance
from outspan.theory.minnorm import rank
from outspan.theory.rows import mixed, projected, transformed


def minnorm_bias(s: Setting) -> Statement:
    """The bias before augmentation: beta^T P_X^perp beta. It holds as printed."""
    outside = float(s.beta @ s.beta - np.sum((np.linalg.qr(s.X.T)[0].T @ s.beta) ** 2)) if s.n < s.X.shape[1] else 0.0
    return Statement("=", outside, outside, {"rows independent": rank(s.X) == min(s.X.shape)})


def minnorm_variance(s: Setting) -> Statement:
    """The variance before augmentation: sigma^2 tr((X^T X)^+). sigma^2 is missing in the paper."""
    trace = float(np.sum(np.linalg.pinv(s.X) ** 2))
    return Statement("=", trace, s.sigma**2 * trace, {})


def minnorm_invariant_bias(s: Setting, F: np.ndarray, i: int) -> Statement:
    """A label-invariant sample decreases the bias by <z,beta>^2 / |z|^2. It holds as printed."""
    rows = projected(s.X, transformed(s.X, F, i))
    z = rows.x[0]
    outside = float(z @ z) > 0
    decrease = float(z @ s.beta) ** 2 / float(z @ z) if outside else 0.0
    return Statement("=", decrease, decrease, {**invariance(s, [F]), "z ≠ 0": outside})


def minnorm_invariant_variance(s: Setting, F: np.ndarray, i: int) -> Statement:
    """A label-invariant sample increases the variance by sigma^2 |a|^2 / |z|^2, where a are the weights of its label.

    The paper says "at a rate proportional to 1 / |z|^2" without a constant, so the printed value is the repaired one.
    """
    rows = projected(s.X, transformed(s.X, F, i))
    z, weights = rows.x[0], rows.weights[0]
    outside = float(z @ z) > 0
    increase = s.sigma**2 * float(weights @ weights) / float(z @ z) if outside else 0.0
    return Statement("=", -increase, -increase, {**invariance(s, [F]), "z ≠ 0": outside})


def proposition_bias() -> Statement:
    """A mixup sample does not change the bias of the minimum norm estimator."""
    return Statement("=", 0.0, 0.0, {})


def proposition_variance(s: Setting, i: int, j: int, alpha: float) -> Statement:
    """A mixup sample u increases the variance, but only for n > p. The value is a decrease, hence negative.

    It is -sigma^2 |K u|^2 (|a|^2 - h) / (1 + h)^2 with K = (X^T X)^+, h = u^T K u and the weights a of the label. It is 0 if
    the rows of X are independent: then h = |a|^2, because the estimator fits the new sample already.
    """
    added = mixed(s.X, i, j, alpha)
    u, weights_square = added.x[0], float(added.weights[0] @ added.weights[0])
    K = np.linalg.pinv(s.X.T @ s.X, hermitian=True)
    Ku = K @ u
    square, h = float(Ku @ Ku), float(u @ Ku)
    is_independent = rank(s.X) == s.n
    repaired = 0.0 if is_independent else -(s.sigma**2) * square * (weights_square - h) / (1 + h) ** 2
    printed = -(s.sigma**2) * (alpha**2 + (1 - alpha) ** 2) * square  # sigma^2 is missing in the paper
    return Statement("→", printed, repaired, {"0 < alpha < 1": 0 < alpha < 1})
