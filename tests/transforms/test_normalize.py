"""Normalization, alone and fused with a plan."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from conftest import FAST, make_images, run_on
from outspan import TRANSFORMS, Normalize, apply, rng, uniform
from outspan.transforms.normalize import DEFAULT_PREPROCESS, Preprocess

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
TYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("channels", [1, 3])
def test_fused_normalization_equals_separate_normalization(channels, dtype, channels_last, backend):
    count, *size = (9, 13, 70) if backend in FAST else (3, 5, 11)  # the interpreter of Triton takes seconds
    images = make_images(0, count, channels, *size)
    plan = uniform(3, transforms=tuple(TRANSFORMS))(count, rng=rng.generator(0), candidates=2)
    normalize = Normalize(MEAN[:channels], STD[:channels], dtype, channels_last)
    fused = run_on(backend, images, plan, normalize=normalize)
    after = Normalize(MEAN[:channels], STD[:channels], dtype, channels_last)(apply(images, plan))
    assert fused.dtype == dtype
    assert torch.equal(fused, after)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert fused.is_contiguous(memory_format=layout)
    assert after.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("dtype", TYPES)
def test_every_value_is_rounded_correctly(dtype):
    """Values are rounded once: no neighbour of a value is nearer to (v / 255 - mean) / std in doubles."""
    every = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    out = Normalize(MEAN[:1], STD[:1], dtype)(every).flatten()
    bits = out.view(torch.int32 if dtype == torch.float32 else torch.int16)
    exact = (np.arange(256) / 255 - MEAN[0]) / STD[0]
    for step in (-1, 1):
        neighbour = (bits + step).view(dtype)
        for value, near, other in zip(exact.tolist(), out.double().tolist(), neighbour.double().tolist(), strict=True):
            assert abs(Fraction(near) - Fraction(value)) <= abs(Fraction(other) - Fraction(value))


def test_bfloat16_is_not_rounded_through_float32():
    """At this mean the value of byte 0 is just above the middle of two bfloat16 values, closer than float32 resolves."""
    mean = -(1 + 2**-8 + 2**-30)
    value = Normalize((mean,), (1.0,), torch.bfloat16).table[0, 0]
    assert value.item() == 1 + 2**-7
    assert torch.tensor(-mean, dtype=torch.float64).to(torch.bfloat16).item() == 1.0  # the result of two roundings


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((0.5,) * 2, (0.5,) * 2), "1 or 3 entries, got 2 and 2"),
        (((0.5,), (0.5,) * 3), "1 or 3 entries, got 1 and 3"),
        (((0.5,), (0.0,)), "std positive"),
        (((float("nan"),), (1.0,)), "mean must be finite"),
        ((0.5, 0.5), r"mean must be one number per channel, e.g. \(0.5, 0.5, 0.5\), got 0.5"),
        (((0.5,), "std"), "std must be one number per channel, .*got 'std'"),
        (((0.5,), (0.5,), torch.float64), "dtype must be one of"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message, unchecked):
    with pytest.raises(ValueError, match=message):
        Normalize(*arguments)


def test_images_with_another_number_of_channels_are_refused():
    images = make_images(0, 1, 1, 4, 4)
    normalize = Normalize(MEAN, STD)
    for use in (normalize, normalize.check):
        with pytest.raises(ValueError, match=r"got 3 for 1 channels: pass one of each, or images.expand\(-1, 3, -1, -1\)"):
            use(images)
    assert torch.equal(normalize(images.expand(-1, 3, -1, -1)), normalize(torch.cat([images] * 3, dim=1)))
    with pytest.raises(ValueError, match="normalize must have one mean per channel, got 3 for 1 channels"):
        apply(images, uniform(1)(1, rng=rng.generator(0)), normalize=Normalize(MEAN, STD))


def test_statistics_in_the_range_of_bytes_are_refused():
    with pytest.raises(ValueError, match="divide mean and std by 255"):
        Normalize((125.0, 123.0, 114.0), (60.0, 60.0, 60.0))


def test_execute_equals_apply_and_normalize_with_the_mean_as_fill():
    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    plan = uniform(2, transforms=("cutout", "rotate"))(4, rng=rng.generator(0), candidates=2)
    normalize = Normalize((0.5, 0.25, 1.2), (0.5, 0.5, 0.5))
    assert normalize.fill == (128, 64, 255)
    assert torch.equal(normalize.execute(images, plan), normalize(apply(images, plan, fill=normalize.fill)))
    assert torch.equal(DEFAULT_PREPROCESS.execute(images, plan), (apply(images, plan).double() / 255).float())
    assert torch.equal(DEFAULT_PREPROCESS(images), (images.double() / 255).float())
    assert isinstance(normalize, Preprocess)


def test_inputs_that_are_not_images_are_refused():
    for preprocess in (Normalize(MEAN, STD), DEFAULT_PREPROCESS):
        for inputs, description in ((["a film"], "a list of str"), (torch.zeros(2, 3), r"torch.float32 \[2, 3\]")):
            with pytest.raises(ValueError, match=rf"images must be a uint8 tensor \[B, C, H, W\], got {description}"):
                preprocess.check(inputs)
        preprocess.check(torch.zeros(2, 3, 4, 4, dtype=torch.uint8))
