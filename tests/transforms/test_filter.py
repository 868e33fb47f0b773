"""Known answers for the filters."""

import torch

from conftest import make_images
from outspan.transforms import filter


def test_smooth_and_blur_keep_the_border_and_constant_images():
    images = make_images(0, 2, 3, 9, 11)
    for function, edge in ((filter.smooth, 1), (filter.blur, 2)):
        out = function(images)
        inner = torch.zeros(9, 11, dtype=torch.bool)
        inner[edge:-edge, edge:-edge] = True
        assert torch.equal(out[:, :, ~inner], images[:, :, ~inner])
        flat = torch.full((1, 1, 9, 9), 77, dtype=torch.uint8)
        assert torch.equal(function(flat), flat)


def test_smooth_of_a_point_is_its_kernel():
    point = torch.zeros(1, 1, 5, 5, dtype=torch.uint8)
    point[..., 2, 2] = 130
    out = filter.smooth(point)[0, 0]
    assert out[2, 2] == 50
    assert (out[1:4, 1:4].sum() - out[2, 2]) == 8 * 10


def test_blur_of_a_point_is_a_ring():
    point = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    point[..., 4, 4] = 160
    out = filter.blur(point)[0, 0]
    assert (out == 10).sum() == 16
    assert out.sum() == 160
    assert out[4, 4] == 0


def test_resized_crop_of_the_whole_image_is_the_identity():
    images = make_images(1, 1, 3, 8, 8)
    whole = torch.tensor([[0.3, 0.9, 1.0, 0.5]], dtype=torch.float64)  # the whole area, ratio 1
    assert torch.equal(filter.resized_crop(images, place=whole), images)
