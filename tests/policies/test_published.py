"""Published augmentations compared with the numbers of their papers, computed by hand."""

from collections import Counter

import numpy as np
import pytest
import torch

import outspan
from conftest import magnitudes, make_images
from outspan import apply, mix_labels, rng
from outspan.policies.published import AUTOAUGMENT_PAIRS, BASELINES, DEFAULTS
from pillow import apply_with_pillow

FOURTEEN = {
    "identity", "auto_contrast", "equalize", "rotate", "solarize", "color", "posterize", "contrast", "brightness",
    "sharpness", "shear_x", "shear_y", "translate_x", "translate_y",
}  # fmt: skip


def test_randaugment_at_9_of_30():
    plan = outspan.randaugment(2, 9)(4000, rng=rng.generator(0))
    result = magnitudes(plan)
    assert set(result) == FOURTEEN
    assert result["rotate"] == {9.0, -9.0}
    assert result["shear_x"] == {0.09, -0.09}
    assert result["translate_y"] == {round(sign * 0.3 * 150 / 331, 4) for sign in (-1, 1)}
    assert result["color"] == {1.27, 0.73}
    assert result["posterize"] == {6.8}  # rounds to 7 bits
    assert result["solarize"] == {179.2}
    counts = Counter(plan.ops.flatten().tolist()).values()
    assert max(counts) < 1.3 * min(counts)


def test_trivialaugment_wide_has_the_ranges_of_its_paper():
    plan = outspan.trivialaugment()(40_000, rng=rng.generator(0))
    result = magnitudes(plan)
    assert plan.ops.shape[1] == 1
    assert set(result) == FOURTEEN
    assert (min(result["rotate"]), max(result["rotate"]), len(result["rotate"])) == (-135, 135, 61)
    assert max(result["shear_x"]) == 0.99
    assert max(result["translate_x"]) == 1.0  # 32 of 32 pixels
    assert (min(result["brightness"]), max(result["brightness"])) == (0.01, 1.99)
    assert (min(result["posterize"]), max(result["posterize"])) == (2, 8)
    assert (min(result["solarize"]), max(result["solarize"])) == (0, 256)
    wide = magnitudes(outspan.trivialaugment(side=224)(40_000, rng=rng.generator(0)))
    assert max(wide["translate_x"]) == round(32 / 224, 4)
    narrow = magnitudes(outspan.trivialaugment(wide=False)(40_000, rng=rng.generator(0)))
    assert (max(narrow["rotate"]), max(narrow["translate_x"])) == (30, 0.3125)


def test_uniformaugment_applies_two_transforms_with_probability_one_half():
    result = magnitudes(outspan.uniformaugment()(20_000, rng=rng.generator(1)))
    assert set(result) == FOURTEEN - {"identity"} | {"invert", "cutout"}
    assert max(result["cutout"]) == pytest.approx(0.2, abs=0.001)
    plan = outspan.uniformaugment()(40_000, rng=rng.generator(0))
    assert abs((plan.ops >= 0).double().mean() - 0.5) < 0.01
    assert len({round(level, 3) for level in plan.levels.flatten().tolist()}) > 1000


@pytest.mark.parametrize("data", AUTOAUGMENT_PAIRS)
def test_autoaugment_draws_25_pairs_equally_often(data):
    assert len(AUTOAUGMENT_PAIRS[data]) == 25
    assert all(len(pair.split(", ")) == 2 for pair in AUTOAUGMENT_PAIRS[data])
    plan = outspan.autoaugment(data)(2000, rng=rng.generator(0))
    assert plan.ops.shape == (2000, 2)


def test_autoaugment_has_the_published_values():
    plan = outspan.autoaugment("cifar")(100_000, rng=rng.generator(0))
    result = magnitudes(plan)
    # Contrast 6 and 7 of 9 between 0.1 and 1.9; rotate 2 of 9 of 30 degrees; shear_y 8 and 7 of 9 of 0.3.
    assert result["contrast"] == {1.3, 1.5}
    assert result["rotate"] == {round(sign * 30 * 2 / 9, 4) for sign in (-1, 1)}
    assert result["shear_y"] == {round(sign * 0.3 * m / 9, 4) for sign in (-1, 1) for m in (7, 8)}
    # Invert is in three pairs, with probabilities 0.1, 0 and 0.1.
    fraction = (plan.ops == plan.names.index("invert")).double().sum() / 100_000
    assert abs(fraction - (0.1 + 0.0 + 0.1) / 25) < 0.002


