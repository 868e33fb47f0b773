"""The results of Section 3 and Appendix A of arXiv:2005.00695, as printed and as repaired, with their conditions.

This module has the results on ridge regression with label-invariant transforms. Those on mixup are in `mixup`, and those on
the minimum norm estimator in `minnorm_bounds`.

A `Statement` is a result applied to one case: the printed value, the repaired value, and which conditions are met. The
repaired value is exact if `exact` is true, otherwise a bound. With `fixed_penalty`, the penalty n lam does not change when
rows are added. The paper lets it grow to (n + 1) lam in Theorem 1 and keeps it fixed in Theorem 2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from outspan.shapes import Float64
from outspan.theory.minnorm import smallest_singular
from outspan.theory.rows import Rows, check_model, is_label_invariant, join, projected, summed, transformed

Claim = Literal["≥", "=", "→"]  # a lower bound, an equality, an equality in the limit of many samples


@dataclass(frozen=True, eq=False)
class Setting:
    """A linear model Y = X beta + noise of standard deviation sigma, and the ridge parameter lam."""

    X: Float64[np.ndarray, "n p"]
    beta: Float64[np.ndarray, " p"]
    lam: float
    sigma: float

    def __post_init__(self) -> None:
        check_model(self.X, self.beta, self.sigma)
        if not 0 < self.lam < np.inf:
            raise ValueError(f"lam must be above 0 for ridge regression, got {self.lam}")

    @property
    def n(self) -> int:
        """The number of samples."""
        return len(self.X)


@dataclass(frozen=True)
class Statement:
    """A result of the paper, applied to one case."""

    claim: Claim
    printed: float
    repaired: float
    conditions: Mapping[str, bool]
    exact: bool = True  # whether the repaired value is an equality, not a bound

    @property
    def met(self) -> bool:
        """Whether all conditions are met."""
        return all(self.conditions.values())


def outside_gain(
    along: Float64[np.ndarray, "*k"],
    square: Float64[np.ndarray, "*#k"],
    penalty: float,
    label_error: Float64[np.ndarray, "*#k"] | float = 0.0,
) -> Float64[np.ndarray, "*k"]:
    """Return the decrease of the error for each row z outside the span alone, at a fixed penalty.

    `along` is <z,beta>, `square` is |z|^2, and the label of z is <z,beta> + label_error. Without label error the decrease is
    <z,beta>^2 (2 penalty + |z|^2) / (penalty + |z|^2)^2.
    """
    # Along z the error changes from <z,beta>^2 / |z|^2 to (penalty <z,beta> - |z|^2 label_error)^2 / |z|^2 (penalty + |z|^2)^2.
    decrease = along**2 * (2 * penalty + square) + 2 * penalty * along * label_error - square * label_error**2
    return decrease / (penalty + square) ** 2


def outside_variance(
    z: Float64[np.ndarray, "k p"], weights: Float64[np.ndarray, "k n"], penalty: float, sigma: float
) -> Float64[np.ndarray, " k"]:
    """Return the increase of the variance by each row z outside the span, at a fixed penalty.

    sigma^2 |a|^2 |z|^2 / (penalty + |z|^2)^2, where a are the weights of its label.
    """
    square = np.sum(z * z, axis=-1)
    return sigma**2 * np.sum(weights * weights, axis=-1) * square / (penalty + square) ** 2


def inside_change(s: Setting, k: int) -> tuple[float, float]:
    """Return the decrease of bias and variance inside the span if n lam grows to (n + k) lam. That of the bias is negative."""
    _, singular, V = np.linalg.svd(s.X, full_matrices=False)
    D, b = singular**2, V @ s.beta
    before, after = s.n * s.lam, (s.n + k) * s.lam
    bias = np.sum(b**2 * ((before / (D + before)) ** 2 - (after / (D + after)) ** 2))
    variance = s.sigma**2 * np.sum(D * ((D + before) ** -2 - (D + after) ** -2))
    return float(bias), float(variance)


def gains(s: Setting, rows: Rows, *, fixed_penalty: bool) -> tuple[float, float]:
    """Return the decrease of bias and variance by rows that `projected` returned, in closed form."""
    penalty = s.lam * (s.n if fixed_penalty else s.n + len(rows.x))
    bias = float(np.sum(outside_gain(rows.x @ s.beta, np.sum(rows.x**2, axis=1), penalty)))
    variance = -float(np.sum(outside_variance(rows.x, rows.weights, penalty, s.sigma)))
    inside = (0.0, 0.0) if fixed_penalty else inside_change(s, len(rows.x))
    return bias + inside[0], variance + inside[1]


def theorem_1(s: Setting, F: np.ndarray, i: int, *, fixed_penalty: bool = False) -> Statement:
    """Equation 1: a lower bound on e(b) - e(b^F) for z = P_X^perp F x_i, printed for the penalty (n + 1) lam.

    Repaired, with a fixed penalty: <z,beta>^2 (2 n lam + |z|^2) / (n lam + |z|^2)^2 - sigma^2 |a|^2 |z|^2 / (n lam + |z|^2)^2.
    The printed proof has a wrong sign (a larger penalty increases the bias inside the span) and |z|^2 / (n + 1) where the
    Sherman-Morrison formula gives |z|^2 / ((n + 1) lam).
    """
    rows = projected(s.X, transformed(s.X, F, i))
    printed = _printed_bias(s, rows) - _printed_variance(s, F, i, rows)
    return Statement("≥", printed, sum(gains(s, rows, fixed_penalty=fixed_penalty)), _conditions(s, [F]))


def theorem_1_rate(s: Setting, F: np.ndarray, i: int, *, fixed_penalty: bool = False) -> Statement:
    """Equation 2: the gain is (2 + o(1)) <z,beta>^2 / (lam n), up to 1/n^2. This is true for a fixed penalty."""
    rows = projected(s.X, transformed(s.X, F, i))
    conditions = {**_conditions(s, [F]), **_small_noise(s, transformed(s.X, F, i))}
    return Statement("→", _rate(s, rows), sum(gains(s, rows, fixed_penalty=fixed_penalty)), conditions)


def lemma_1_bias(s: Setting, F: np.ndarray, i: int, *, fixed_penalty: bool = False) -> Statement:
    """The lemma of Theorem 1 on the bias. It fails with a fixed penalty, too: for |z|^2 > lam / (1 - lam)."""
    rows = projected(s.X, transformed(s.X, F, i))
    return Statement("≥", _printed_bias(s, rows), gains(s, rows, fixed_penalty=fixed_penalty)[0], _conditions(s, [F]))


def lemma_1_variance(s: Setting, F: np.ndarray, i: int) -> Statement:
    """The lemma of Theorem 1 on the variance. Its first term is 0 because z is orthogonal to the data."""
    rows = projected(s.X, transformed(s.X, F, i))
    printed = -float(outside_variance(rows.x, rows.weights, (s.n + 1) * s.lam, s.sigma)[0])
    return Statement("≥", printed, gains(s, rows, fixed_penalty=False)[1], _conditions(s, [F]))


def uniform_sampling(s: Setting, Fs: Sequence[np.ndarray], i: int, *, fixed_penalty: bool = False) -> Statement:
    """The corollary on one of K transforms chosen at random: the mean of their gains."""
    added = [projected(s.X, transformed(s.X, F, i)) for F in Fs]
    printed = float(np.mean([_rate(s, rows) for rows in added]))
    repaired = float(np.mean([sum(gains(s, rows, fixed_penalty=fixed_penalty)) for rows in added]))
    small = _small_noise(s, *(transformed(s.X, F, i) for F in Fs))
    return Statement("→", printed, repaired, {**_conditions(s, Fs), **small})


def composition(
    s: Setting,
    F1: np.ndarray,
    F2: np.ndarray,
    i: int,
    how: Literal["additive", "multiplicative"],
    *,
    fixed_penalty: bool = False,
) -> Statement:
    """The corollary on the gain of a composition of F1 and F2 over F1 alone. The printed sign is wrong."""
    first, both = composed(s, F1, F2, i, how)
    conditions = {**_conditions(s, [F1, F2]), **_small_noise(s, *_composed(s, F1, F2, i, how))}
    if how == "multiplicative":
        conditions["F1 keeps the labels of F2 X"] = is_label_invariant(F1, s.X @ F2.T, s.beta)
    # Both add one row, so the effect of the larger penalty inside the span is the same for both.
    repaired = sum(gains(s, both, fixed_penalty=fixed_penalty)) - sum(gains(s, first, fixed_penalty=fixed_penalty))
    return Statement("→", _rate(s, first) - _rate(s, both), repaired, conditions)


def composed(s: Setting, F1: np.ndarray, F2: np.ndarray, i: int, how: str) -> tuple[Rows, Rows]:
    """Return the projected row of F1 alone, and of its composition with F2."""
    first, both = _composed(s, F1, F2, i, how)
    return projected(s.X, first), projected(s.X, both)


def _composed(s: Setting, F1: np.ndarray, F2: np.ndarray, i: int, how: str) -> tuple[Rows, Rows]:
    first = transformed(s.X, F1, i)
    return first, summed(first, transformed(s.X, F2, i)) if how == "additive" else transformed(s.X, F1 @ F2, i)


def several_points(s: Setting, Fs: Sequence[np.ndarray], sources: Sequence[int], *, fixed_penalty: bool = False) -> Statement:
    """The corollary on a sequence of rows, each projected off those before: a constant times sum <z_i,beta>^2 / (lam n).

    The paper prints the label of row i with the data X_i, which contain it already; X_(i-1) is meant. The paper gives no
    constant. Here it is 1, half of that in Theorem 1, and 1 again in the condition of small noise.
    """
    raw = _several(s, Fs, sources)
    rows = projected(s.X, raw)
    squares = np.sum(rows.x**2, axis=1)
    # Each z is orthogonal to the data before it, so the singular values of these data are those of X and the earlier |z|.
    smallest = np.minimum.accumulate([smallest_singular(s.X), *np.where(squares > 0, squares, np.inf)[:-1] ** 0.5])
    ratios = np.sum((raw.x - rows.x) ** 2, axis=1) / smallest**2
    noise = (1 + ratios) * s.sigma**2 / (s.lam * (s.n + np.arange(1, len(squares) + 1)))
    conditions = {
        **_conditions(s, Fs),
        "lam < 1/4": s.lam < 0.25,
        "t ≤ n": len(squares) <= s.n,
        "|z|² ≤ √n": bool(np.all(squares <= s.n**0.5)),
        "σ small": bool(np.all((rows.x @ s.beta) ** 2 >= noise * squares)),
    }
    return Statement("≥", 0.5 * _rate(s, rows), sum(gains(s, rows, fixed_penalty=fixed_penalty)), conditions)


def several(s: Setting, Fs: Sequence[np.ndarray], sources: Sequence[int]) -> Rows:
    """Return the rows F_t x_i for a sequence of sources i, each projected off the data and the rows before it."""
    return projected(s.X, _several(s, Fs, sources))


def _several(s: Setting, Fs: Sequence[np.ndarray], sources: Sequence[int]) -> Rows:
    return join(*(transformed(s.X, F, i) for F, i in zip(Fs, sources, strict=True)))


def _rate(s: Setting, rows: Rows) -> float:
    return float(2 * np.sum((rows.x @ s.beta) ** 2) / (s.lam * s.n))


def _printed_bias(s: Setting, rows: Rows) -> float:
    square, along = float(rows.x[0] @ rows.x[0]), float(rows.x[0] @ s.beta)
    m = s.n + 1
    return (2 * s.lam * m - (1 - 2 * s.lam) * square) * along**2 / (s.lam**2 * (m + square) ** 2)


def _inside_ratio(s: Setting, x: np.ndarray, z: np.ndarray) -> float:
    """Return |P_X x|^2 / mu_min(X)^2 of a row x = F x_i with the part z outside the span."""
    inside = x - z
    return float(inside @ inside) / smallest_singular(s.X) ** 2


def _printed_variance(s: Setting, F: np.ndarray, i: int, rows: Rows) -> float:
    z = rows.x[0]
    return (2 + 2 * _inside_ratio(s, F @ s.X[i], z)) * s.sigma**2 * float(z @ z) / (s.lam * (s.n + 1)) ** 2


def _conditions(s: Setting, Fs: Sequence[np.ndarray]) -> dict[str, bool]:
    return {**invariance(s, Fs), "lam < 1": s.lam < 1}


def invariance(s: Setting, Fs: Sequence[np.ndarray]) -> dict[str, bool]:
    """Return the condition that all F are label-invariant, and whether it is met."""
    return {"F label-invariant": all(is_label_invariant(F, s.X, s.beta) for F in Fs)}


def _small_noise(s: Setting, *raw: Rows) -> dict[str, bool]:
    """Return the conditions of equation 2 on rows F x that are not projected yet."""
    is_short = is_quiet = True
    for rows in raw:
        x, z = rows.x[0], projected(s.X, rows).x[0]
        square, along = float(z @ z), float(z @ s.beta)
        noise = float(np.log(s.n)) * (1 + _inside_ratio(s, x, z)) * s.sigma**2 / (s.lam * s.n)
        is_short = is_short and square <= s.n**0.5  # √n stands for o(n)
        is_quiet = is_quiet and along**2 >= noise * square
    return {"|z|² ≤ √n": is_short, "σ small": is_quiet}
