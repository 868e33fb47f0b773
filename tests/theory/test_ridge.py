"""Ridge regression compared with direct solves, identities and the limit without a penalty."""

import numpy as np
import pytest

from linear import any_rows, direct_error, setting
from outspan import rng
from outspan.theory.generate import orthonormal
from outspan.theory.minnorm import minnorm_error
from outspan.theory.ridge import Error, inverse_update, ridge_error, ridge_estimate
from outspan.theory.rows import Rows


def direct(s, added=None, fixed_penalty=True):
    """Return the bias and the variance by one p x p inverse."""

    def fit(A):
        penalty = s.lam * (s.n if fixed_penalty else len(A))
        return np.linalg.inv(A.T @ A + penalty * np.eye(A.shape[1])) @ A.T

    return direct_error(s, added, fit)


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_the_error_matches_direct_solves(first):
    for case in range(first, first + 20):
        s = setting(case)
        got = ridge_error(s.X, s.beta, s.lam, s.sigma)
        np.testing.assert_allclose([got.bias, got.variance], direct(s), rtol=1e-9)
        added = any_rows(case, s)
        for fixed_penalty in (True, False):
            got = ridge_error(s.X, s.beta, s.lam, s.sigma, added=added, fixed_penalty=fixed_penalty)
            np.testing.assert_allclose([got.bias, got.variance], direct(s, added, fixed_penalty), rtol=1e-9)


def test_estimate_solves_the_normal_equations():
    for case in range(20):
        s = setting(case)
        Y = rng.generator(case, "Y").standard_normal((s.n, 2))
        b = ridge_estimate(s.X, Y, s.lam)
        np.testing.assert_allclose(s.X.T @ (Y - s.X @ b), s.n * s.lam * b, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(ridge_estimate(s.X, Y[:, 0], s.lam), b[:, 0], rtol=1e-9)


@pytest.mark.parametrize("shape", [(12, 30), (30, 12)])
def test_duplicated_rows_change_nothing(shape):
    s = setting(1, n=shape[0], p=shape[1])
    twice = Rows(s.X, np.eye(s.n))  # every sample twice, with the same label and noise
    once = ridge_error(s.X, s.beta, s.lam, s.sigma)
    got = ridge_error(s.X, s.beta, s.lam, s.sigma, added=twice, fixed_penalty=False)
    np.testing.assert_allclose([got.bias, got.variance], [once.bias, once.variance], rtol=1e-8)


@pytest.mark.parametrize("shape", [(12, 30), (30, 12)])
def test_rotated_data_change_nothing(shape):
    s = setting(2, n=shape[0], p=shape[1])
    Q = orthonormal(shape[1], shape[1], rng.generator(2, "Q"))
    once, turned = ridge_error(s.X, s.beta, s.lam, s.sigma), ridge_error(s.X @ Q, Q.T @ s.beta, s.lam, s.sigma)
    np.testing.assert_allclose([turned.bias, turned.variance], [once.bias, once.variance], rtol=1e-8)


@pytest.mark.parametrize("added", [False, True])
def test_without_a_penalty_it_is_the_minimum_norm(added):
    s = setting(3, n=12, p=30)
    rows = any_rows(3, s) if added else None
    got, limit = ridge_error(s.X, s.beta, 1e-12, s.sigma, added=rows), minnorm_error(s.X, s.beta, s.sigma, added=rows)
    np.testing.assert_allclose([got.bias, got.variance], [limit.bias, limit.variance], rtol=1e-8)


def test_one_sample_by_hand():
    # X = (1, 0), beta = (1, 1), penalty 1/2: the first entry shrinks to 2/3, the second is unknown.
    got = ridge_error(np.array([[1.0, 0.0]]), np.ones(2), 0.5, 3.0)
    assert got.bias == pytest.approx((1 / 3) ** 2 + 1)
    assert got.variance == pytest.approx(9 * (2 / 3) ** 2)
    assert got.total == got.bias + got.variance
    assert got - Error(1.0, 2.0) == Error(got.bias - 1, got.variance - 2)


def test_inverse_update_equals_a_new_inverse():
    for case in range(50):
        g = rng.generator(case, "update")
        d = int(g.integers(1, 9))
        A, u, v = g.standard_normal((d, d)) + 3 * np.eye(d), g.standard_normal(d), g.standard_normal(d)
        fresh = np.linalg.inv(A + np.outer(u, v))
        np.testing.assert_allclose(inverse_update(np.linalg.inv(A), u, v), fresh, atol=1e-9 * np.abs(fresh).max())
    with pytest.raises(ValueError, match="must be invertible"):
        inverse_update(np.eye(2), np.array([1.0, 0.0]), np.array([-1.0, 0.0]))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lam": 0.0}, "lam must be above 0 for ridge regression, got 0.0"),
        ({"lam": -1.0}, "lam must be above 0"),
        ({"lam": float("nan")}, "lam must be above 0"),
        ({"sigma": -0.1}, "sigma must be at least 0, got -0.1"),
        ({"sigma": float("nan")}, "sigma must be at least 0, got nan"),
        ({"beta": np.ones(4)}, r"beta must have 3 entries, as a row of X has, got shape \[4\]"),
        ({"beta": np.array([1.0, np.nan, 0.0])}, "beta must be finite, got nan"),
        ({"X": np.full((2, 3), np.inf)}, "X must be finite, got inf"),
        ({"X": np.eye(2, 3, dtype=np.float32)}, "X must be float64, got float32"),
        ({"X": np.ones(3)}, "X must be a matrix"),
        ({"X": np.ones((0, 3))}, "X must be a matrix"),
        ({"added": Rows(np.ones((1, 4)), np.ones((1, 2)))}, r"must have \[3, 2\] columns .* got \[4, 2\]"),
    ],
)
def test_invalid_input_is_refused_by_name(changed, message):
    arguments = {"X": np.eye(2, 3), "beta": np.ones(3), "lam": 0.1, "sigma": 0.1, **changed}
    with pytest.raises(ValueError, match=message):
        ridge_error(**arguments)


@pytest.mark.usefixtures("unchecked")
def test_estimate_refuses_labels_that_do_not_fit():
    with pytest.raises(ValueError, match="same number of rows, got 2 and 3"):
        ridge_estimate(np.eye(2), np.ones(3), 0.1)
    with pytest.raises(ValueError, match="Y must be finite"):
        ridge_estimate(np.eye(2), np.array([1.0, np.nan]), 0.1)
