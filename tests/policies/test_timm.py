"""timm's policy strings compared with numbers computed by hand from timm's documentation of its ranges."""

from collections import Counter

import numpy as np
import pytest
import torch

import outspan
from conftest import magnitudes, make_images
from outspan import dropin, rng
from outspan.policies.timm import OPTIONS
from pillow import apply_with_pillow

LABEL_KEEPING = {
    "auto_contrast", "equalize", "invert", "rotate", "posterize", "solarize", "identity", "color", "contrast", "brightness",
    "sharpness", "shear_x", "shear_y", "translate_x", "translate_y",
}  # fmt: skip
SHARES = {"rotate": 3, "shear_x": 2, "shear_y": 2, "translate_x": 1, "translate_y": 1, "color": 0.25, "sharpness": 0.25}
SHARES |= {"auto_contrast": 0.25, **dict.fromkeys(LABEL_KEEPING - {*SHARES, "auto_contrast"}, 0.05)}


def drawn(text: str, size: int = 4000) -> tuple[outspan.Plan, dict[str, set[float]]]:
    plan = outspan.policy(text)(size, rng=rng.generator(0))
    return plan, magnitudes(plan)


def test_rand_at_magnitude_9():
    plan, result = drawn("rand-m9", 8000)
    assert plan.ops.shape == (8000, 2)
    assert set(result) == LABEL_KEEPING
    assert result["rotate"] == {27.0, -27.0}
    assert result["shear_x"] == {0.27, -0.27}
    assert result["translate_y"] == {0.405, -0.405}  # 0.9 of 0.45 of the side
    assert result["color"] == {1.72}  # 0.1 + 0.9 * 1.8
    assert result["posterize"] == {3.0}  # int(3.6) bits
    assert result["solarize"] == {230.0}  # int(0.9 * 256)
    assert abs((plan.ops >= 0).double().mean() - 0.5) < 0.01
    counts = Counter(plan.ops[plan.ops >= 0].tolist()).values()
    assert max(counts) < 1.25 * min(counts)


def test_inc_makes_transforms_stronger_with_the_magnitude():
    result = drawn("rand-m9-inc1-n3-p1")[1]
    assert result["color"] == {1.81, 0.19}
    assert result["posterize"] == {1.0}  # 4 - int(3.6) bits
    assert result["solarize"] == {26.0}
    assert drawn("rand-m2-inc1-p1")[1]["solarize"] == {256 - 51}
    assert drawn("rand-m9-inc0")[1] == drawn("rand-m9")[1]


def test_mmax_raises_the_limit_of_10():
    assert drawn("rand-m15")[1]["rotate"] == {30.0, -30.0}
    assert drawn("rand-m15-mmax20")[1]["rotate"] == {45.0, -45.0}
    assert drawn("rand-m15-mmax20")[1]["color"] == {1.99}  # timm has 2.8; the limit of the transform is less
    assert drawn("rand-m9-mmax5")[1]["rotate"] == {15.0, -15.0}


def test_mstd_adds_noise_to_the_magnitude_of_every_transform():
    plan, _ = drawn("rand-m5-mstd0.5", 20_000)
    angles = plan.levels[plan.ops == plan.names.index("rotate")].abs().double() * 10
    assert abs(angles.mean() - 5) < 0.05
    assert abs(angles.std() - 0.5) < 0.05
    clipped = drawn("rand-m9-mstd3", 20_000)[0]
    angles = clipped.levels[clipped.ops == clipped.names.index("rotate")].abs()
    assert angles.max() == 1
    assert 0.3 < (angles == 1).double().mean() < 0.45  # above 10, a third of a standard deviation: 0.37
    uniform = drawn("rand-m8-mstd101", 20_000)[0]
    angles = uniform.levels[uniform.ops == uniform.names.index("rotate")].abs().numpy()
    assert angles.max() <= 0.8
    assert np.allclose(np.histogram(angles, 4, (0, 0.8))[0] / len(angles), 0.25, atol=0.05)


