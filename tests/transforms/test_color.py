"""Known answers for the colour transforms."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from conftest import make_images
from outspan.transforms import color


def row(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.uint8).view(1, 1, 1, -1)


def test_brightness_truncates():
    assert color.brightness(row(0, 3, 100, 255), torch.tensor([0.5], dtype=torch.float64)).flatten().tolist() == [0, 1, 50, 127]


def test_brightness_clips_only_beyond_one():
    assert color.brightness(row(1, 200), torch.tensor([1.9], dtype=torch.float64)).flatten().tolist() == [1, 255]


def test_solarize_inverts_values_from_the_threshold():
    assert color.solarize(row(99, 100, 200), torch.tensor([100.0], dtype=torch.float64)).flatten().tolist() == [99, 155, 55]


def test_posterize_keeps_the_highest_bits():
    assert color.posterize(row(255, 17, 16), torch.tensor([4.0], dtype=torch.float64)).flatten().tolist() == [240, 16, 16]


def test_invert_twice_is_the_identity():
    images = make_images(0, 3, 3, 5, 6)
    assert torch.equal(color.invert(color.invert(images)), images)


def test_auto_contrast_reaches_both_ends_and_keeps_constant_channels():
    assert color.auto_contrast(row(50, 100, 150)).flatten().tolist() == [0, 127, 255]
    assert color.auto_contrast(row(50, 50, 50)).flatten().tolist() == [50, 50, 50]


def test_equalize_of_every_value_once_is_the_identity():
    every = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    assert torch.equal(color.equalize(every), every)


@given(st.lists(st.tuples(*[st.integers(0, 255)] * 3), min_size=1, max_size=64))
def test_grey_matches_pillow(pixels):
    array = np.array(pixels, dtype=np.uint8)[None]
    images = torch.from_numpy(array.transpose(2, 0, 1).copy())[None]
    assert color.grey(images).flatten().tolist() == np.asarray(Image.fromarray(array).convert("L")).flatten().tolist()


def test_color_0_is_grey_and_keeps_grey_images():
    images = make_images(1, 2, 3, 5, 6)
    zero = torch.zeros(2, dtype=torch.float64)
    assert torch.equal(color.color(images, zero), color.grey(images).expand_as(images))
    assert torch.equal(color.color(images[:, :1], zero), images[:, :1])
