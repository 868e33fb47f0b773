"""The drop-in transforms compared with Pillow and with the bins that torchvision documents."""

from collections import Counter
from enum import Enum

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

import outspan
from conftest import magnitudes, make_images
from outspan import dropin, rng
from outspan.policies import torchvision
from outspan.policies.steps import Schedule
from pillow import from_pillow, to_pillow

AFFINE = Image.Transform.AFFINE
SIZE = (20, 33)  # bin 9 of 31 translates by int(0.3 * 150 / 331 * 20) = 2 rows, or 4 columns


def noise(count: int) -> torch.Tensor:
    return torch.from_numpy(rng.generator(0, "noise").integers(20, 220, (count, 3, *SIZE), dtype=np.uint8))


def enhance(name: str, factor: float) -> object:
    return lambda im: getattr(ImageEnhance, name)(im).enhance(factor)


def shift(*matrix: float) -> object:
    return lambda im: im.transform(im.size, AFFINE, matrix)


# RandAugment at magnitude 9 of 31, by hand: 9/30 of 30 degrees, of 0.3, of 0.9; 8 - round(1.2) bits; a threshold of 178.5.
AT_9 = {
    "identity": [lambda im: im],
    "auto_contrast": [ImageOps.autocontrast],
    "equalize": [ImageOps.equalize],
    "posterize": [lambda im: ImageOps.posterize(im, 7)],
    "solarize": [lambda im: ImageOps.solarize(im, 178.5)],
    "rotate": [lambda im: im.rotate(9), lambda im: im.rotate(-9)],
    "shear_x": [shift(1, 0.09, 0, 0, 1, 0), shift(1, -0.09, 0, 0, 1, 0)],
    "shear_y": [shift(1, 0, 0, 0.09, 1, 0), shift(1, 0, 0, -0.09, 1, 0)],
    "translate_x": [shift(1, 0, 4, 0, 1, 0), shift(1, 0, -4, 0, 1, 0)],
    "translate_y": [shift(1, 0, 0, 0, 1, 2), shift(1, 0, 0, 0, 1, -2)],
    "brightness": [enhance("Brightness", 1.27), enhance("Brightness", 0.73)],
    "color": [enhance("Color", 1.27), enhance("Color", 0.73)],
    "contrast": [enhance("Contrast", 1.27), enhance("Contrast", 0.73)],
    "sharpness": [enhance("Sharpness", 1.27), enhance("Sharpness", 0.73)],
}  # fmt: skip


def test_randaugment_applies_each_of_14_transforms_with_the_same_probability():
    image = noise(1)
    picture = to_pillow(image[0])
    expected = {from_pillow(call(picture)).numpy().tobytes(): name for name, calls in AT_9.items() for call in calls}
    assert len(expected) == sum(map(len, AT_9.values()))
    count = 8000
    out = dropin.RandAugment(num_ops=1, seed=0)(image.expand(count, -1, -1, -1), step=0)
    counts = Counter(expected[row.numpy().tobytes()] for row in out)  # a KeyError: not what Pillow returns
    assert {*counts} == {*AT_9}
    assert all(value == pytest.approx(count / 14, rel=0.2) for value in counts.values())


def test_the_transforms_of_one_image_follow_one_another():
    images = make_images(7, 40, 3, *SIZE)
    one, two = dropin.RandAugment(1, seed=0), dropin.RandAugment(2, seed=0)
    assert torch.equal(dropin.RandAugment(0, seed=0)(images, step=0), images)
    propose = torchvision.randaugment(2, 9, 31, SIZE)
    plan = propose(40, rng=rng.generator(0, "dropin", "RandAugment", 5))
    assert plan.ops.shape == (40, 2)
    assert torch.equal(two(images, step=5), outspan.apply(images, plan))
    assert not torch.equal(one(images, step=5), two(images, step=5))


