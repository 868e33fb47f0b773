"""The table of results: every result has a row, simulations agree with exact values, and the repaired bounds hold."""

import numpy as np
import pytest

from linear import setting
from outspan import rng
from outspan.theory import simulate
from outspan.theory.bounds import Statement
from outspan.theory.checks import Case, Check
from outspan.theory.mixup import mixup_gain
from outspan.theory.verification import verify


@pytest.fixture(scope="module")
def rows():
    return verify()


def test_every_result_of_the_paper_has_a_row(rows):
    for name in (
        "Theorem 1, eq. 1", "Theorem 1, eq. 2", "Lemma 1, bias", "Lemma 1, variance", "Corollary, uniform sampling",
        "Corollary, additive composition", "Corollary, multiplicative composition", "Corollary, several points",
        "Theorem 2", "Lemma 2, bias", "Lemma 2, variance", "Proposition, a) bias", "Proposition, b) variance",
        "Min. norm, bias", "Min. norm, variance", "Min. norm, invariant, bias", "Min. norm, invariant, variance",
        "Mixup, second moment", "Mixup, the constant c", "Sherman-Morrison", "Pseudo-inverse update",
    ):  # fmt: skip
        assert any(row.result == name for row in rows), name


def test_simulations_agree_with_the_exact_value(rows):
    drawn = [row for row in rows if row.simulated is not None]
    assert len(drawn) >= 25
    for row in drawn:
        # The last term allows for rounding if an added sample changes nothing.
        assert abs(row.simulated - row.exact) <= 4 * row.standard_error + 1e-14, row


def test_repaired_bounds_hold(rows):
    assert all(row.repaired_holds for row in rows)


def test_verdicts(rows):
    verdicts = {(row.result, row.case): row.verdict for row in rows}
    assert verdicts["Theorem 1, eq. 1", "flip, (n+1)λ"].startswith("fails by")
    assert verdicts["Theorem 1, eq. 1", "flip, nλ held"] == "holds"
    assert verdicts["Theorem 1, eq. 1", "flip, nλ held, σ = 0.0001"].startswith("fails by")
    assert verdicts["Corollary, uniform sampling", "spike, nλ held"] == "holds"
    assert verdicts["Corollary, several points", "20 points, nλ held"] == "holds"
    assert verdicts["Theorem 1, eq. 2", "spike, (n+1)λ"].startswith("fails by")
    assert verdicts["Theorem 1, eq. 2", "spike, nλ held"] == "holds"
    assert verdicts["Theorem 2", "±3 on a line"].startswith("fails by 69")  # the exact value is 0.31 of the printed one
    assert verdicts["Theorem 2", "σ = 1"] == "condition not met"
    assert verdicts["Proposition, b) variance", "n < p"] == "fails by 100 %"
    assert verdicts["Proposition, b) variance", "n > p"] == "holds"


def test_verdicts_do_not_depend_on_the_seed(rows):
    for seed in (1, 2, 3):
        for first, other in zip(rows, verify(draws=2, seed=seed), strict=True):
            assert other.repaired_holds, other
            assert first.verdict.split(" by ")[0] == other.verdict.split(" by ")[0], other


def statement(claim, printed, *, repaired=1.0, met=True):
    return Statement(claim, printed, repaired, {"c": met})


def verdict(*checks):
    return Case("result", "case", checks).verdict


def test_verdict_of_a_claim():
    assert verdict(Check(statement("≥", 1.0), 1.0)) == "holds"
    assert verdict(Check(statement("≥", 1.0), 0.75)) == "fails by 25 %"
    assert verdict(Check(statement("=", 1.0), 1.5)) == "fails by 50 %"
    assert verdict(Check(statement("≥", 1.0, met=False), 0.5)) == "condition not met"
    assert (
        verdict(Check(statement("→", 1.0), 0.6), Check(statement("→", 1.0), 0.9)) == "holds"
    )  # 1 - 0.4 and 1 - 0.1: proportional to 1/n
    assert verdict(Check(statement("→", 1.0), 0.6), Check(statement("→", 1.0), 0.7)) == "fails by 30 %"


@pytest.mark.parametrize("part", ["total", "bias", "variance"])
def test_the_simulation_gives_the_size_of_a_decrease(part):
    s = setting(5, n=6, p=9)
    before, after = simulate.ridge_map(s, None, fixed_penalty=True), np.zeros((9, 6))  # to an estimator that is always 0
    sample = simulate.decrease(s, before, after, 40_000, rng.generator(0, "fall"), part)
    off = before @ s.X @ s.beta - s.beta
    bias, variance = off @ off - s.beta @ s.beta, s.sigma**2 * np.sum(before**2)
    known = {"bias": bias, "variance": variance, "total": bias + variance}[part]
    assert abs(sample.mean() - known) <= 4 * sample.std() / 200


def test_the_simulation_of_mixup_agrees_for_another_beta_distribution():
    s = setting(6, n=10, p=4)
    sample = simulate.mixup_decrease(s, 0.4, 0.8, 40_000, rng.generator(0, "mixup"))
    assert abs(sample.mean() - sum(mixup_gain(s, 0.4, 0.8))) <= 4 * sample.std() / 200


def test_too_few_draws_are_refused():
    with pytest.raises(ValueError, match="draws must be at least 2, got 1"):
        verify(draws=1)
