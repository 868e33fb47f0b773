"""The results of Section 3 and Appendix A of arXiv:2005.00695, as printed and as repaired, with their conditions.

Those of ridge regression under mixup are in `mixup`; all others are here.

A `Statement` is what a result says of one case: what is printed, what holds, and which of its conditions are met. The
repaired side is exact wherever `exact` is true, else a bound. "Held" means that the penalty n lam stays as it is when rows
are added; the paper lets it grow to (n + 1) lam in Theorem 1 and holds it in Theorem 2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from outspan.shapes import Float64
from outspan.theory.minnorm import rank, smallest_singular
from outspan.theory.rows import Rows, check, is_label_invariant, join, mixed, projected, summed, transformed

Claim = Literal["≥", "=", "→"]  # a lower bound, an equality, an equality in the limit of many samples


@dataclass(frozen=True, eq=False)
class Setting:
    """Y = X beta + noise of deviation sigma, and the ridge parameter lam."""

    X: Float64[np.ndarray, "n p"]
    beta: Float64[np.ndarray, " p"]
    lam: float
    sigma: float

    def __post_init__(self) -> None:
        check(self.X, self.beta, self.sigma)
        if not 0 < self.lam < np.inf:
            raise ValueError(f"lam must be above 0 for ridge, got {self.lam}")

    @property
    def n(self) -> int:
        """How many samples there are."""
        return len(self.X)


@dataclass(frozen=True)
class Statement:
    """What a result says of a case."""

    claim: Claim
    printed: float
    repaired: float
    conditions: Mapping[str, bool]
    exact: bool = True  # whether the repaired side is an equality

    @property
    def met(self) -> bool:
        """Whether every condition is."""
        return all(self.conditions.values())


# Label-invariant transforms


def outside_gain(
    along: Float64[np.ndarray, "*k"],
    square: Float64[np.ndarray, "*#k"],
    penalty: float,
    wrong: Float64[np.ndarray, "*#k"] | float = 0.0,
) -> Float64[np.ndarray, "*k"]:
    """Return by how much rows z outside the span lower the error, each alone, from <z,beta> and |z|^2, at a held penalty.

    <z,beta>^2 (2 penalty + |z|^2) / (penalty + |z|^2)^2 where the label is <z,beta>, another sum where it is `wrong`.
    """
    # Along z the error goes from <z,beta>^2 / |z|^2 to (penalty <z,beta> - |z|^2 wrong)^2 / |z|^2 (penalty + |z|^2)^2.
    return (along**2 * (2 * penalty + square) + 2 * penalty * along * wrong - square * wrong**2) / (penalty + square) ** 2


def outside_variance(
    z: Float64[np.ndarray, "k p"], weights: Float64[np.ndarray, "k n"], penalty: float, sigma: float
) -> Float64[np.ndarray, " k"]:
    """Return by how much each row z outside the span raises the variance, at a held penalty."""
    square = np.sum(z * z, axis=-1)
    return sigma**2 * np.sum(weights * weights, axis=-1) * square / (penalty + square) ** 2


def inside_change(s: Setting, k: int) -> tuple[float, float]:
    """Return by how much bias and variance fall within the span where n lam becomes (n + k) lam: the bias rises."""
    _, singular, V = np.linalg.svd(s.X, full_matrices=False)
    D, b = singular**2, V @ s.beta
    before, after = s.n * s.lam, (s.n + k) * s.lam
    bias = np.sum(b**2 * ((before / (D + before)) ** 2 - (after / (D + after)) ** 2))
    variance = s.sigma**2 * np.sum(D * ((D + before) ** -2 - (D + after) ** -2))
    return float(bias), float(variance)


def gains(s: Setting, rows: Rows, *, hold: bool) -> tuple[float, float]:
    """Return by how much projected rows, as `projected` gives them, lower bias and variance, in closed form."""
    penalty = s.lam * (s.n if hold else s.n + len(rows.x))
    bias = float(np.sum(outside_gain(rows.x @ s.beta, np.sum(rows.x**2, axis=1), penalty)))
    variance = -float(np.sum(outside_variance(rows.x, rows.weights, penalty, s.sigma)))
    inside = (0.0, 0.0) if hold else inside_change(s, len(rows.x))
    return bias + inside[0], variance + inside[1]


def theorem_1(s: Setting, F: np.ndarray, i: int, *, hold: bool = False) -> Statement:
    """Equation 1: a lower bound on e(b) - e(b^F) for z = P_X^perp F x; printed for the penalty (n + 1) lam.

    The proof turns a sign round (a larger penalty raises the bias within the span) and puts |z|^2 / (n + 1) where
    Sherman and Morrison give |z|^2 / ((n + 1) lam).
    """
    rows = projected(s.X, transformed(s.X, F, i))
    printed = _printed_bias(s, rows) - _printed_variance(s, F, i, rows)
    return Statement("≥", printed, sum(gains(s, rows, hold=hold)), _conditions(s, [F]))


def theorem_1_rate(s: Setting, F: np.ndarray, i: int, *, hold: bool = False) -> Statement:
    """Equation 2: the gain is (2 + o(1)) <z,beta>^2 / (lam n), up to 1/n^2. It is with the penalty held."""
    rows = projected(s.X, transformed(s.X, F, i))
    conditions = {**_conditions(s, [F]), **_small_noise(s, transformed(s.X, F, i))}
    return Statement("→", _rate(s, rows), sum(gains(s, rows, hold=hold)), conditions)


def lemma_1_bias(s: Setting, F: np.ndarray, i: int, *, hold: bool = False) -> Statement:
    """The lemma under Theorem 1, on the bias. Holding the penalty does not save it: |z|^2 > lam / (1 - lam) defeats it."""
    rows = projected(s.X, transformed(s.X, F, i))
    return Statement("≥", _printed_bias(s, rows), gains(s, rows, hold=hold)[0], _conditions(s, [F]))


def lemma_1_variance(s: Setting, F: np.ndarray, i: int) -> Statement:
    """The lemma under Theorem 1, on the variance: its first term is 0, as z is orthogonal to the data."""
    rows = projected(s.X, transformed(s.X, F, i))
    printed = -float(outside_variance(rows.x, rows.weights, (s.n + 1) * s.lam, s.sigma)[0])
    return Statement("≥", printed, gains(s, rows, hold=False)[1], _conditions(s, [F]))


def uniform_sampling(s: Setting, Fs: Sequence[np.ndarray], i: int, *, hold: bool = False) -> Statement:
    """One of K transforms at random: the mean of their gains."""
    added = [projected(s.X, transformed(s.X, F, i)) for F in Fs]
    printed = float(np.mean([_rate(s, rows) for rows in added]))
    repaired = float(np.mean([sum(gains(s, rows, hold=hold)) for rows in added]))
    small = _small_noise(s, *(transformed(s.X, F, i) for F in Fs))
    return Statement("→", printed, repaired, {**_conditions(s, Fs), **small})


def composition(
    s: Setting, F1: np.ndarray, F2: np.ndarray, i: int, how: Literal["additive", "multiplicative"], *, hold: bool = False
) -> Statement:
    """What composing F2 with F1 gains over F1 alone: printed with the sign turned round."""
    first, both = composed(s, F1, F2, i, how)
    conditions = {**_conditions(s, [F1, F2]), **_small_noise(s, *_composed(s, F1, F2, i, how))}
    if how == "multiplicative":
        conditions["F1 keeps the labels of F2 X"] = is_label_invariant(F1, s.X @ F2.T, s.beta)
    # Both add one row, so that what the larger penalty does within the span is the same for both.
    repaired = sum(gains(s, both, hold=hold)) - sum(gains(s, first, hold=hold))
    return Statement("→", _rate(s, first) - _rate(s, both), repaired, conditions)


def composed(s: Setting, F1: np.ndarray, F2: np.ndarray, i: int, how: str) -> tuple[Rows, Rows]:
    """Return the projected row of F1 alone and that of its composition with F2."""
    first, both = _composed(s, F1, F2, i, how)
    return projected(s.X, first), projected(s.X, both)


def _composed(s: Setting, F1: np.ndarray, F2: np.ndarray, i: int, how: str) -> tuple[Rows, Rows]:
    first = transformed(s.X, F1, i)
    return first, summed(first, transformed(s.X, F2, i)) if how == "additive" else transformed(s.X, F1 @ F2, i)


def several_points(s: Setting, Fs: Sequence[np.ndarray], sources: Sequence[int], *, hold: bool = False) -> Statement:
    """A sequence of rows, each projected off those before: at least a constant times sum <z_i,beta>^2 / (lam n).

    The label of row i is printed with the data X_i that holds it already; X_(i-1) is meant. The constant is not given: 1
    is taken here, half of what Theorem 1 says; and 1 again where the noise must be small up to a constant.
    """
    raw = _several(s, Fs, sources)
    rows = projected(s.X, raw)
    squares = np.sum(rows.x**2, axis=1)
    # The singular values of the data so far are those of X and the |z| before, as every z is orthogonal to all of it.
    so_far = np.minimum.accumulate([smallest_singular(s.X), *np.where(squares > 0, squares, np.inf)[:-1] ** 0.5])
    ratios = np.sum((raw.x - rows.x) ** 2, axis=1) / so_far**2
    least = (1 + ratios) * s.sigma**2 / (s.lam * (s.n + np.arange(1, len(squares) + 1)))
    conditions = {
        **_conditions(s, Fs),
        "lam < 1/4": s.lam < 0.25,
        "t ≤ n": len(squares) <= s.n,
        "|z|² ≤ √n": bool(np.all(squares <= s.n**0.5)),
        "σ small": bool(np.all((rows.x @ s.beta) ** 2 >= least * squares)),
    }
    return Statement("≥", 0.5 * _rate(s, rows), sum(gains(s, rows, hold=hold)), conditions)


def several(s: Setting, Fs: Sequence[np.ndarray], sources: Sequence[int]) -> Rows:
    """Return the rows F_t x of a sequence of sources, each projected off the data and the rows before it."""
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
    """|P_X x|^2 / mu_min(X)^2 of a row x = F x_i and z, its part outside."""
    inside = x - z
    return float(inside @ inside) / smallest_singular(s.X) ** 2


def _printed_variance(s: Setting, F: np.ndarray, i: int, rows: Rows) -> float:
    z = rows.x[0]
    return (2 + 2 * _inside_ratio(s, F @ s.X[i], z)) * s.sigma**2 * float(z @ z) / (s.lam * (s.n + 1)) ** 2


def _conditions(s: Setting, Fs: Sequence[np.ndarray]) -> dict[str, bool]:
    return {**_invariant(s, Fs), "lam < 1": s.lam < 1}


def _invariant(s: Setting, Fs: Sequence[np.ndarray]) -> dict[str, bool]:
    return {"F label-invariant": all(is_label_invariant(F, s.X, s.beta) for F in Fs)}


def _small_noise(s: Setting, *raw: Rows) -> dict[str, bool]:
    """What equation 2 asks of every row F x, given before it is projected."""
    short = quiet = True
    for rows in raw:
        x, z = rows.x[0], projected(s.X, rows).x[0]
        square, along = float(z @ z), float(z @ s.beta)
        least = float(np.log(s.n)) * (1 + _inside_ratio(s, x, z)) * s.sigma**2 / (s.lam * s.n)
        short, quiet = short and square <= s.n**0.5, quiet and along**2 >= least * square  # √n stands for o(n)
    return {"|z|² ≤ √n": short, "σ small": quiet}


# The minimum norm estimator


def minnorm_bias(s: Setting) -> Statement:
    """The bias before augmentation: beta^T P_X^perp beta, as printed."""
    outside = float(s.beta @ s.beta - np.sum((np.linalg.qr(s.X.T)[0].T @ s.beta) ** 2)) if s.n < s.X.shape[1] else 0.0
    return Statement("=", outside, outside, {"rows independent": rank(s.X) == min(s.X.shape)})


def minnorm_variance(s: Setting) -> Statement:
    """The variance before augmentation: printed tr((X^T X)^+), without sigma^2."""
    trace = float(np.sum(np.linalg.pinv(s.X) ** 2))
    return Statement("=", trace, s.sigma**2 * trace, {})


def minnorm_invariant_bias(s: Setting, F: np.ndarray, i: int) -> Statement:
    """A label-invariant sample lowers the bias by <z,beta>^2 / |z|^2: as printed."""
    rows = projected(s.X, transformed(s.X, F, i))
    z = rows.x[0]
    outside = float(z @ z) > 0
    fall = float(z @ s.beta) ** 2 / float(z @ z) if outside else 0.0
    return Statement("=", fall, fall, {**_invariant(s, [F]), "z ≠ 0": outside})


def minnorm_invariant_variance(s: Setting, F: np.ndarray, i: int) -> Statement:
    """A label-invariant sample raises the variance "at a rate proportional to 1 / |z|^2": by sigma^2 |a|^2 / |z|^2.

    a are the weights of its label. No constant is printed, so that the two sides are one.
    """
    rows = projected(s.X, transformed(s.X, F, i))
    z, weights = rows.x[0], rows.weights[0]
    outside = float(z @ z) > 0
    rise = s.sigma**2 * float(weights @ weights) / float(z @ z) if outside else 0.0
    return Statement("=", -rise, -rise, {**_invariant(s, [F]), "z ≠ 0": outside})


def proposition_bias() -> Statement:
    """A mixup sample leaves the bias of the minimum norm estimator as it is."""
    return Statement("=", 0.0, 0.0, {})


def proposition_variance(s: Setting, i: int, j: int, alpha: float) -> Statement:
    """A mixup sample raises the variance: it does for n > p alone. Given as a fall, so as a negative number.

    By sigma^2 |K u|^2 (|a|^2 - h) / (1 + h)^2 with K = (X^T X)^+ and h = u^T K u: 0 where the rows of X are independent, as
    then h = |a|^2, for the new sample says nothing that the estimator does not fit already.
    """
    added = mixed(s.X, i, j, alpha)
    u, own = added.x[0], float(added.weights[0] @ added.weights[0])
    K = np.linalg.pinv(s.X.T @ s.X, hermitian=True)
    Ku = K @ u
    square, h = float(Ku @ Ku), float(u @ Ku)
    full = rank(s.X) == s.n
    repaired = 0.0 if full else -(s.sigma**2) * square * (own - h) / (1 + h) ** 2
    printed = -(s.sigma**2) * (alpha**2 + (1 - alpha) ** 2) * square  # sigma^2 is missing in print
    return Statement("→", printed, repaired, {"0 < alpha < 1": 0 < alpha < 1})