def test_trivialaugment_has_31_bins_of_the_wide_ranges():
    result = magnitudes(torchvision.trivialaugment(31, (64, 128))(60_000, rng=rng.generator(0)))
    assert len(result) == 14
    assert result["rotate"] == {round(4.5 * k, 4) for k in range(-30, 31)}
    assert result["shear_x"] == {round(0.033 * k, 4) for k in range(-30, 31)}
    assert {round(value * 128) for value in result["translate_x"]} == {s * (32 * k // 30) for k in range(31) for s in (1, -1)}
    assert result["color"] == {round(1 + 0.033 * k, 4) for k in range(-30, 31)}
    assert result["posterize"] == {8 - round(0.2 * k) for k in range(31)}
    assert result["solarize"] == {np.ceil(round(255 * (1 - k / 30), 3)) for k in range(31)}


def test_autoaugment_has_the_pairs_and_10_bins():
    result = magnitudes(torchvision.autoaugment("imagenet", SIZE)(50_000, rng=rng.generator(0)))
    assert result["rotate"] == {round(s * 30 * k / 9, 4) for k in (3, 8, 9) for s in (1, -1)}
    assert result["color"] == {round(1 + s * 0.1 * k, 4) for k in (0, 2, 4, 8) for s in (1, -1)}
    assert result["posterize"] == {8 - round(4 * k / 9) for k in (5, 6, 7, 8)}
    for data in ("imagenet", "cifar10", "svhn"):
        assert dropin.AutoAugment(data, seed=0)(make_images(7, 8, 3, *SIZE), step=0).shape == (8, 3, *SIZE)


def test_augmix_draws_from_the_lowest_bins():
    plan = torchvision.augmix(3, 3, (1, 3), 1.0, True, SIZE)(3000, rng=rng.generator(0))
    result = magnitudes(plan)
    assert set(result) == {*AT_9, "mixup"} - {"identity"}
    assert result["rotate"] == {round(30 * k / 9, 4) for k in range(-2, 3)}
    assert result["posterize"] == {4, 3}
    assert "color" not in magnitudes(torchvision.augmix(3, 3, (1, 3), 1.0, False, SIZE)(3000, rng=rng.generator(0)))


@pytest.mark.parametrize(("depth", "lengths"), [(-1, {1, 2, 3}), (0, {1, 2, 3}), (2, {2}), (5, {5})])
def test_the_chains_of_augmix_have_the_length_asked_for(depth, lengths, monkeypatch):
    plans = []
    monkeypatch.setattr("outspan.dropin.images.apply", lambda images, plan: plans.append(plan) or outspan.apply(images, plan))
    transform = dropin.AugMix(chain_depth=depth, mixture_width=4, seed=0)
    assert transform(make_images(7, 50, 3, *SIZE), step=0).shape == (50, 3, *SIZE)
    chains = plans[0].ops[50:]
    assert len(chains) == 200
    assert {*(chains >= 0).sum(1).tolist()} == lengths


def test_augmix_draws_the_weights_of_each_image():
    images = torch.full((50, 1, 8, 8), 200, dtype=torch.uint8)
    out = dropin.AugMix(all_ops=False, seed=0)(images, step=0)
    assert len(out[:, 0, 4, 4].unique()) > 10


TRANSFORMS = [
    dropin.RandAugment(seed=0),
    dropin.TrivialAugmentWide(seed=0),
    dropin.AutoAugment(seed=0),
    dropin.AugMix(seed=0),
    dropin.Augment(outspan.natural(), seed=0),
]


class Subclass(torch.Tensor):  # as tv_tensors.Image
    pass


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: type(transform).__name__)
def test_a_batch_one_image_and_further_arguments(transform):
    images = noise(16)
    before = images.clone()
    out = transform(images, step=1)
    assert out.shape == images.shape
    assert out.dtype == torch.uint8
    assert torch.equal(images, before)
    assert not torch.equal(out, images)
    assert torch.equal(transform(images, step=1), out)
    assert not torch.equal(transform(images, step=2), out)
    assert torch.equal(transform(images[0], step=1), transform(images[:1], step=1)[0])
    labels = torch.arange(16)
    assert transform(images, labels, "more", step=1)[1:] == (labels, "more")
    assert torch.equal(transform(images, labels, step=1)[0], out)
    in_tuple = transform((images, labels, "more"), step=1)
    assert type(in_tuple) is tuple
    assert torch.equal(in_tuple[0], out)
    assert in_tuple[1:] == (labels, "more")
    assert type(transform(images.as_subclass(Subclass), step=1)) is torch.Tensor
    assert transform(images[:0], step=1).shape == (0, 3, *SIZE)
    assert len({row.numpy().tobytes() for row in transform(images[:1].expand(16, -1, -1, -1), step=1)}) > 5


class Mode(Enum):  # as torchvision's InterpolationMode and AutoAugmentPolicy
    NEAREST = "nearest"
    BILINEAR = "bilinear"
    CIFAR10 = "cifar10"


def test_the_arguments_of_torchvision_are_accepted():
    dropin.RandAugment(2, 9, 31, Mode.NEAREST, None)
    dropin.TrivialAugmentWide(31, Mode.NEAREST, [0, 0, 0])
    dropin.AutoAugment(Mode.CIFAR10, 0, 0.0)
    dropin.AugMix(3, 3, -1, 1.0, True, Mode.NEAREST, None)


def test_whole_numbers_may_be_of_numpy(unchecked):
    one = np.int64(1)
    assert dropin.RandAugment(one, 9 * one, 31 * one, seed=one) == dropin.RandAugment(1, 9, 31, seed=1)
    transform = dropin.AugMix(3 * one, 3 * one, -one, np.float32(1), seed=one)
    assert transform == dropin.AugMix(seed=1)
    assert all(type(value) in (int, float) for value in (transform.severity, transform.chain_depth, transform.alpha))
    assert torch.equal(transform(BYTES, step=one), dropin.AugMix(seed=1)(BYTES, step=1))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: dropin.RandAugment(magnitude=31), "magnitude must be below num_magnitude_bins, 31, got 31"),
        (lambda: dropin.RandAugment(magnitude=-1), "magnitude must be at least 0, got -1"),
        (lambda: dropin.RandAugment(num_ops=1.5), r"num_ops must be a whole number, got 1\.5"),
        (lambda: dropin.RandAugment(num_magnitude_bins=1), "num_magnitude_bins must be at least 2, got 1"),
        (lambda: dropin.TrivialAugmentWide(10**9), "num_magnitude_bins must be at most 1000, got 1000000000"),
        (lambda: dropin.RandAugment(interpolation=Mode.BILINEAR), "interpolation must be 'nearest', got 'bilinear'"),
        (lambda: dropin.RandAugment(fill=128), "fill must be None or 0, which is black, got 128"),
        (lambda: dropin.RandAugment(fill=(0, 128, 0)), r"fill must be None or 0, .* got \(0, 128, 0\)"),
        (lambda: dropin.AutoAugment("cifar"), "policy must be one of imagenet, cifar10, svhn, got 'cifar'"),
        (lambda: dropin.AugMix(severity=11), "severity must be at most 10, got 11"),
        (lambda: dropin.AugMix(alpha=0), "alpha must be a positive number, got 0"),
        (lambda: dropin.RandAugment(num_ops=101), "num_ops must be at most 100, got 101"),
        (lambda: dropin.RandAugment(interpolation=np.zeros(2)), r"interpolation must be 'nearest', got array\(\["),
        (lambda: dropin.RandAugment(fill=torch.zeros(3)), r"fill must be None or 0, .* got tensor\(\["),
        (lambda: dropin.RandAugment(fill=[np.zeros(2)]), r"fill must be None or 0, .* got \[array\(\["),
        (lambda: dropin.AutoAugment(np.zeros(2)), "policy must be one of imagenet, cifar10, svhn, got array"),
        (lambda: dropin.AutoAugment(["imagenet"]), r"policy must be one of imagenet, cifar10, svhn, got \['imagenet'\]"),
        (lambda: dropin.AugMix(chain_depth=101), "chain_depth must be at most 100, got 101"),
        (lambda: dropin.AugMix(mixture_width=101), "mixture_width must be at most 100, got 101"),
        (lambda: dropin.AugMix(alpha=10**400), "alpha must be at most 1,000,000, got a whole number of 1329 bits"),
        (lambda: dropin.AugMix(alpha=float("nan")), "alpha must be a positive number, got nan"),
        (lambda: dropin.AugMix(all_ops="no"), "all_ops must be True or False, got 'no'"),
        (lambda: dropin.RandAugment(seed=2**63), "seed must be at most 9223372036854775807, got 9223372036854775808"),
        (lambda: dropin.Augment("rand-m9"), "propose must be a proposal such as .*, got 'rand-m9'"),
        (lambda: dropin.RandAugment(seed=0, generator=torch.Generator()), "either seed or generator"),
        (lambda: dropin.RandAugment(seed="0"), "seed must be a whole number, got '0'"),
        (lambda: dropin.RandAugment(generator=7), r"generator must be a torch\.Generator, got 7: use seed"),
    ],
)
def test_wrong_arguments(unchecked, build, message):
    with pytest.raises(ValueError, match=message):
        build()


