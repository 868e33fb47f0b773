"""The results on mixup: repaired bounds compared with direct solves, printed bounds with known values, conditions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linear import ridge_decrease, setting
from outspan import rng
from outspan.theory import mixup
from outspan.theory.bounds import Setting
from outspan.theory.generate import centred
from outspan.theory.ridge import ridge_error
from outspan.theory.rows import mixed


@pytest.mark.parametrize("law", [(1.0, 1.0), (0.2, 0.2), (0.5, 0.5), (2.0, 5.0)])
def test_beta_nodes_give_the_moments_of_the_beta_distribution(law):
    a, b = law
    nodes, weights = mixup.beta_nodes(a, b)
    moment = 1.0
    for power in range(1, 20):
        moment *= (a + power - 1) / (a + b + power - 1)
        assert weights @ nodes**power == pytest.approx(moment, rel=1e-11)
    assert mixup.beta_constant(a, b) == pytest.approx(weights @ (1 - 2 * nodes) ** 2, rel=1e-12)


def test_the_constant_of_the_uniform_distribution_is_a_third():
    assert mixup.beta_constant(1, 1) == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match=r"a and b of Beta\(a, b\) must be above 0, got 0 and 1"):
        mixup.beta_constant(0, 1)


def test_the_gains_of_mixup_match_direct_solves():
    for case in range(60):
        s = setting(case)
        alpha = float(rng.generator(case, "alpha").uniform())
        bias, variance = mixup.mixup_gains(s, alpha)
        i, j = rng.generator(case, "pair").integers(0, s.n, 2).tolist()
        fall = ridge_decrease(s, mixed(s.X, i, j, alpha), True)
        scale = ridge_error(s.X, s.beta, s.lam, s.sigma)
        assert bias[i, j] == pytest.approx(fall.bias, rel=1e-9, abs=1e-12 * scale.bias)
        assert variance[i, j] == pytest.approx(fall.variance, rel=1e-9, abs=1e-12 * scale.variance)
        assert mixup.lemma_2_bias(s, i, j, alpha).repaired == bias[i, j]
        assert mixup.lemma_2_variance(s, i, j, alpha).repaired == variance[i, j]
        added = mixed(s.X, i, j, alpha)
        B = s.X.T + added.x.T @ added.weights
        assert mixup.mixup_noise(s, i, j, alpha).repaired == pytest.approx(s.sigma**2 * np.sum(B**2), rel=1e-9)


@given(st.integers(2, 12), st.integers(1, 8), st.floats(0.0, 1.0), st.integers(0, 99))
def test_second_moment_of_mixup(half, p, alpha, seed):
    X = centred(2 * half, p, 1.0, rng.generator(seed, "moment"))
    squares = np.sum((alpha * X[:, None] + (1 - alpha) * X[None]) ** 2, axis=2)
    n = len(X)
    statement = mixup.mixup_moment(X, alpha)
    assert statement.met
    assert statement.repaired == pytest.approx(squares.mean(), rel=1e-9)
    distinct = (squares.sum() - np.trace(squares)) / (n * (n - 1))
    assert mixup.mixup_moment(X, alpha, replacement=False).repaired == pytest.approx(distinct, rel=1e-9, abs=1e-12)


@settings(max_examples=30)
@given(st.integers(1, 10), st.integers(1, 12), st.floats(1.01, 4), st.floats(0.05, 0.99), st.floats(0, 2), st.integers(0, 99))
def test_repaired_theorem_2_is_a_bound_for_every_n(half, p, gamma, lam, sigma, seed):
    g = rng.generator(seed, "theorem 2")
    s = Setting(centred(2 * half, p, gamma, g), g.standard_normal(p), lam, sigma)
    gain = sum(mixup.mixup_gain(s))
    statement = mixup.theorem_2(s, gamma)
    assert statement.repaired <= gain + 1e-12 * (s.beta @ s.beta)
    assert statement.conditions["|x| ≤ γ"]
    assert not mixup.theorem_2(s, gamma * 0.99).conditions["|x| ≤ γ"]


def test_repaired_theorem_2_gives_a_positive_bound():
    s = Setting(centred(200, 5, 1.05, rng.generator(0, "theorem 2")), np.ones(5), 0.9, 0.01)
    statement = mixup.theorem_2(s, 1.05)
    assert statement.met
    assert 0 < statement.repaired < sum(mixup.mixup_gain(s))


def test_printed_theorem_2_fails_for_one_dimensional_data():
    X = np.array([[3.0], [-3.0]] * 20)
    s = Setting(X, np.ones(1), 0.1, 0.0)
    statement = mixup.theorem_2(s, 3.0)
    assert statement.met
    assert sum(mixup.mixup_gain(s)) / statement.printed == pytest.approx(0.31, abs=0.005)


def test_conditions_of_theorem_2():
    s = Setting(np.array([[3.0], [1.0]]), np.ones(1), 0.1, 5.0)
    assert mixup.theorem_2(s, 0.5).conditions == {
        "rows centred": False, "lam < 1": True, "|x| ≤ γ": False, "γ > 1": False, "X ≠ 0": True, "σ small": False
    }  # fmt: skip
