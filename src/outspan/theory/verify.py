"""Every result beside the truth: as printed, as repaired, exactly by direct solves, and simulated."""

from dataclasses import dataclass

import numpy as np

from outspan import rng
from outspan.theory import bounds, mixup, simulate
from outspan.theory.bounds import Setting, Statement
from outspan.theory.generate import centred, flip, orthonormal, projection, rotation
from outspan.theory.minnorm import minnorm_error, pinv_update
from outspan.theory.ridge import inverse_update, ridge_error
from outspan.theory.rows import Rows, mixed, projected, transformed

_SIZES = (30, 120)  # n and 4n, where a result speaks of the limit


@dataclass(frozen=True)
class Check:
    """A result in one case: what it says, what is so, and how to draw what is so."""

    statement: Statement
    exact: float
    sample: simulate.Sample | None = None


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    result: str
    case: str
    claim: str
    conditions: dict[str, bool]
    printed: float
    repaired: float
    exact: float
    simulated: float | None  # None: there is nothing to draw
    standard_error: float | None
    verdict: str
    repaired_holds: bool


def verify(*, draws: int = 10_000, seed: int = 0) -> list[Row]:
    """Return a row for every result; two sizes are looked at where a result speaks of the limit of many samples."""
    if draws < 2:
        raise ValueError(f"draws must be at least 2, got {draws}")
    return [_row(result, case, checks, draws, seed) for result, case, checks in _checks(seed)]


def judge(checks: list[Check]) -> str:
    """Return whether what is printed holds: "holds", "fails by x %" of what is printed, or "condition not met"."""
    last = checks[-1]
    if not last.statement.met:
        return "condition not met"
    percent = 100 * _departs(last, "printed")
    return "holds" if _holds(checks, "printed") else f"fails by {percent:{',.0f' if percent >= 100 else '.3g'}} %"


def _row(result: str, case: str, checks: list[Check], draws: int, seed: int) -> Row:
    last = checks[-1]
    mean = error = None
    if last.sample is not None:
        sample = last.sample(draws, rng.generator(seed, "theory", result, case))
        mean, error = float(sample.mean()), float(sample.std(ddof=1) / len(sample) ** 0.5)
    s = last.statement
    return Row(
        result=result,
        case=case,
        claim=s.claim,
        conditions=dict(s.conditions),
        printed=s.printed,
        repaired=s.repaired,
        exact=last.exact,
        simulated=mean,
        standard_error=error,
        verdict=judge(checks),
        repaired_holds=_holds(checks, "repaired"),
    )


def _departs(check: Check, side: str) -> float:
    """Return by which share of a side the exact value departs from it, for a bound only to the wrong side."""
    value = getattr(check.statement, side)
    below = value - check.exact
    if check.statement.claim == "≥" and not (side == "repaired" and check.statement.exact):
        below = max(below, 0.0)
    return abs(below) / (abs(value) or 1.0)


def _holds(checks: list[Check], side: str) -> bool:
    departs = _departs(checks[-1], side)
    if side == "printed" and checks[-1].statement.claim == "→":
        # What goes to 0 with 1/n is at 4n a quarter of what it is at n, give or take: the data differ. What stays is all of it.
        return departs <= 0.6 * _departs(checks[0], side) + 1e-8
    return departs <= 1e-8


# The cases. Every exact value comes from ridge_error or minnorm_error, or where an expectation is taken over pairs and alpha
# from `mixup_gain`, which the tests hold against them; every draw from plain p x p solves.


def _ridge(s: Setting, statement: Statement, rows: Rows, *, hold: bool, part: simulate.Part = "total") -> Check:
    change = ridge_error(s.X, s.beta, s.lam, s.sigma) - ridge_error(s.X, s.beta, s.lam, s.sigma, added=rows, hold=hold)
    before, after = simulate.ridge_map(s, None, hold=True), simulate.ridge_map(s, rows, hold=hold)
    return Check(statement, getattr(change, part), lambda draws, g: simulate.fall(s, before, after, draws, g, part))