def test_mixup_weights_follow_the_beta_distribution():
    for alpha in (0.2, 1.0):
        levels = outspan.mixup(alpha)(40_000, rng=rng.generator(0)).levels.double()
        assert abs(levels.mean() - 0.5) < 0.01
        assert abs(levels.var() - 1 / (4 * (2 * alpha + 1))) < 0.003


def test_cutmix_areas_follow_the_beta_distribution():
    levels = outspan.cutmix()(40_000, rng=rng.generator(0)).levels.double()
    assert abs((levels**2).mean() - 0.5) < 0.01


def test_augmix_weights_sum_to_one_and_keep_the_label():
    size, width = 300, 3
    plan = outspan.augmix()(size, rng=rng.generator(0), candidates=2)
    assert len(plan) == 600
    weights = plan.levels[:600, 3:].double()
    later = torch.cat([(1 - weights).flip(1).cumprod(1).flip(1)[:, 1:], torch.ones(600, 1)], dim=1)
    fractions = weights * later
    kept = (1 - weights).prod(1)
    assert torch.allclose(fractions.sum(1) + kept, torch.ones(600, dtype=torch.float64))
    assert abs(kept.mean() - 0.5) < 0.04  # Beta(1, 1)
    assert (fractions.mean(0) - 0.5 / width).abs().max() < 0.03  # equal for the three chains
    labels = torch.arange(size) % 7
    assert torch.allclose(mix_labels(labels, plan, 7, (8, 8)), torch.eye(7)[labels.repeat_interleave(2)])


def test_augmix_mixes_pixels_like_pillow():
    images = make_images(0, 6, 3, 12, 12)
    plan = outspan.augmix(severity=5)(6, rng=rng.generator(1), candidates=2)
    out = apply(images, plan)
    assert torch.equal(out, apply_with_pillow(images, plan))
    assert not torch.equal(out, images.repeat_interleave(2, dim=0))
    assert torch.equal(apply(images, plan[[3, 8]]), out[[3, 8]])


def test_defaults_match_the_paper():
    def names(proposal):
        return proposal(1, rng=rng.generator(0)).names

    assert names(DEFAULTS["cifar"]) == ("random_crop", "horizontal_flip", "cutout", "mixup")
    assert names(DEFAULTS["svhn"]) == ("random_crop", "cutout")
    assert names(DEFAULTS["imagenet"]) == ("resized_crop", "horizontal_flip", "brightness", "contrast", "color", "mixup")
    assert names(BASELINES["cifar"]) == ("random_crop", "horizontal_flip")
    plan = DEFAULTS["cifar"](20_000, rng=rng.generator(0))
    fired = (plan.ops >= 0).double().mean(0)
    assert np.allclose(fired, [1, 0.5, 1, 0.5], atol=0.02)
    assert plan.levels[:, 2].unique().tolist() == [1.0]  # a square of 16 of 32 pixels


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: outspan.randaugment(2, 31), r"magnitude must lie in \[0, 30\], got 31"),
        (lambda: outspan.autoaugment("mnist"), "data must be one of cifar, svhn, imagenet, got 'mnist'"),
        (lambda: outspan.augmix(0), r"severity must lie in \(0, 10\]"),
        (lambda: outspan.Step("cutout", -1.0, 1.0), r"levels of 'cutout' must lie in \[0, 1\], got \[-1, 1\]"),
        (lambda: outspan.Step("cutout", 0.0, 1.0, mirrored=True), "levels of 'cutout'"),
        (lambda: outspan.Step("rotate", probability=2.0), r"probability must lie in \[0, 1\]"),
        (lambda: outspan.Step("rotate", bins=1), "bins must be 0 or at least 2"),
    ],
)
def test_wrong_arguments_are_refused(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call()
