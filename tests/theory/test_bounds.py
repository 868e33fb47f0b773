"""The results of the theory: repaired bounds compared with direct solves, printed bounds with known values, conditions."""

import numpy as np
import pytest

from linear import ridge_decrease, setting
from outspan import rng
from outspan.theory import bounds, minnorm_bounds
from outspan.theory.bounds import Setting
from outspan.theory.generate import projection, rotation
from outspan.theory.minnorm import minnorm_error
from outspan.theory.rows import Rows, mixed, projected, transformed


def invariant(case):
    """Return a setting with more dimensions than samples, and a few matrices that keep the labels."""
    g = rng.generator(case, "invariant")
    n = int(g.integers(1, 12))
    s = setting(case, n=n, p=n + int(g.integers(4, 20)))
    return s, [projection(s.beta, 3, g), rotation(s.beta, float(g.uniform(0.1, 3)), g), projection(s.beta, 1, g)]


@pytest.mark.parametrize("fixed_penalty", [True, False])
def test_label_invariant_results_are_exact(fixed_penalty):
    for case in range(25):
        s, Fs = invariant(case)
        added = [projected(s.X, transformed(s.X, F, 0)) for F in Fs]
        falls = [ridge_decrease(s, rows, fixed_penalty) for rows in added]
        near = {"rel": 1e-9, "abs": 1e-12 * (s.beta @ s.beta)}
        for F, fall in zip(Fs, falls, strict=True):
            assert bounds.theorem_1(s, F, 0, fixed_penalty=fixed_penalty).repaired == pytest.approx(fall.total, **near)
            assert bounds.theorem_1_rate(s, F, 0, fixed_penalty=fixed_penalty).repaired == pytest.approx(fall.total, **near)
            if not fixed_penalty:
                assert bounds.lemma_1_bias(s, F, 0).repaired == pytest.approx(fall.bias, **near)
                statement = bounds.lemma_1_variance(s, F, 0)
                assert statement.repaired == pytest.approx(fall.variance, **near)
                assert statement.printed <= statement.repaired + 1e-12  # this bound holds as printed
        mean = np.mean([fall.total for fall in falls])
        assert bounds.uniform_sampling(s, Fs, 0, fixed_penalty=fixed_penalty).repaired == pytest.approx(mean, **near)
        sources = [case % s.n, 0, (case + 1) % s.n]
        fall = ridge_decrease(s, bounds.several(s, Fs, sources), fixed_penalty)
        assert bounds.several_points(s, Fs, sources, fixed_penalty=fixed_penalty).repaired == pytest.approx(fall.total, **near)
        for how in ("additive", "multiplicative"):
            first, both = bounds.composed(s, Fs[0], Fs[1], 0, how)
            change = ridge_decrease(s, both, fixed_penalty).total - ridge_decrease(s, first, fixed_penalty).total
            assert bounds.composition(s, Fs[0], Fs[1], 0, how, fixed_penalty=fixed_penalty).repaired == pytest.approx(
                change, **near
            )


def test_the_cost_of_a_wrong_label_matches_direct_solves():
    for case in range(50):
        s, Fs = invariant(case)
        row = projected(s.X, transformed(s.X, Fs[0], 0))
        label_error = float(rng.generator(case, "wrong").standard_normal())
        mean = s.X @ s.beta
        off = Rows(row.x, row.weights + label_error * mean / (mean @ mean))  # the mean label is too large by `label_error`
        got = float(bounds.outside_gain(row.x @ s.beta, np.sum(row.x**2, axis=1), s.n * s.lam, label_error)[0])
        assert got == pytest.approx(ridge_decrease(s, off, True).bias, rel=1e-9, abs=1e-12 * (s.beta @ s.beta))


def test_with_a_fixed_penalty_the_bias_never_rises_and_has_the_documented_formula():
    for case in range(50):
        s, Fs = invariant(case)
        z = projected(s.X, transformed(s.X, Fs[0], 0)).x[0]
        penalty, square = s.n * s.lam, z @ z
        known = (1 - (penalty / (penalty + square)) ** 2) * (z @ s.beta) ** 2 / square
        got = float(bounds.outside_gain(z[None] @ s.beta, np.array([square]), penalty)[0])
        assert got == pytest.approx(known, rel=1e-9)
        assert got >= 0


def test_theorem_1_fails_as_printed_on_plain_data():
    failed = 0
    for case in range(20):
        g = rng.generator(case, "plain")
        s = Setting(g.standard_normal((50, 100)) / 10, g.standard_normal(100), 0.2, 0.0)
        statement = bounds.theorem_1(s, rotation(s.beta, np.pi / 2, g), 0)
        assert statement.met
        failed += statement.repaired < statement.printed
    assert failed >= 19


def test_equation_1_fails_for_a_large_z_even_with_a_fixed_penalty():
    for case in range(20):
        s, Fs = invariant(case)
        s = Setting(s.X, s.beta, 0.3, 0.0)
        z = projected(s.X, transformed(s.X, Fs[0], 0)).x[0]
        statement = bounds.theorem_1(s, Fs[0], 0, fixed_penalty=True)
        m, square = s.n + 1, z @ z
        known = (2 * 0.3 * m - 0.4 * square) / (0.3 * (m + square)) ** 2 - (0.6 * s.n + square) / (0.3 * s.n + square) ** 2
        assert (statement.printed > statement.repaired) == (known > 0)
    far = Setting(np.eye(1, 3), np.ones(3), 0.3, 0.0)  # one sample, and a |z|^2 = 0.75 above lam / (1 - lam)
    swap = np.eye(3) + np.outer(np.array([-(0.75**0.5), 0.75**0.5, 0.0]), np.eye(1, 3)[0])
    assert bounds.lemma_1_bias(far, swap, 0, fixed_penalty=True).met
    assert (
        bounds.lemma_1_bias(far, swap, 0, fixed_penalty=True).repaired
        < bounds.lemma_1_bias(far, swap, 0, fixed_penalty=True).printed
    )