def test_tweights_draws_different_transforms_by_their_weights():
    plan, result = drawn("rand-m9-tweights-n1-p1", 40_000)
    total = sum(SHARES.values())
    for name, share in SHARES.items():
        assert (plan.ops == plan.names.index(name)).double().mean() == pytest.approx(share / total, abs=0.008), name
    assert result["solarize"] == {26.0}
    two = drawn("rand-tweights-n2-p1")[0]
    assert (two.ops[:, 0] != two.ops[:, 1]).all()
    # With the rest left after a rotation, the second is a shear in x in 2 of 7.8 cases.
    after = two.ops[:, 1][two.ops[:, 0] == two.names.index("rotate")]
    assert (after == two.names.index("shear_x")).double().mean() == pytest.approx(2 / (total - 3), abs=0.05)


def test_the_policies_of_autoaugment():
    plan, result = drawn("original", 40_000)
    assert plan.ops.shape == (40_000, 2)
    assert result["posterize"] == {6.0, 7.0}  # 4 + int(4 * m / 10) bits of the magnitudes 5 to 8
    assert result["rotate"] == {sign * 3.0 * m for m in (3, 8, 9) for sign in (1, -1)}
    assert result["color"] == {0.1, 0.46, 0.82, 1.54}
    assert drawn("originalr", 40_000)[1]["posterize"] == {1.0, 2.0}
    assert drawn("v0", 40_000)[1]["posterize"] == {0.0, 2.0}
    assert drawn("v0r", 40_000)[1]["posterize"] == {4.0, 2.0}
    v0, result = drawn("v0", 40_000)
    assert {*result} == LABEL_KEEPING - {"contrast", "brightness", "sharpness", "translate_x"}
    assert result["solarize"] == {int(25.6 * m) for m in (2, 3, 4, 8, 10)}
    assert (v0.ops == v0.names.index("rotate")).double().sum() / 40_000 == pytest.approx(
        (4 * 0.6 + 0.8 + 1 + 0.4) / 25, abs=0.01
    )
    assert len(drawn("v0-mstd0.5")[1]["rotate"]) > 100


def test_augmix():
    plan, result = drawn("augmix-m5-w4-d2-mstd0", 500)
    assert len(plan.ops) == 5 * 500
    assert {*((plan.ops[500:] >= 0).sum(1)).tolist()} == {2}
    assert set(result) == LABEL_KEEPING - {"invert", "identity"} | {"mixup"}
    assert result["translate_x"] == {0.15, -0.15}  # half of 0.3 of the side
    assert result["posterize"] == {2.0}
    default = drawn("augmix", 500)[0]
    assert len(default.ops) == 4 * 500
    assert {*((default.ops[500:] >= 0).sum(1)).tolist()} == {1, 2, 3}
    angles = default.levels[default.ops == default.names.index("rotate")].abs()
    assert angles.max() <= 0.3
    assert len(angles.unique()) > 50  # uniform up to the magnitude of 3
    assert torch.equal(drawn("augmix-b0")[0].levels, drawn("augmix")[0].levels)
    assert torch.equal(drawn("augmix-b1")[0].levels, drawn("augmix")[0].levels)