def _minnorm(s: Setting, statement: Statement, rows: Rows, part: simulate.Part) -> Check:
    change = minnorm_error(s.X, s.beta, s.sigma) - minnorm_error(s.X, s.beta, s.sigma, added=rows)
    before, after = simulate.minnorm_map(s, None), simulate.minnorm_map(s, rows)
    return Check(statement, getattr(change, part), lambda draws, g: simulate.fall(s, before, after, draws, g, part))


def plain(n: int, seed: int, *, lam: float = 0.2, sigma: float = 0.05) -> Setting:
    """Return Gaussian rows of norm about 1 in p = 2n dimensions and a random unit beta that a flip leaves alone."""
    g = rng.generator(seed, "theory", "plain", n)
    beta = g.standard_normal(2 * n)
    beta += beta[::-1]
    return Setting(g.standard_normal((n, 2 * n)) / (2 * n) ** 0.5, beta / np.linalg.norm(beta), lam, sigma)


def spiked(n: int, seed: int, *, spike: float, lam: float = 0.2, sigma: float = 0.05, new: float = 0.2) -> Setting:
    """Return rows with one entry in common, the first, and beta = e_1 + new e_p; nothing is known of e_p, the last."""
    g = rng.generator(seed, "theory", "spiked", n)
    X = g.standard_normal((n, 2 * n)) / (2 * n) ** 0.5
    X[:, 0], X[:, -1] = spike, 0.0
    X[0, 0] = 1.0
    return Setting(X, np.eye(1, 2 * n, 0)[0] + new * np.eye(1, 2 * n, 2 * n - 1)[0], lam, sigma)


def swap(s: Setting) -> np.ndarray:
    """Return the projection along (new e_1 - e_p), which keeps every label and shows what e_p is like."""
    q = np.zeros(s.X.shape[1])
    q[0], q[-1] = s.beta[-1], -s.beta[0]
    q /= np.linalg.norm(q)
    return np.eye(len(q)) - np.outer(q, q)


def _checks(seed: int) -> list[tuple[str, str, list[Check]]]:
    return [*_invariant(seed), *_mixup(seed), *_least(seed), *_tools(seed)]