def test_conditions_of_the_corollaries_on_every_row():
    s, Fs = invariant(3)
    loud, quiet = (Setting(s.X, s.beta, 0.2, sigma) for sigma in (100.0, 0.0))
    for state in (
        lambda s: bounds.uniform_sampling(s, Fs, 0),
        lambda s: bounds.composition(s, Fs[0], Fs[1], 0, "additive"),
        lambda s: bounds.composition(s, Fs[0], Fs[1], 0, "multiplicative"),
        lambda s: bounds.several_points(s, Fs, [0, 0, 0]),
    ):
        assert state(quiet).conditions["σ small"]
        assert not state(loud).conditions["σ small"]
    assert not bounds.several_points(quiet, Fs * 20, [0] * 60).conditions["t ≤ n"]


def test_the_noise_bound_of_several_points_uses_the_data_so_far():
    for case in range(25):
        s, Fs = invariant(case)
        g = rng.generator(case, "noise")
        s = Setting(s.X, s.beta, 0.2, float(np.exp(g.uniform(-6, 1))))
        A, met = s.X, True
        rows = bounds.several(s, Fs, [0, 0, 0])
        for t, (F, z) in enumerate(zip(Fs, rows.x, strict=True), 1):
            inside = np.linalg.norm(np.linalg.pinv(A) @ A @ F @ s.X[0]) / np.linalg.svd(A, compute_uv=False)[-1]
            met &= bool((z @ s.beta) ** 2 / (z @ z) >= (1 + inside**2) * s.sigma**2 / (0.2 * (s.n + t)))
            A = np.vstack([A, z])
        assert bounds.several_points(s, Fs, [0, 0, 0]).conditions["σ small"] == met


def test_the_multiplicative_composition_needs_more_than_two_invariant_matrices():
    s = setting(1, n=3, p=8)
    null = np.linalg.svd(s.X)[2][-1]
    F1 = np.eye(8) + np.outer(s.beta, null)  # keeps only the labels of X
    F2 = np.eye(8) + np.outer(null - s.beta * (null @ s.beta) / (s.beta @ s.beta), s.X[0] / (s.X[0] @ s.X[0]))
    statement = bounds.composition(s, F1, F2, 0, "multiplicative")
    assert statement.conditions["F label-invariant"]
    assert not statement.conditions["F1 keeps the labels of F2 X"]
    assert not statement.met


def test_minimum_norm_results_are_exact():
    for case in range(60):
        s, Fs = invariant(case)
        near = {"rel": 1e-9, "abs": 1e-12 * (1 + minnorm_error(s.X, s.beta, s.sigma).total)}
        rows = projected(s.X, transformed(s.X, Fs[0], 0))
        before = minnorm_error(s.X, s.beta, s.sigma)
        change = before - minnorm_error(s.X, s.beta, s.sigma, added=rows)
        assert minnorm_bounds.minnorm_bias(s).repaired == pytest.approx(before.bias, **near)
        assert minnorm_bounds.minnorm_variance(s).repaired == pytest.approx(before.variance, **near)
        assert minnorm_bounds.minnorm_invariant_bias(s, Fs[0], 0).repaired == pytest.approx(change.bias, **near)
        assert minnorm_bounds.minnorm_invariant_variance(s, Fs[0], 0).repaired == pytest.approx(change.variance, **near)


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (8, 8)])
def test_the_proposition_for_more_and_fewer_samples_than_dimensions(shape):
    s = Setting(rng.generator(0, "X", *shape).standard_normal(shape), np.ones(shape[1]), 0.1, 0.7)
    statement = minnorm_bounds.proposition_variance(s, 0, 1, 0.3)
    change = minnorm_error(s.X, s.beta, s.sigma) - minnorm_error(s.X, s.beta, s.sigma, added=mixed(s.X, 0, 1, 0.3))
    assert statement.repaired == pytest.approx(change.variance, rel=1e-9, abs=1e-10)
    assert change.bias == pytest.approx(minnorm_bounds.proposition_bias().repaired, abs=1e-10)
    assert (statement.repaired < -1e-6) == (shape[0] > shape[1])


def test_a_rank_deficient_matrix_violates_the_full_rank_condition():
    s = Setting(np.ones((3, 5)), np.ones(5), 0.1, 0.1)
    with pytest.raises(ValueError, match="X must have full rank 3, got rank 1"):
        bounds.theorem_1(s, np.eye(5), 0)


def test_a_setting_refuses_bad_parameters():
    with pytest.raises(ValueError, match="lam must be above 0 for ridge regression, got 0"):
        Setting(np.eye(2), np.ones(2), 0, 0.1)
    with pytest.raises(ValueError, match="sigma must be at least 0, got -1"):
        Setting(np.eye(2), np.ones(2), 0.1, -1)


def test_a_matrix_that_changes_labels_violates_a_condition():
    s = setting(1, n=3, p=6)
    statement = bounds.theorem_1(s, 2 * np.eye(6), 0)
    assert statement.conditions == {"F label-invariant": False, "lam < 1": s.lam < 1}
    assert not statement.met
