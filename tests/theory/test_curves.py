"""The curves of the plots: their slopes, their limits, and where they cross."""

import numpy as np
import pytest

from outspan.theory import curves
from outspan.theory.curves import Curve


def test_slope_is_that_of_a_power():
    assert Curve("", (1, 2, 4, 8), (5, 2.5, 1.25, 0.625)).slope() == pytest.approx(-1)


def test_gain_falls_as_one_over_n():
    for line in curves.against_n():
        assert line.slope() == pytest.approx(-1, abs=0.03)


def test_gain_against_z_rises_to_all_that_z_tells():
    printed, grown, fixed = curves.against_z()
    assert np.all(np.diff(fixed.y) > 0)
    # <z,beta>^2 / |z|^2 is what the minimum norm would gain; a penalty of 8 beside |z|^2 = 1000 leaves (8/1008)^2 of it.
    known = fixed.y[-1] / (1 - (8 / 1008) ** 2)
    assert known == pytest.approx(fixed.y[0] * 8.01**2 / (0.01 * 16.01), rel=1e-9)
    assert np.all(np.array(grown.y) < fixed.y)
    assert printed.y[-1] < 0 < fixed.y[-1]


def test_gain_against_lam():
    _, grown, fixed = curves.against_lam()
    assert min(fixed.y) > 0 > min(grown.y)


def test_choosing_by_loss_helps_until_the_noise_is_what_is_chosen():
    quiet, loud = curves.against_candidates(candidates=(1, 4, 16), sigmas=(0.0, 0.8), draws=4000)
    apart = [4 * (a + b) for a, b in zip(quiet.error, loud.error, strict=True)]
    assert quiet.y[2] > quiet.y[1] + apart[1] > quiet.y[0] + apart[0]
    assert loud.y[2] < loud.y[1] < loud.y[0]
