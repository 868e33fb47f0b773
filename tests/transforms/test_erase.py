"""Known answers for cutout."""

import torch

from conftest import run_on
from outspan import Plan, apply


def test_cutout_fills_a_square_around_its_place(backend):
    images = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    plan = Plan.of([["cutout"]], levels=[[0.5]], places=[[[0.5, 0.25, 0, 0]]])  # side int(0.25 · 32) = 8 around (16, 8)
    out = run_on(backend, images, plan, fill=[1, 2, 3])
    expected = images.clone()
    expected[:, :, 4:12, 12:20] = torch.tensor([1, 2, 3], dtype=torch.uint8).view(3, 1, 1)
    assert torch.equal(out, expected)


def test_cutout_is_clipped_at_the_corner():
    images = torch.full((1, 1, 32, 32), 9, dtype=torch.uint8)
    out = apply(images, Plan.of([["cutout"]], levels=[[1.0]]))  # side 16 around the corner: 8 x 8 remain
    assert (out == 0).sum() == 64
    assert not out[..., :8, :8].any()
