"""The checks of Theorem 1, its lemma and its corollaries: label-invariant transforms."""

from typing import Literal

import numpy as np

from outspan import rng
from outspan.theory import bounds, simulate
from outspan.theory.checks import Case, Check, make_case, ridge_check
from outspan.theory.examples import plain, spiked, swap
from outspan.theory.generate import flip, projection, rotation
from outspan.theory.ridge import ridge_error
from outspan.theory.rows import projected, transformed

_SIZES = (30, 120)  # n and 4n, for results that are limits


def invariant_cases(seed: int) -> list[Case]:
    """Return the cases of label-invariant transforms."""
    return [
        *_theorem_1(seed),
        *_theorem_1_rate(seed),
        *_uniform_sampling(seed),
        *_compositions(seed),
        *_several_points(seed),
    ]


def _theorem_1(seed: int) -> list[Case]:
    s, F = plain(40, seed), flip(80)
    quiet = plain(40, seed, sigma=0.0001)  # with more noise, the printed variance term hides the error in the bias term
    rows = projected(s.X, transformed(s.X, F, 0))

    def total(setting: bounds.Setting, fixed_penalty: bool) -> Check:
        statement = bounds.theorem_1(setting, F, 0, fixed_penalty=fixed_penalty)
        return ridge_check(setting, statement, rows, fixed_penalty=fixed_penalty)

    def bias(fixed_penalty: bool) -> Check:
        statement = bounds.lemma_1_bias(s, F, 0, fixed_penalty=fixed_penalty)
        return ridge_check(s, statement, rows, fixed_penalty=fixed_penalty, part="bias")

    variance = ridge_check(s, bounds.lemma_1_variance(s, F, 0), rows, fixed_penalty=False, part="variance")
    return [
        make_case("Theorem 1, eq. 1", "flip, (n+1)λ", total(s, False)),
        make_case("Theorem 1, eq. 1", "flip, nλ held", total(s, True)),
        make_case("Theorem 1, eq. 1", "flip, nλ held, σ = 0.0001", total(quiet, True)),
        make_case("Lemma 1, bias", "flip, (n+1)λ", bias(False)),
        make_case("Lemma 1, bias", "flip, nλ held", bias(True)),
        make_case("Lemma 1, variance", "flip, (n+1)λ", variance),
    ]


def _theorem_1_rate(seed: int) -> list[Case]:
    def check(n: int, spike: float, new: float, fixed_penalty: bool) -> Check:
        s = spiked(n, seed, spike=spike, new=new)
        rows = projected(s.X, transformed(s.X, swap(s), 0))
        statement = bounds.theorem_1_rate(s, swap(s), 0, fixed_penalty=fixed_penalty)
        return ridge_check(s, statement, rows, fixed_penalty=fixed_penalty)

    return [
        make_case("Theorem 1, eq. 2", "no spike, (n+1)λ", *(check(n, 0.0, 1.0, False) for n in _SIZES)),
        make_case("Theorem 1, eq. 2", "spike, (n+1)λ", *(check(n, 1.0, 0.2, False) for n in _SIZES)),
        make_case("Theorem 1, eq. 2", "spike, nλ held", *(check(n, 1.0, 0.2, True) for n in _SIZES)),
    ]


def _uniform_sampling(seed: int) -> list[Case]:
    def check(n: int, fixed_penalty: bool) -> Check:
        s = spiked(n, seed, spike=1.0, sigma=0.001)  # small enough for each of the three z
        g = rng.generator(seed, "theory", "uniform", n)
        Fs = [swap(s), swap(s) @ rotation(s.beta, np.pi / 4, g), projection(s.beta, n, g)]
        statement = bounds.uniform_sampling(s, Fs, 0, fixed_penalty=fixed_penalty)
        added = [projected(s.X, transformed(s.X, F, 0)) for F in Fs]
        parts = [ridge_check(s, statement, rows, fixed_penalty=fixed_penalty) for rows in added]
        samples = [part.sample for part in parts if part.sample is not None]
        exact = float(np.mean([part.exact for part in parts]))
        return Check(statement, exact, lambda draws, g: simulate.one_of(samples, draws, g))

    return [
        make_case("Corollary, uniform sampling", name, *(check(n, fixed_penalty) for n in _SIZES))
        for name, fixed_penalty in (("spike, (n+1)λ", False), ("spike, nλ held", True))
    ]


def _compositions(seed: int) -> list[Case]:
    def check(n: int, how: Literal["additive", "multiplicative"]) -> Check:
        s = spiked(n, seed, spike=1.0, sigma=0.001)
        turn = rotation(s.beta, np.pi / 4, rng.generator(seed, "theory", "compose", n))
        # Both parts of the sum show e_p. In the product, F2 = swap acts first: otherwise F1 would undo it.
        F1, F2 = (swap(s), turn @ swap(s)) if how == "additive" else (turn, swap(s))
        added = bounds.composed(s, F1, F2, 0, how)  # F1 alone, then the composition
        statement = bounds.composition(s, F1, F2, 0, how)
        maps = [simulate.ridge_map(s, rows, fixed_penalty=False) for rows in added]
        errors = [ridge_error(s.X, s.beta, s.lam, s.sigma, added=rows, fixed_penalty=False) for rows in added]
        change = (errors[0] - errors[1]).total
        return Check(statement, change, lambda draws, g: simulate.decrease(s, maps[0], maps[1], draws, g))

    return [
        make_case("Corollary, additive composition", "spike, (n+1)λ", *(check(n, "additive") for n in _SIZES)),
        make_case("Corollary, multiplicative composition", "spike, (n+1)λ", *(check(n, "multiplicative") for n in _SIZES)),
    ]


def _several_points(seed: int) -> list[Case]:
    s = plain(40, seed, sigma=0.0001)
    g = rng.generator(seed, "theory", "several")
    Fs = [projection(s.beta, 20, g) for _ in range(20)]
    rows = bounds.several(s, Fs, range(20))

    def check(fixed_penalty: bool) -> Check:
        statement = bounds.several_points(s, Fs, range(20), fixed_penalty=fixed_penalty)
        return ridge_check(s, statement, rows, fixed_penalty=fixed_penalty)

    return [
        make_case("Corollary, several points", "20 points, (n+t)λ", check(False)),
        make_case("Corollary, several points", "20 points, nλ held", check(True)),
    ]
