"""The figure of images before and after augmentation."""

import numpy as np
import pytest

from outspan.figures.examples import examples_figure, rendered


@pytest.mark.parametrize("count", [1, 5])
def test_the_figure_has_every_image_beside_its_augmented_version(count):
    pairs = [
        (np.full((6, 8, 3), i, np.uint8), np.full((6, 8, 3), 100 + i, np.uint8), f"rotate, loss {i}") for i in range(count)
    ]
    figure = examples_figure(pairs)
    axes = [axis for axis in figure.axes if axis.images]
    assert [axis.get_title() for axis in axes] == [f"rotate\nloss {i}" for i in range(count)]
    for i, axis in enumerate(axes):
        shown = np.asarray(axis.images[0].get_array())
        assert (shown[:, :8] == i).all()
        assert (shown[:, -8:] == 100 + i).all()
    pixels = rendered(figure)
    assert pixels.dtype == np.uint8
    assert pixels.shape[2] == 3
