"""Rows whose labels follow from the training labels, and the label-invariance of a matrix."""

import numpy as np
import pytest

from linear import setting, with_spectrum
from outspan import rng
from outspan.theory.generate import flip, projection, rotation
from outspan.theory.rows import Rows, is_label_invariant, join, mixed, projected, summed, transformed


def test_projected_rows_are_orthogonal_and_keep_correct_labels():
    for case in range(20):
        s = setting(case, n=8, p=20)
        F = rotation(s.beta, 1.0, rng.generator(case, "F"))
        raw = join(transformed(s.X, F, 0), transformed(s.X, F @ F, 3), mixed(s.X, 1, 2, 0.3))
        got = projected(s.X, raw)
        np.testing.assert_allclose(got.x[:2] @ s.X.T, 0, atol=1e-12)
        np.testing.assert_allclose(got.x[0] @ got.x[1], 0, atol=1e-12)  # also orthogonal to the row before
        np.testing.assert_allclose(got.x[2], 0, atol=0)  # mixup stays in the span
        np.testing.assert_allclose(got.weights @ s.X @ s.beta, got.x @ s.beta, atol=1e-11)
        # The removed part is in the span, so the augmented data have the same information as the raw data.
        both = [np.linalg.matrix_rank(np.vstack([s.X, rows])) for rows in (raw.x, got.x, np.vstack([raw.x, got.x]))]
        assert both == [10, 10, 10]


def test_labels_of_each_type_of_row():
    s = setting(1, n=5, p=9)
    F = projection(s.beta, 2, rng.generator(1, "F"))
    Y = s.X @ s.beta
    for rows in (transformed(s.X, F, 2), mixed(s.X, 0, 4, 0.25), mixed(s.X, 3, 3, 0.25)):
        np.testing.assert_allclose(rows.weights @ Y, rows.x @ s.beta, rtol=1e-12)
    both = summed(transformed(s.X, F, 2), transformed(s.X, F, 2))
    np.testing.assert_allclose(both.weights @ Y, 2 * Y[2:3])


def test_label_invariance_depends_on_the_data():
    g = rng.generator(0, "F")
    beta = g.standard_normal(7)
    X = g.standard_normal((4, 7))
    for F in (rotation(beta, 0.7, g), projection(beta, 3, g)):
        assert is_label_invariant(F, X, beta)
        assert not is_label_invariant(F, X, beta + np.eye(1, 7)[0])
    assert not is_label_invariant(flip(7), X, beta)
    assert is_label_invariant(flip(7), X, beta + beta[::-1])
    # On X only: the change of labels by F is orthogonal to every row.
    null = np.linalg.svd(X)[2][-1]
    F = np.eye(7) + np.outer(g.standard_normal(7), null)
    assert is_label_invariant(F, X, beta)
    assert not is_label_invariant(F, null[None], beta)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X: transformed(X, np.eye(3), 2), r"the index of a row of X must lie in \[0, 1\], got 2"),
        (lambda X: mixed(X, 0, 1, 1.5), r"alpha must lie in \[0, 1\], got 1.5"),
        (lambda X: mixed(X, 0, 1, float("nan")), "alpha must lie"),
        (lambda X: Rows(np.full((1, 3), np.nan), np.ones((1, 2))), "x of the rows must be finite, got nan"),
        (lambda X: Rows(np.ones((1, 3)), np.ones((2, 2))), "1 rows need 1 rows of weights, got 2"),
        (lambda X: projected(X, Rows(np.ones((1, 4)), np.ones((1, 2)))), r"must have \[3, 2\] columns"),
        (lambda X: is_label_invariant(np.eye(2), X, np.ones(3)), r"F must have shape \[3, 3\], got \[2, 2\]"),
    ],
)
def test_invalid_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.eye(2, 3))


def test_generators_have_the_documented_properties():
    g = rng.generator(0, "generate")
    spike = g.standard_normal(9)
    spike /= np.linalg.norm(spike)
    X = with_spectrum(np.array([5.0, 2.0, 1.0]), 4, 9, g, spikes=[spike])
    np.testing.assert_allclose(np.linalg.svd(X, compute_uv=False), [5, 2, 1, 0], atol=1e-12)
    assert np.linalg.norm(X @ spike) == pytest.approx(5)
    turn = rotation(spike, np.pi / 2, g)
    np.testing.assert_allclose(turn @ turn.T, np.eye(9), atol=1e-12)
    np.testing.assert_allclose(np.linalg.matrix_power(turn, 4), np.eye(9), atol=1e-12)
    assert np.trace(turn) == pytest.approx(7)  # a rotation by 90 degrees in one plane
    assert np.linalg.matrix_rank(projection(spike, 4, g)) == 5
    np.testing.assert_array_equal(flip(3) @ np.arange(3.0), [2, 1, 0])
    with pytest.raises(ValueError, match="need 0 to 4 singular values, got 5"):
        with_spectrum(np.ones(5), 4, 9, g)
    with pytest.raises(ValueError, match=r"k must lie in \[0, 2\]"):
        projection(np.ones(3), 3, g)
