"""The curves of the theory plots: the gain against n, |z|^2 and lam, and the gain of choosing by loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from outspan import rng
from outspan.shapes import Float64
from outspan.theory.bounds import Setting, outside_gain, theorem_1
from outspan.theory.examples import spiked, swap
from outspan.theory.generate import projection
from outspan.theory.mixup import mixup_gain
from outspan.theory.ridge import ridge_error
from outspan.theory.rows import Rows, projected, transformed

N = (10, 20, 40, 80, 160, 320)


@dataclass(frozen=True)
class Curve:
    """A line of a plot."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    error: tuple[float, ...] = ()  # standard errors, if y is simulated

    def slope(self) -> float:
        """Return the slope in a log-log plot, fitted to the upper half of the points."""
        half = len(self.x) // 2
        return float(np.polyfit(np.log(self.x[half:]), np.log(self.y[half:]), 1)[0])


def theory_curves() -> Mapping[str, list[Curve]]:
    """Return the curves of every plot, by the name of the plot."""
    return {
        "theory-n": against_n(),
        "theory-spike": against_spike(),
        "theory-z": against_z(),
        "theory-lambda": against_lam(),
        "theory-candidates": against_candidates(),
    }


def against_n(*, seed: int = 0) -> list[Curve]:
    """Return the gain of one sample against n: label-invariant with the same z, and mixup with rows of equal norm."""
    gain, mixup = [], []
    for n in N:
        s = spiked(n, seed, spike=1.0, new=1.0, sigma=0.0)
        rows = projected(s.X, transformed(s.X, swap(s), 0))
        gain.append(_gain(s, rows, fixed_penalty=True))
        X = np.tile(np.concatenate([np.eye(5), -np.eye(5)]), (n // 10, 1))  # rows of norm 1 that add up to 0
        mixup.append(sum(mixup_gain(Setting(X, np.full(5, 5**-0.5), 0.2, 0.0))))
    return [Curve("label-invariant", N, tuple(gain)), Curve("mixup", N, tuple(mixup))]


def against_spike(*, seed: int = 0) -> list[Curve]:
    """Return n times the gain against n if all samples share an entry along beta.

    The curves are: as printed, exact with the penalty (n + 1) lam, and exact with the fixed penalty n lam.
    """
    lines: dict[str, list[float]] = {"printed, eq. 2": [], "exact, (n+1)λ": [], "exact, nλ held": []}
    for n in N[1:]:
        s = spiked(n, seed, spike=1.0, sigma=0.0)
        rows = projected(s.X, transformed(s.X, swap(s), 0))
        printed = 2 * (rows.x[0] @ s.beta) ** 2 / (s.lam * n)
        values = (printed, _gain(s, rows, fixed_penalty=False), _gain(s, rows, fixed_penalty=True))
        for line, value in zip(lines.values(), values, strict=True):
            line.append(n * float(value))
    return [Curve(name, N[1:], tuple(y)) for name, y in lines.items()]


def against_z(*, seed: int = 0) -> list[Curve]:
    """Return the gain against |z|^2 for a constant <z,beta>^2 / |z|^2: as printed in equation 1, and exact."""
    n, squares = 40, np.geomspace(0.01, 1000, 41)
    s = spiked(n, seed, spike=0.0, new=1.0, sigma=0.0)
    row = projected(s.X, transformed(s.X, swap(s), 0))
    norm = np.linalg.norm(row.x[0])
    z = row.x[0] / norm * squares[:, None] ** 0.5
    along = z @ s.beta
    m = n + 1
    printed = (2 * s.lam * m - (1 - 2 * s.lam) * squares) * along**2 / (s.lam**2 * (m + squares) ** 2)
    fixed = outside_gain(along, squares, n * s.lam)
    scaled = [Rows(each[None], row.weights * (np.linalg.norm(each) / norm)) for each in z]
    growing = [_gain(s, rows, fixed_penalty=False) for rows in scaled]
    x = tuple(squares.tolist())
    return [
        Curve("printed, eq. 1", x, tuple(printed.tolist())),
        Curve("exact, (n+1)λ", x, tuple(growing)),
        Curve("exact, nλ held", x, tuple(fixed.tolist())),
    ]


def against_lam(*, seed: int = 0) -> list[Curve]:
    """Return the gain against lam with noise: as printed in equation 1, and exact with growing and with fixed penalty."""
    lams = np.geomspace(0.01, 0.99, 25)
    lines: dict[str, list[float]] = {"printed, eq. 1": [], "exact, (n+1)λ": [], "exact, nλ held": []}
    for lam in lams:
        s = spiked(40, seed, spike=1.0, new=0.5, lam=float(lam), sigma=0.02)
        rows = projected(s.X, transformed(s.X, swap(s), 0))
        printed = theorem_1(s, swap(s), 0).printed
        values = (printed, _gain(s, rows, fixed_penalty=False), _gain(s, rows, fixed_penalty=True))
        for line, value in zip(lines.values(), values, strict=True):
            line.append(value)
    return [Curve(name, tuple(lams.tolist()), tuple(y)) for name, y in lines.items()]


def against_candidates(
    *,
    candidates: Sequence[int] = (1, 2, 4, 8, 16, 32),
    sigmas: Sequence[float] = (0.0, 0.2, 0.4, 0.8),
    draws: int = 20_000,
    seed: int = 0,
) -> list[Curve]:
    """Return the gain of the candidate with the highest loss against the number of candidates, one curve per sigma.

    One candidate is a random choice. Each draw has its own noise, source and candidates, out of 32 label-invariant
    transforms. The loss is that of the projected sample under the ridge estimate: y^2, because z is orthogonal to the data.
    The gain is the decrease of |b - beta|^2 in the same draw.
    """
    n, p, largest = 30, 60, max(candidates)  # more dimensions than samples
    g = rng.generator(seed, "theory", "candidates")
    beta = g.standard_normal(p)
    s = Setting(g.standard_normal((n, p)) / p**0.5, beta / np.linalg.norm(beta), 0.1, 0.0)
    Fs = [projection(s.beta, int(k), g) for k in g.integers(1, p // 2, max(32, largest))]
    added = [[projected(s.X, transformed(s.X, F, i)) for F in Fs] for i in range(n)]
    z = np.array([[rows.x[0] for rows in by_transform] for by_transform in added])  # [n, K, p]
    weights = np.array([[rows.weights[0] for rows in by_transform] for by_transform in added])  # [n, K, n]
    curves = []
    for sigma in sigmas:
        loss, gain = _losses_and_gains(s, z, weights, sigma, draws, largest, seed)
        means, errors = [], []
        for count in candidates:
            chosen = np.take_along_axis(gain, loss[:, :count].argmax(axis=1)[:, None], axis=1)[:, 0]
            means.append(float(chosen.mean()))
            errors.append(float(chosen.std(ddof=1)) / draws**0.5)
        curves.append(Curve(f"σ = {sigma:g}", tuple(map(float, candidates)), tuple(means), tuple(errors)))
    return curves


def _losses_and_gains(
    s: Setting, z: np.ndarray, weights: np.ndarray, sigma: float, draws: int, candidates: int, seed: int
) -> tuple[Float64[np.ndarray, "draws candidates"], Float64[np.ndarray, "draws candidates"]]:
    """Return the loss and the gain of each candidate in each draw, from z [n, K, p] and the label weights [n, K, n]."""
    square, along = np.sum(z**2, axis=2), z @ s.beta
    g = rng.generator(seed, "theory", "candidates", str(sigma))
    noise = sigma * g.standard_normal((draws, s.n))
    source = g.integers(0, s.n, draws)
    drawn = g.permuted(np.tile(np.arange(z.shape[1]), (draws, 1)), axis=1)[:, :candidates]
    pick = source[:, None], drawn
    label_error = np.einsum("dn,dcn->dc", noise, weights[pick]) if sigma else np.zeros(drawn.shape)
    loss = (along[pick] + label_error) ** 2
    return loss, outside_gain(along[pick], square[pick], s.n * s.lam, label_error)


def _gain(s: Setting, rows: Rows, *, fixed_penalty: bool) -> float:
    before = ridge_error(s.X, s.beta, s.lam, s.sigma)
    return (before - ridge_error(s.X, s.beta, s.lam, s.sigma, added=rows, fixed_penalty=fixed_penalty)).total
