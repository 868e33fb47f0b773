"""The counterexamples, compared with hand calculations and exact fractions."""

from fractions import Fraction

import pytest

from outspan.theory.counterexample import smallest, spike


def test_the_smallest_case_by_hand():
    case = smallest()
    half = Fraction(1, 2)
    # (2 lam (n+1) - (1 - 2 lam) |z|^2) / (lam^2 (n + 1 + |z|^2)^2) with |z|, beta along z, and n equal to 1.
    printed = (2 * half * 2 - 0) / (half**2 * 9)
    before = (half / (1 + half)) ** 2 + 1  # the known entry is shrunk, the new one is missing
    grown, fixed = (before - 2 * (penalty / (1 + penalty)) ** 2 for penalty in (Fraction(1), half))
    assert (case.n, case.p, case.met) == (1, 2, True)
    assert [case.printed, case.grown, case.fixed] == pytest.approx([float(printed), float(grown), float(fixed)])
    assert case.grown < case.printed


@pytest.mark.parametrize("n", [10, 40, 160])
def test_a_correctly_labelled_sample_hurts_at_every_size(n):
    case = spike(n)
    assert case.met
    assert case.printed > 0
    assert n * case.grown < -0.03  # order 1/n, not 1/n^2 as printed
    assert case.fixed > 0
