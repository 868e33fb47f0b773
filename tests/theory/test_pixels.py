"""The matrix of a linear transform gives the same pixels as the transform."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import make_images
from outspan.plan import Plan
from outspan.theory.pixels import LINEAR, pixel_sources, pixels, transformed_pixels
from outspan.transforms.apply import apply
from outspan.transforms.table import TRANSFORMS


@pytest.mark.parametrize("name", LINEAR)
@given(st.floats(0, 1, width=32), st.lists(st.floats(0, 0.99), min_size=4, max_size=4), st.integers(1, 3), st.integers(0, 99))
def test_the_matrix_of_a_transform_gives_the_same_pixels(name, level, place, channels, seed):
    level = level if TRANSFORMS[name].graded else 0.0
    images = make_images(seed, 2, 1 if channels < 3 else 3, 9, 7)
    applied = apply(images, Plan.of([[name]] * 2, levels=[[level]] * 2, places=[[place]] * 2))
    np.testing.assert_array_equal(transformed_pixels(images, name, level, place), pixels(applied))


def test_pixel_numbers_beyond_two_bytes():
    sources = pixel_sources("vertical_flip", 0.0, [0.0] * 4, 300, 300)
    np.testing.assert_array_equal(sources, np.arange(90_000).reshape(300, 300)[::-1].reshape(-1))


def test_transforms_without_a_matrix_are_refused():
    with pytest.raises(ValueError, match="'invert' is not a matrix of zeros and ones"):
        pixel_sources("invert", 0.0, [0.0] * 4, 3, 3)
