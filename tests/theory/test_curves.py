"""The curves of the plots: their slopes, their limits, and their intersections."""

import numpy as np
import pytest

from outspan.theory import curves
from outspan.theory.curves import Curve


def test_the_slope_of_a_power_is_its_exponent():
    assert Curve("", (1, 2, 4, 8), (5, 2.5, 1.25, 0.625)).slope() == pytest.approx(-1)


def test_the_gain_falls_as_one_over_n():
    for line in curves.against_n():
        assert line.slope() == pytest.approx(-1, abs=0.03)


def test_the_gain_rises_with_z_to_the_gain_of_the_minimum_norm():
    printed, grown, fixed = curves.against_z()
    assert np.all(np.diff(fixed.y) > 0)
    # The gain of the minimum norm is <z,beta>^2 / |z|^2. A penalty of 8 with |z|^2 = 1000 leaves (8/1008)^2 of it.
    known = fixed.y[-1] / (1 - (8 / 1008) ** 2)
    assert known == pytest.approx(fixed.y[0] * 8.01**2 / (0.01 * 16.01), rel=1e-9)
    assert np.all(np.array(grown.y) < fixed.y)
    assert printed.y[-1] < 0 < fixed.y[-1]


def test_the_gain_as_a_function_of_lam():
    _, grown, fixed = curves.against_lam()
    assert min(fixed.y) > 0 > min(grown.y)


def test_choosing_by_loss_helps_until_it_chooses_noise():
    quiet, loud = curves.against_candidates(candidates=(1, 4, 16), sigmas=(0.0, 0.8), draws=4000)
    apart = [4 * (a + b) for a, b in zip(quiet.error, loud.error, strict=True)]
    assert quiet.y[2] > quiet.y[1] + apart[1] > quiet.y[0] + apart[0]
    assert loud.y[2] < loud.y[1] < loud.y[0]