def _invariant(seed: int) -> list[tuple[str, str, list[Check]]]:
    s = plain(40, seed)
    F = flip(80)
    rows = projected(s.X, transformed(s.X, F, 0))
    quiet = plain(40, seed, sigma=0.0001)  # else what the printed bound grants to the noise would hide what it lacks
    said, bias = bounds.theorem_1(quiet, F, 0, hold=True), bounds.lemma_1_bias(s, F, 0, hold=True)
    found = [
        ("Theorem 1, eq. 1", "flip, (n+1)λ", [_ridge(s, bounds.theorem_1(s, F, 0), rows, hold=False)]),
        ("Theorem 1, eq. 1", "flip, nλ held", [_ridge(s, bounds.theorem_1(s, F, 0, hold=True), rows, hold=True)]),
        ("Theorem 1, eq. 1", "flip, nλ held, σ = 0.0001", [_ridge(quiet, said, rows, hold=True)]),
        ("Lemma 1, bias", "flip, (n+1)λ", [_ridge(s, bounds.lemma_1_bias(s, F, 0), rows, hold=False, part="bias")]),
        ("Lemma 1, bias", "flip, nλ held", [_ridge(s, bias, rows, hold=True, part="bias")]),
        ("Lemma 1, variance", "flip, (n+1)λ", [_ridge(s, bounds.lemma_1_variance(s, F, 0), rows, hold=False, part="variance")]),
    ]

    def rate(n: int, spike: float, new: float, hold: bool) -> Check:
        s = spiked(n, seed, spike=spike, new=new)
        rows = projected(s.X, transformed(s.X, swap(s), 0))
        return _ridge(s, bounds.theorem_1_rate(s, swap(s), 0, hold=hold), rows, hold=hold)

    found += [
        ("Theorem 1, eq. 2", "no spike, (n+1)λ", [rate(n, 0.0, 1.0, False) for n in _SIZES]),
        ("Theorem 1, eq. 2", "spike, (n+1)λ", [rate(n, 1.0, 0.2, False) for n in _SIZES]),
        ("Theorem 1, eq. 2", "spike, nλ held", [rate(n, 1.0, 0.2, True) for n in _SIZES]),
    ]

    def uniform(n: int, hold: bool) -> Check:
        s = spiked(n, seed, spike=1.0, sigma=0.001)  # small enough for each z alone
        g = rng.generator(seed, "theory", "uniform", n)
        Fs = [swap(s), swap(s) @ rotation(s.beta, np.pi / 4, g), projection(s.beta, n, g)]
        statement = bounds.uniform_sampling(s, Fs, 0, hold=hold)
        parts = [_ridge(s, statement, projected(s.X, transformed(s.X, F, 0)), hold=hold) for F in Fs]

        samples = [part.sample for part in parts if part.sample is not None]
        return Check(
            statement, float(np.mean([part.exact for part in parts])), lambda draws, g: simulate.one_of(samples, draws, g)
        )

    for case, hold in (("spike, (n+1)λ", False), ("spike, nλ held", True)):
        found.append(("Corollary, uniform sampling", case, [uniform(n, hold) for n in _SIZES]))

    def composition(n: int, how: str) -> Check:
        s = spiked(n, seed, spike=1.0, sigma=0.001)
        turn = rotation(s.beta, np.pi / 4, rng.generator(seed, "theory", "compose", n))
        # Of two additive parts each shows e_p; multiplied, F2 = swap must act inside F1, or F1 would undo it.
        F1, F2 = (swap(s), turn @ swap(s)) if how == "additive" else (turn, swap(s))
        first, both = bounds.composed(s, F1, F2, 0, how)
        statement = bounds.composition(s, F1, F2, 0, how)  # pyright: ignore[reportArgumentType]
        maps = [simulate.ridge_map(s, rows, hold=False) for rows in (first, both)]
        errors = [ridge_error(s.X, s.beta, s.lam, s.sigma, added=rows, hold=False) for rows in (first, both)]
        change = (errors[0] - errors[1]).total
        return Check(statement, change, lambda draws, g: simulate.fall(s, maps[0], maps[1], draws, g))

    for how in ("additive", "multiplicative"):
        found.append((f"Corollary, {how} composition", "spike, (n+1)λ", [composition(n, how) for n in _SIZES]))

    s = plain(40, seed, sigma=0.0001)
    g = rng.generator(seed, "theory", "several")
    Fs = [projection(s.beta, 20, g) for _ in range(20)]
    for case, hold in (("20 points, (n+t)λ", False), ("20 points, nλ held", True)):
        statement = bounds.several_points(s, Fs, range(20), hold=hold)
        rows = bounds.several(s, Fs, range(20))
        found.append(("Corollary, several points", case, [_ridge(s, statement, rows, hold=hold)]))
    return found


def line(n: int, *, gamma: float = 3.0, lam: float = 0.1, sigma: float = 0.0) -> Setting:
    """Return the case that defeats Theorem 2: samples at ±gamma on a line."""
    X = gamma * np.where(np.arange(n) % 2, -1.0, 1.0)[:, None]
    return Setting(X, np.ones(1), lam, sigma)