@pytest.mark.parametrize(
    "text", ["rand-m9-n2-mstd0.5", "rand-m7-n3-mstd101-inc1-p0.8", "rand-tweights", "augmix-m5-w4-d2", "v0r"]
)
def test_policies_and_the_drop_in_accept_it(text):
    images, labels = make_images(3, 6, 3, 12, 10), torch.arange(6) % 3
    propose = outspan.policy(text)
    plan = propose(6, rng=rng.generator(0), candidates=2)
    assert len(plan) == 12
    assert torch.equal(outspan.apply(images, plan), apply_with_pillow(images, plan))
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(360, 3))
    for policy in (
        outspan.Plain(propose, classes=3, strength=0.5),
        outspan.Auto(propose, epochs=100, steps=100, classes=3),
        outspan.Uncertain(model, propose, candidates=2),
    ):
        assert policy(images, labels, step=0).inputs.shape == (6, 3, 12, 10)
    assert dropin.Augment(propose, seed=0)(images, step=0).shape == images.shape


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rnd-m9", "policy 'rnd-m9': unknown name 'rnd' at character 1 (known: rand, augmix, original, originalr, v0, v0r)"),
        ("", "unknown name '' at character 1"),
        ("rand-m9-x3", "policy 'rand-m9-x3': 'x3' at character 9 is unknown (known: m, n, p, mstd, mmax, inc, tweights)"),
        ("v0-mstd1-m9", "'m9' at character 10 is unknown (known: mstd)"),
        ("rand-m9-m8", "'m8' at character 9 sets 'm' a second time: remove one"),
        ("rand-m", "'m' at character 6 is wrong: after 'm' comes a whole number from 0 to 1,000"),
        ("rand-n2.5", "'n2.5' at character 6 is wrong: after 'n' comes a whole number from 0 to 100"),
        ("rand-m9-", "'' at character 9 is unknown"),
        ("rand-M9", "'M9' at character 6 is unknown"),
        ("rand-p1.5", "'p1.5' at character 6 is wrong: after 'p' comes a number in [0, 1]"),
        ("rand-mstdinf", "'mstdinf' at character 6 is unknown"),
        ("rand-mstd1e9", "'mstd1e9' at character 6 is wrong"),
        ("rand-inc", "'inc' at character 6 is wrong: after 'inc' comes 0 or 1"),
        ("rand-inc2", "'inc2' at character 6 is wrong: after 'inc' comes 0 or 1"),
        ("augmix-w0", "'w0' at character 8 is wrong: after 'w' comes a whole number from 1 to 100"),
        ("augmix-t3a", "'t3a' at character 8 is unknown (known: m, w, d, a, b, mstd)"),
        ("w0", "unknown name 'w0' at character 1"),
        ("rand-w0", "'w0' at character 6 was removed from timm"),
        ("rand-tfoo", "'tfoo' at character 6 is unknown (known: m, n, p, mstd, mmax, inc, tweights)"),
        ("rand-tweights1", "'tweights1' at character 6 is wrong: after 'tweights' comes nothing"),
        ("rand-n3-t3aw", "'t3aw' at character 9 needs a Gaussian blur"),
        ("3a-mstd0.5", "'3a' at character 1 needs a Gaussian blur"),
        ("rand-n16-tweights", "n must be at most 15 with 'tweights', got 16"),
        ("augmix-d-1", "'d' at character 8 is wrong"),
        ("augmix-a0", "'a0' at character 8 is wrong: after 'a' comes a number in (0, 1e+06]"),
        ("rand-m" + "9" * 5000, "at character 6 is wrong"),
        (9, "policy takes a text such as 'rand-m9-mstd0.5', got 9"),
    ],
)
def test_unknown_parts_are_refused_with_their_position(unchecked, text, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        outspan.policy(text)
    assert message in str(error.value)


def test_every_option_changes_the_draws():
    values = {"m": "m4", "n": "n3", "p": "p1", "mstd": "mstd1", "mmax": "mmax3", "inc": "inc1", "tweights": "tweights"}
    augmix = {"m": "m4", "w": "w2", "d": "d2", "a": "a3", "mstd": "mstd1"}
    for name, options in OPTIONS.items():
        parts = values if name == "rand" else augmix if name == "augmix" else {"mstd": "mstd1"}
        assert {*options} == {*parts, *({"b"} if name == "augmix" else ())}  # b only changes how timm rounds
        plain = outspan.policy(name)(50, rng=rng.generator(0)).to_json()
        assert all(outspan.policy(f"{name}-{part}")(50, rng=rng.generator(0)).to_json() != plain for part in parts.values())
