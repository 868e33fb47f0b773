"""Transforms written as text give the same images as the plan that they describe."""

import pytest
import torch

import outspan
from conftest import make_images
from outspan.transforms.by_name import parse_ops


def test_ops_are_applied_in_order():
    image = make_images(0, 1, 3, 9, 9)
    plan = outspan.Plan.of([["rotate", "invert"]], levels=[[0.5, 0.0]])
    assert torch.equal(outspan.apply_ops(image, "rotate:0.5, invert"), outspan.apply(image, plan))


def test_a_partner_is_converted_to_the_channels_of_the_image():
    grey, color = make_images(0, 1, 1, 6, 6), make_images(1, 1, 3, 6, 6)
    plan = outspan.Plan.of([["mixup"], []], levels=[[0.5], []], partners=[[1], []], out=[0])
    expected = outspan.apply(torch.cat([color, grey.expand(-1, 3, -1, -1)]), plan)
    assert torch.equal(outspan.apply_ops(color, "mixup:0.5", partner=grey), expected)
    assert outspan.apply_ops(grey, "mixup:0.5", partner=color).shape == (1, 1, 6, 6)


def test_the_seed_decides_the_place():
    image = make_images(0, 1, 3, 32, 32)
    first = outspan.apply_ops(image, "cutout:0.5", seed=1)
    assert torch.equal(first, outspan.apply_ops(image, "cutout:0.5", seed=1))
    assert not torch.equal(first, outspan.apply_ops(image, "cutout:0.5", seed=2))


def test_wrong_calls_are_refused():
    image = make_images(0, 1, 3, 4, 4)
    with pytest.raises(ValueError, match="'cutmix' mixes two images: pass the second with --partner"):
        outspan.apply_ops(image, "cutmix:0.5")
    with pytest.raises(ValueError, match=r"height and width \[4, 4\], got \[4, 5\]"):
        outspan.apply_ops(image, "mixup:0.5", partner=make_images(0, 1, 3, 4, 5))
    with pytest.raises(ValueError, match="'rotate' needs a level"):
        parse_ops("rotate")
