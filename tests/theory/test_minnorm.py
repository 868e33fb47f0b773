"""The minimum norm estimator compared with the pseudo-inverse of numpy, and updates compared with new inverses."""

import numpy as np
import pytest

from linear import any_rows, direct_error, setting, with_spectrum
from outspan import rng
from outspan.theory.minnorm import minnorm_error, minnorm_estimate, pinv_update, rank, smallest_singular
from outspan.theory.rows import Rows


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_the_error_matches_direct_solves(first):
    for case in range(first, first + 20):
        s = setting(case)
        for added in (None, any_rows(case, s)):
            got = minnorm_error(s.X, s.beta, s.sigma, added=added)
            # If p <= n the bias is 0 except for rounding.
            direct = direct_error(s, added, np.linalg.pinv)
            np.testing.assert_allclose([got.bias, got.variance], direct, rtol=1e-9, atol=1e-18 * (s.beta @ s.beta))


def test_rank_deficient_data_are_supported():
    s = setting(1, n=6, p=10)
    X = np.vstack([s.X, s.X[:2]])
    got = minnorm_error(X, s.beta, 0.5)
    P = np.linalg.pinv(X)
    np.testing.assert_allclose(got.variance, 0.25 * np.sum(P**2), rtol=1e-9)
    assert rank(X) == 6
    with pytest.raises(ValueError, match="X must have full rank 8, got rank 6"):
        smallest_singular(X)
    assert smallest_singular(s.X) == pytest.approx(np.linalg.svd(s.X, compute_uv=False)[-1], rel=1e-9)


@pytest.mark.parametrize("smallest", [1e-3, 1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("shape", [(7, 30), (30, 7)])
def test_nearly_dependent_data_keep_their_singular_values(smallest, shape):
    singular = np.geomspace(1, smallest, 7)
    X = with_spectrum(singular, *shape, rng.generator(0, "near", *shape))
    assert rank(X) == 7
    assert smallest_singular(X) == pytest.approx(smallest, rel=1e-15 / smallest + 1e-12)
    got = minnorm_error(X, np.ones(shape[1]), 1.0)
    assert got.variance == pytest.approx(np.sum(np.linalg.svd(X, compute_uv=False) ** -2.0), rel=1e-14 / smallest + 1e-9)


def test_rows_duplicated_with_their_own_noise_change_nothing():
    s = setting(2, n=6, p=10)
    once, twice = (minnorm_error(s.X, s.beta, 0.5, added=added) for added in (None, Rows(s.X, np.eye(6))))
    np.testing.assert_allclose([twice.bias, twice.variance], [once.bias, once.variance], rtol=1e-8)


def test_the_estimate_fits_the_data_with_the_smallest_norm():
    s = setting(3, n=6, p=10)
    Y = rng.generator(3, "Y").standard_normal(6)
    b = minnorm_estimate(s.X, Y)
    np.testing.assert_allclose(s.X @ b, Y, rtol=1e-9)
    null = np.linalg.svd(s.X)[2][6:]
    np.testing.assert_allclose(null @ b, 0, atol=1e-12)  # no component that the fit does not need


@pytest.mark.parametrize("inside", [True, False])
def test_pinv_update_equals_a_new_pseudo_inverse(inside):
    for case in range(50):
        g = rng.generator(case, "pinv")
        d = int(g.integers(2, 9))
        B = g.standard_normal((d, int(g.integers(1, d))))
        A, u = B @ B.T, g.standard_normal(d)
        u = A @ u if inside else u
        fresh = np.linalg.pinv(A + np.outer(u, u), hermitian=True)
        got = pinv_update(A, np.linalg.pinv(A, hermitian=True), u)
        np.testing.assert_allclose(got, fresh, atol=1e-8 * np.abs(fresh).max())


@pytest.mark.parametrize("inside", [True, False])
def test_pinv_update_of_a_matrix_that_is_not_symmetric(inside):
    for case in range(50):
        g = rng.generator(case, "pinv", "square")
        d = int(g.integers(3, 9))
        r = int(g.integers(1, d))
        B = np.linalg.qr(g.standard_normal((d, r)))[0]
        # Rows and columns have the same span if u lies in both.
        A = B @ g.standard_normal((r, r)) @ B.T if inside else B @ g.standard_normal((r, d))
        u = B @ g.standard_normal(r) if inside else g.standard_normal(d)
        fresh = np.linalg.pinv(A + np.outer(u, u), rcond=1e-10)
        got = pinv_update(A, np.linalg.pinv(A, rcond=1e-10), u)
        np.testing.assert_allclose(got, fresh, atol=1e-7 * np.abs(fresh).max())


def test_pinv_update_refuses_a_vector_partly_inside_the_span():
    shift = np.array([[0.0, 1.0], [0.0, 0.0]])  # its columns span e_1, its rows span e_2
    with pytest.raises(ValueError, match="both the rows and the columns of A, or of neither"):
        pinv_update(shift, shift.T, np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="the rank of A, got"):
        pinv_update(-np.eye(2), -np.eye(2), np.array([1.0, 0.0]))


@pytest.mark.usefixtures("unchecked")
def test_invalid_input_is_refused_by_name():
    with pytest.raises(ValueError, match="same number of rows, got 2 and 3"):
        minnorm_estimate(np.eye(2), np.ones(3))
    with pytest.raises(ValueError, match="sigma must be at least 0"):
        minnorm_error(np.eye(2), np.ones(2), -1.0)