def _mixup(seed: int) -> list[tuple[str, str, list[Check]]]:
    n, alpha = 40, 0.3
    X = centred(n, 20, 1.05, rng.generator(seed, "theory", "centred"))
    beta = np.linalg.qr(X.T)[0][:, 0]
    s = Setting(X, beta, 0.9, 0.02)
    squares = np.sum((alpha * X[:, None] + (1 - alpha) * X[None]) ** 2, axis=2)
    distinct = (squares.sum() - np.trace(squares)) / (n * (n - 1))

    def pairs(draws: int, g: np.random.Generator, *, replacement: bool) -> simulate.Draws:
        i = g.integers(0, n, draws)
        j = g.integers(0, n, draws) if replacement else (i + g.integers(1, n, draws)) % n
        return squares[i, j]

    moments = [
        (case, mixup.mixup_moment(X, alpha, replacement=both), exact, lambda d, g, both=both: pairs(d, g, replacement=both))
        for case, exact, both in (("independent partners", squares.mean(), True), ("distinct partners", distinct, False))
    ]
    c = mixup.beta_constant(0.4, 0.7)
    nodes, weights = mixup.beta_nodes(0.4, 0.7)
    constant = Check(
        Statement("=", c, c, {}), float(weights @ (1 - 2 * nodes) ** 2), lambda d, g: (1 - 2 * g.beta(0.4, 0.7, d)) ** 2
    )
    found = [("Mixup, second moment", case, [Check(said, float(exact), draw)]) for case, said, exact, draw in moments]
    found.append(("Mixup, the constant c", "Beta(0.4, 0.7)", [constant]))
    noisy = Setting(X, beta, 0.9, 1.0)
    for case, case_s, gamma in (("γ = 1.05", s, 1.05), ("±3 on a line", line(40, sigma=0.005), 3.0), ("σ = 1", noisy, 1.05)):
        found.append(("Theorem 2", case, [_expected_mixup(case_s, gamma)]))
    wide = plain_centred(seed)
    found.append(("Lemma 2, bias", "the worst pair, α = 0.3", [_worst(wide, alpha, "bias")]))
    found.append(("Lemma 2, variance", "the worst pair, α = 0.3", [_worst(wide, alpha, "variance")]))
    said, added = mixup.mixup_noise(s, 0, 1, alpha), mixed(s.X, 0, 1, alpha)
    B = s.X.T + added.x.T @ added.weights
    found.append(
        ("Lemma 2, noise", "α = 0.3", [Check(said, s.sigma**2 * float(np.sum(B**2)), lambda d, g: _noise(s, B, d, g))])
    )
    return found


def plain_centred(seed: int) -> Setting:
    """Return centred rows of one norm whose spectrum is far from flat, so that single mixup samples differ in effect."""
    g = rng.generator(seed, "theory", "wide")
    half = g.standard_normal((20, 30)) * np.geomspace(3, 0.1, 30)
    half *= 1.2 / np.linalg.norm(half, axis=1, keepdims=True)
    beta = g.standard_normal(30)
    return Setting(np.concatenate([half, -half]), beta / np.linalg.norm(beta), 0.1, 0.1)


def _noise(s: Setting, B: np.ndarray, draws: int, g: np.random.Generator) -> simulate.Draws:
    return np.sum((s.sigma * g.standard_normal((draws, s.n)) @ B.T) ** 2, axis=1)


def _product(s: Setting, M: np.ndarray, off: np.ndarray, draws: int, g: np.random.Generator) -> simulate.Draws:
    """Return draws whose mean is |off|^2, from two independent draws of the noise."""
    first, second = (off + s.sigma * g.standard_normal((draws, s.n)) @ M.T for _ in range(2))
    return np.sum(first * second, axis=1)


def _expected_mixup(s: Setting, gamma: float) -> Check:
    """Return Theorem 2 against the mean over all pairs and over alpha."""
    exact = sum(mixup.mixup_gain(s))
    return Check(mixup.theorem_2(s, gamma), exact, lambda draws, g: simulate.mixup_fall(s, 1.0, 1.0, draws, g))


def _worst(s: Setting, alpha: float, part: simulate.Part) -> Check:
    """Return the lemma for the pair that it fits worst: it speaks of every sample."""
    state = mixup.lemma_2_bias if part == "bias" else mixup.lemma_2_variance
    checks = [
        _ridge(s, state(s, i, j, alpha), mixed(s.X, i, j, alpha), hold=True, part=part) for i in range(8) for j in range(8)
    ]
    return max(checks, key=lambda check: check.statement.printed - check.exact)