BYTES = torch.zeros((2, 3, 8, 8), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (BYTES.float(), r"must be a uint8 tensor .* got torch\.float32: use v2\.PILToTensor\(\).*v2\.ToDtype\(torch\.uint8"),
        (Image.new("RGB", (8, 8)), r"got a value of type Image: put v2\.PILToTensor\(\) before this transform"),
        ([BYTES], r"got a list of Tensor: pass .* as transform\(\*batch\)"),
        (BYTES.numpy(), r"got a value of type ndarray: use torch\.from_numpy\(images\)"),
        (BYTES[0, 0], r"\[B, C, H, W\] or \[C, H, W\], got torch\.uint8 \[8, 8\]: use images\.unsqueeze\(0\)"),
        (BYTES[None], r"\[B, C, H, W\] or \[C, H, W\], got torch\.uint8 \[1, 2, 3, 8, 8\]$"),
        (BYTES[0].permute(1, 2, 0), r"\[C, H, W\] with 1 or 3 channels, got \[8, 8, 3\]: use images\.permute\(2, 0, 1\)"),
        (BYTES[:, [0, 0, 0, 0]], r"got \[2, 4, 8, 8\]: convert RGBA to RGB, for example with images\[:, :3\]"),
        (BYTES[0, [0, 0, 0, 0]], r"got \[4, 8, 8\]: convert RGBA to RGB, for example with images\[:3\]"),
        (BYTES[0, [0] * 4].permute(1, 2, 0), r"got \[8, 8, 4\]: .*RGB .* images\[\.\.\., :3\]\.permute\(2, 0, 1\)"),
        (BYTES.permute(0, 2, 3, 1), r"with 1 or 3 channels, got \[2, 8, 8, 3\]: use images\.permute"),
        (BYTES[:, :, :0], r"at least one pixel, got \[0, 8\]"),
    ],
)
def test_wrong_images(unchecked, images, message):
    for transform in TRANSFORMS:
        with pytest.raises(ValueError, match=message):
            transform(images, step=0)


