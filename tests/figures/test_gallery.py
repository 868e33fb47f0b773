"""The gallery."""

import numpy as np
import pytest
import torch

from conftest import make_images
from outspan import TRANSFORMS
from outspan.data import example_image
from outspan.figures.gallery import gallery


def test_the_embedded_image_is_a_photograph():
    image = example_image()
    assert image.shape == (1, 3, 224, 224)
    assert image.dtype == torch.uint8
    assert image.float().std() > 20


@pytest.mark.parametrize("shape", [(1, 3, 224, 224), (1, 1, 40, 90), (1, 3, 1, 1)])
def test_the_gallery_has_every_transform(shape):
    figure = gallery(make_images(0, *shape), side=16)
    shown = " ".join(text.get_text() for axis in figure.axes for text in [axis._left_title, *axis.texts])
    for name in TRANSFORMS:
        assert name == "identity" or name.replace("_", " ") in shown


def test_the_gallery_shows_the_pixels_of_the_transform():
    image = torch.full((1, 3, 16, 16), 200, dtype=torch.uint8)
    figure = gallery(image, side=16)
    axis = next(axis for axis in figure.axes if axis._left_title.get_text().startswith("solarize"))
    strip = np.asarray(axis.images[0].get_array())
    assert [strip[0, i * 17, 0] for i in range(4)] == [55, 55, 55, 55]  # the thresholds 192, 128, 64 and 0 are below 200
