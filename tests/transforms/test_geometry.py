"""Known answers for the transforms that move pixels."""

import numpy as np
import pytest
import torch

from conftest import FAST, make_images, run_on
from outspan import Plan
from pillow import apply_with_pillow


def one(name: str, level: float, images: torch.Tensor, backend: str, place: tuple[float, ...] = (0, 0, 0, 0)) -> torch.Tensor:
    plan = Plan.of([[name]] * len(images), levels=[[level]] * len(images), places=[[place]] * len(images))
    return run_on(backend, images, plan)


@pytest.mark.parametrize(("level", "turns"), [(3.0, 1), (-3.0, 3)])
def test_rotate_by_90_degrees_is_rot90(level, turns, backend):
    images = make_images(0, 3, 3, 17, 17)
    assert torch.equal(one("rotate", level, images, backend), images.rot90(turns, (2, 3)))


def test_rotate_of_a_rectangle_by_90_degrees_matches_pillow(backend):
    images = make_images(0, 3, 3, 9, 70)
    plan = Plan.of([["rotate"]] * 3, levels=[[3.0], [-3.0], [4.5]])
    assert torch.equal(run_on(backend, images, plan), apply_with_pillow(images, plan))


def test_translate_moves_whole_pixels(backend):
    images = make_images(1, 1, 3, 32, 32)
    moved = one("translate_x", 0.8, images, backend)  # 10/32 · 0.8 · 32 = 8 columns
    assert torch.equal(moved[..., :-8], images[..., 8:])
    assert not moved[..., -8:].any()
    moved = one("translate_y", -0.8, images, backend)
    assert torch.equal(moved[..., 8:, :], images[..., :-8, :])
    assert not moved[..., :8, :].any()


def test_translate_by_the_whole_image_is_black(backend):
    assert not one("translate_x", 3.2, make_images(1, 1, 3, 32, 32), backend).any()


def test_shear_does_not_move_the_first_line(backend):
    images = make_images(2, 1, 3, 20, 20)
    assert torch.equal(one("shear_x", 1.0, images, backend)[:, :, 0], images[:, :, 0])
    assert torch.equal(one("shear_y", 1.0, images, backend)[..., 0], images[..., 0])


def test_flips_match_torch(backend):
    images = make_images(3, 2, 3, 7, 130)
    assert torch.equal(one("horizontal_flip", 0, images, backend), images.flip(3))
    assert torch.equal(one("vertical_flip", 0, images, backend), images.flip(2))


def test_random_crop_in_the_middle_is_the_identity(backend):
    images = make_images(4, 2, 3, 32, 32)
    assert torch.equal(one("random_crop", 1.0, images, backend, (0.5, 0.5, 0, 0)), images)


def test_random_crop_in_the_corner_matches_the_reflection_of_numpy(backend):
    images = make_images(4, 1, 3, 32, 32)
    padded = np.pad(images[0].numpy(), [(0, 0), (4, 4), (4, 4)], mode="reflect")
    assert torch.equal(one("random_crop", 1.0, images, backend)[0], torch.from_numpy(padded[:, :32, :32].copy()))


@pytest.mark.parametrize("size", [(2, 33000), (33000, 2), (3, 40000)])
@pytest.mark.parametrize("name", ["rotate", "shear_x", "shear_y", "translate_x"])
def test_sides_too_large_for_fixed_point_match_pillow(name, size, backend):
    """Pillow uses doubles instead of 16.16 fixed point if a corner moves further than 32,768."""
    images = make_images(5, 3, 1, *size)
    plan = Plan.of([[name]] * 3, levels=[[0.37], [-0.9], [1.0]])
    assert torch.equal(run_on(backend, images, plan), apply_with_pillow(images, plan))


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("side", [31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 224])
def test_every_translation_by_a_near_integer_matches_pillow(side, backend):
    """Positions that are sums of doubles round to integers here. Fixed point would be wrong."""
    levels = [np.float32(k / side * 3.2) for k in range(-32, 33)]
    near = [float(np.nextafter(level, np.float32(way))) for level in levels for way in (-9, 9)] + [
        float(level) for level in levels
    ]
    levels = [level for level in near if abs(level) <= 3.2]
    images = make_images(6, 1, 1, side, side)
    for name in ("translate_x", "translate_y"):
        plan = Plan.of([[name]] * len(levels), levels=[[level] for level in levels], source=[0] * len(levels))
        assert torch.equal(run_on(backend, images, plan), apply_with_pillow(images, plan))