MIXED = "the proposal mixes different images, which also changes labels: .* such as outspan.randaugment"
FLIP = outspan.sequence(outspan.Step("horizontal_flip"))


@pytest.mark.parametrize(
    ("propose", "message"),
    [
        (outspan.mixup(), MIXED),
        (outspan.sequence(outspan.Step("cutmix", probability=0.01)), MIXED),
        (outspan.any_of([*[outspan.Step("invert")] * 99, outspan.Step("mixup")], 1), MIXED),
        (outspan.uniform(2), MIXED),
        (Schedule((FLIP, FLIP), (10,)), "propose must be one proposal, got Schedule.*: use outspan.Plain"),
        (lambda size, rng, candidates=1: None, "propose must return a Plan with one output per image, got None for 2 images"),
        (lambda size, rng, candidates=1: FLIP(3, rng=rng), "got a plan of 3 outputs for 2 images"),
    ],
)
def test_proposals_that_do_not_fit_are_refused_at_once(unchecked, propose, message):
    with pytest.raises(ValueError, match=message):
        dropin.Augment(propose)


@pytest.mark.parametrize(
    "propose",
    [
        outspan.augmix(),
        outspan.policy("augmix"),
        outspan.blend(outspan.Step("invert"), outspan.Step("rotate")),
        outspan.randaugment(2, 9),
        outspan.sequence(),
    ],
)
def test_proposals_that_mix_an_image_with_itself_are_accepted(propose):
    assert dropin.Augment(propose, seed=0)(BYTES, step=0).shape == BYTES.shape
