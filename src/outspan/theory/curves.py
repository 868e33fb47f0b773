"""What the results look like: the gain against n, |z|^2 and lam, and what choosing by loss adds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outspan import rng
from outspan.theory.bounds import Setting, outside_gain, theorem_1
from outspan.theory.generate import projection
from outspan.theory.mixup import mixup_gain
from outspan.theory.ridge import ridge_error
from outspan.theory.rows import Rows, projected, transformed
from outspan.theory.verify import spiked, swap

N = (10, 20, 40, 80, 160, 320)


@dataclass(frozen=True)
class Curve:
    """A line of a plot."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    error: tuple[float, ...] = ()  # standard errors, where y is drawn


def slope(curve: Curve) -> float:
    """Return the slope of a curve in log-log, over its upper half."""
    half = len(curve.x) // 2
    return float(np.polyfit(np.log(curve.x[half:]), np.log(curve.y[half:]), 1)[0])


def against_n(*, seed: int = 0) -> list[Curve]:
    """Return the gain of one sample against n: label-invariant with one z, and mixup with rows of one norm."""
    gain, mixup = [], []
    for n in N:
        s = spiked(n, seed, spike=1.0, new=1.0, sigma=0.0)
        rows = projected(s.X, transformed(s.X, swap(s), 0))
        gain.append(_gain(s, rows, hold=True))
        X = np.tile(np.concatenate([np.eye(5), -np.eye(5)]), (n // 10, 1))  # rows of norm 1 that add up to 0
        mixup.append(sum(mixup_gain(Setting(X, np.full(5, 5**-0.5), 0.2, 0.0))))
    return [Curve("label-invariant", N, tuple(gain)), Curve("mixup", N, tuple(mixup))]


def against_spike(*, seed: int = 0) -> list[Curve]:
    """Return n times the gain where a spike of the data is along beta: as printed, with (n + 1) lam, with n lam held."""
    lines: dict[str, list[float]] = {"printed, eq. 2": [], "exact, (n+1)λ": [], "exact, nλ held": []}
    for n in N[1:]:
        s = spiked(n, seed, spike=1.0, sigma=0.0)
        rows = projected(s.X, transformed(s.X, swap(s), 0))
        values = (2 * (rows.x[0] @ s.beta) ** 2 / (s.lam * n), _gain(s, rows, hold=False), _gain(s, rows, hold=True))
        for line, value in zip(lines.values(), values, strict=True):
            line.append(n * float(value))
    return [Curve(name, N[1:], tuple(y)) for name, y in lines.items()]


def against_z(*, seed: int = 0) -> list[Curve]:
    """Return the gain against |z|^2 at one <z,beta>^2 / |z|^2: as printed in equation 1, and exactly, penalty held."""
    n, squares = 40, np.geomspace(0.01, 1000, 41)
    s = spiked(n, seed, spike=0.0, new=1.0, sigma=0.0)
    row = projected(s.X, transformed(s.X, swap(s), 0))
    unit = row.x[0] / np.linalg.norm(row.x[0])
    z = unit * squares[:, None] ** 0.5
    known = z @ s.beta
    m = n + 1
    printed = (2 * s.lam * m - (1 - 2 * s.lam) * squares) * known**2 / (s.lam**2 * (m + squares) ** 2)
    held = outside_gain(known, squares, n * s.lam)
    grown = [_gain(s, Rows(one[None], row.weights * (np.linalg.norm(one) / np.linalg.norm(row.x[0]))), hold=False) for one in z]
    x = tuple(squares.tolist())
    return [
        Curve("printed, eq. 1", x, tuple(printed.tolist())),
        Curve("exact, (n+1)λ", x, tuple(grown)),
        Curve("exact, nλ held", x, tuple(held.tolist())),
    ]


def against_lam(*, seed: int = 0) -> list[Curve]:
    """Return the gain against lam with noise: as printed in equation 1, and exactly with the penalty grown and held."""
    lams = np.geomspace(0.01, 0.99, 25)
    lines: dict[str, list[float]] = {"printed, eq. 1": [], "exact, (n+1)λ": [], "exact, nλ held": []}
    for lam in lams:
        s = spiked(40, seed, spike=1.0, new=0.5, lam=float(lam), sigma=0.02)
        rows = projected(s.X, transformed(s.X, swap(s), 0))
        values = (theorem_1(s, swap(s), 0).printed, _gain(s, rows, hold=False), _gain(s, rows, hold=True))
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
    """Return the gain of the candidate of highest loss against the number C of candidates, a curve a sigma; 1 is a random one.

    Each draw has its own noise, source and candidates, out of 32 label-invariant transforms. The loss is that of the
    projected sample under the ridge estimate, so y^2, for z is orthogonal to all that the estimate knows; the gain is what
    adding it does to |b - beta|^2 in that very draw.
    """
    n, p, most = 30, 60, max(candidates)  # more dimensions than samples
    g = rng.generator(seed, "theory", "candidates")
    beta = g.standard_normal(p)
    s = Setting(g.standard_normal((n, p)) / p**0.5, beta / np.linalg.norm(beta), 0.1, 0.0)
    Fs = [projection(s.beta, int(k), g) for k in g.integers(1, p // 2, max(32, most))]
    added = [[projected(s.X, transformed(s.X, F, i)) for F in Fs] for i in range(n)]
    z = np.array([[one.x[0] for one in row] for row in added])  # [n, K, p]
    weights = np.array([[one.weights[0] for one in row] for row in added])
    square, along, penalty = np.sum(z**2, axis=2), z @ s.beta, s.n * s.lam
    found = []
    for sigma in sigmas:
        g = rng.generator(seed, "theory", "candidates", str(sigma))
        noise = sigma * g.standard_normal((draws, n))
        source = g.integers(0, n, draws)
        drawn = g.permuted(np.tile(np.arange(len(Fs)), (draws, 1)), axis=1)[:, :most]
        pick = source[:, None], drawn
        off = np.einsum("dn,dcn->dc", noise, weights[pick]) if sigma else np.zeros(drawn.shape)
        loss = (along[pick] + off) ** 2
        gain = outside_gain(along[pick], square[pick], penalty, off)  # in this very draw: the label is off by its noise
        means, errors = [], []
        for count in candidates:
            chosen = np.take_along_axis(gain, loss[:, :count].argmax(axis=1)[:, None], axis=1)[:, 0]
            means.append(float(chosen.mean()))
            errors.append(float(chosen.std(ddof=1)) / draws**0.5)
        found.append(Curve(f"σ = {sigma:g}", tuple(map(float, candidates)), tuple(means), tuple(errors)))
    return found


def _gain(s: Setting, rows: Rows, *, hold: bool) -> float:
    before = ridge_error(s.X, s.beta, s.lam, s.sigma)
    return (before - ridge_error(s.X, s.beta, s.lam, s.sigma, added=rows, hold=hold)).total