def _least(seed: int) -> list[tuple[str, str, list[Check]]]:
    s, loud = (plain(40, seed, sigma=sigma) for sigma in (0.05, 0.5))
    F = projection(s.beta, 40, rng.generator(seed, "theory", "least"))
    rows = projected(s.X, transformed(s.X, F, 0))
    M = simulate.minnorm_map(s, None)
    variance = minnorm_error(s.X, s.beta, s.sigma).variance
    spread = Check(bounds.minnorm_variance(s), variance, lambda d, g: _noise(s, M, d, g))
    rise_of = bounds.minnorm_invariant_variance(loud, F, 0)
    off = (M @ s.X - np.eye(len(s.beta))) @ s.beta
    before = Check(bounds.minnorm_bias(s), minnorm_error(s.X, s.beta, s.sigma).bias, lambda d, g: _product(s, M, off, d, g))
    found = [
        ("Min. norm, bias", "n < p", [before]),
        ("Min. norm, variance", "n < p", [spread]),
        ("Min. norm, invariant, bias", "n < p", [_minnorm(s, bounds.minnorm_invariant_bias(s, F, 0), rows, "bias")]),
        ("Min. norm, invariant, variance", "n < p", [_minnorm(loud, rise_of, rows, "variance")]),
        ("Proposition, a) bias", "n < p", [_minnorm(s, bounds.proposition_bias(), mixed(s.X, 0, 1, 0.3), "bias")]),
    ]

    def rise(n: int, p: int) -> Check:
        X = rng.generator(seed, "theory", "rise", n).standard_normal((n, p))
        s = Setting(X, orthonormal(p, 1, rng.generator(seed, "theory", "rise beta", p))[:, 0], 0.2, 0.5)
        return _minnorm(s, bounds.proposition_variance(s, 0, 1, 0.3), mixed(s.X, 0, 1, 0.3), "variance")

    found.append(("Proposition, b) variance", "n < p", [rise(n, 2 * n) for n in (20, 80)]))
    found.append(("Proposition, b) variance", "n > p", [rise(n, 10) for n in (100, 400)]))
    return found


def _tools(seed: int) -> list[tuple[str, str, list[Check]]]:
    """The formulas for rank-one updates: the trace of what they give, beside that of a fresh inverse."""
    g = rng.generator(seed, "theory", "tools")
    A, u, v = g.standard_normal((6, 6)) + 4 * np.eye(6), g.standard_normal(6), g.standard_normal(6)
    inverse = np.linalg.inv(A)
    denominator = 1 + u @ inverse @ v  # u and v have changed places
    printed = float(np.trace(inverse) - (v @ inverse @ inverse @ u) / denominator)
    said = Statement("=", printed, float(np.trace(inverse_update(inverse, u, v))), {"1 + uᵀA⁻¹v ≠ 0": bool(denominator)})
    found = [("Sherman-Morrison", "A not symmetric", [Check(said, float(np.trace(np.linalg.inv(A + np.outer(u, v)))))])]
    B = g.standard_normal((6, 3))
    B, C = B @ B.T, B @ g.standard_normal((3, 6))
    for case, A, w in (("outside the span", B, u), ("in the span", B, B @ u), ("X not symmetric", C, u)):
        said, fresh = _pseudo_inverse(A, w), float(np.trace(np.linalg.pinv(A + np.outer(w, w))))
        found.append(("Pseudo-inverse update", case, [Check(said, fresh)]))
    return found


def _pseudo_inverse(A: np.ndarray, u: np.ndarray) -> Statement:
    """The trace of (A + u u^T)^+, as printed with one s, what u has outside the rows of A."""
    P = np.linalg.pinv(A)
    s, h = u - P @ (A @ u), u @ P @ u
    if np.linalg.norm(s) > 1e-10 * np.linalg.norm(u):
        s = s / (s @ s)
        printed = np.trace(P) - s @ P @ u - u @ P @ s + (1 + h) * (s @ s)
    else:
        printed = np.trace(P) - u @ P @ P @ u / (1 + h)
    return Statement("=", float(printed), float(np.trace(pinv_update(A, P, u))), {"1 + uᵀX⁺u ≠ 0": bool(1 + h)})
