"""Proposals: the distribution of drawn plans, and their reproducibility."""

import itertools
import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from conftest import make_images, seeds
from outspan import PAPER_16, TRANSFORMS, Proposal, Step, any_of, apply, augmix, mix_labels, rng, sequence, uniform
from outspan.policies.proposals import blend, over_range
from outspan.policies.sampler import draw_together, join_batches, merge


def chi2(counts: list[int]) -> float:
    mean = sum(counts) / len(counts)
    return sum((count - mean) ** 2 / mean for count in counts)


def test_every_ordered_pair_is_equally_likely():
    names = PAPER_16[:5]
    plan = uniform(2, transforms=names, probability=1.0)(40_000, rng=rng.generator(0))
    counts = Counter(map(tuple, plan.ops.tolist()))
    assert set(counts) == set(itertools.permutations(range(5), 2))
    assert chi2(list(counts.values())) < 50  # 19 degrees of freedom: p < 2e-4


def test_with_replacement_pairs_may_repeat():
    plan = uniform(2, transforms=PAPER_16[:5], probability=1.0, replacement=True)(40_000, rng=rng.generator(0))
    counts = Counter(map(tuple, plan.ops.tolist()))
    assert len(counts) == 25
    assert chi2(list(counts.values())) < 57


@given(seed=seeds, depth=st.integers(0, 16))
def test_transforms_of_a_row_are_distinct(seed, depth):
    plan = uniform(depth, probability=1.0)(7, rng=rng.generator(seed))
    assert all(len(set(row)) == depth for row in plan.ops.tolist())


def test_each_transform_is_applied_with_probability_one_half():
    plan = uniform(2)(40_000, rng=rng.generator(0))
    applied = Counter((plan.ops >= 0).sum(1).tolist())
    for count, fraction in ((0, 0.25), (1, 0.5), (2, 0.25)):
        assert abs(applied[count] / 40_000 - fraction) < 0.01


def test_levels_are_uniform_over_the_range():
    plan = uniform(1, probability=1.0)(160_000, rng=rng.generator(0))
    for op, name in enumerate(plan.names):
        levels = plan.levels[plan.ops == op]
        if not TRANSFORMS[name].graded:
            assert not levels.any()
            continue
        low = -1.0 if TRANSFORMS[name].signed else 0.0
        counts = torch.histc(levels, bins=20, min=low, max=1.0).tolist()
        assert sum(counts) == len(levels)
        assert chi2(counts) < 55, name


@given(seed=seeds, size=st.integers(0, 6), candidates=st.integers(1, 4))
def test_partners_are_rows_of_other_images(seed, size, candidates):
    plan = uniform(2, transforms=("mixup", "cutmix"), probability=1.0)(size, rng=rng.generator(seed), candidates=candidates)
    assert plan.source.tolist() == [image for image in range(size) for _ in range(candidates)]
    same = plan.source[plan.partners] == plan.source.unsqueeze(1)
    assert same.all() if size == 1 else not same.any()


def test_partners_are_uniform_over_the_other_rows():
    draw = uniform(1, transforms=("mixup",), probability=1.0)
    counts = Counter(int(draw(4, rng=rng.generator(i), candidates=2).partners[2, 0]) for i in range(1500))
    assert set(counts) == {0, 1, 4, 5, 6, 7}
    assert chi2(list(counts.values())) < 24  # 5 degrees of freedom: p < 2.5e-4


def test_places_are_uniform():
    plan = uniform(1, transforms=("cutout",), probability=1.0)(20_000, rng=rng.generator(0))
    for i in range(4):
        assert chi2(torch.histc(plan.places[:, 0, i], bins=20, min=0, max=1).tolist()) < 55


@given(seed=seeds)
def test_a_plan_depends_only_on_the_generator(seed):
    first, again = (uniform(3)(5, rng=rng.generator(seed, "x"), candidates=2) for _ in range(2))
    assert first.to_json() == again.to_json()


@pytest.mark.parametrize(
    "propose",
    [
        uniform(2, transforms=tuple(TRANSFORMS)),
        any_of([Step("cutout", 0, 1, 0.5), Step("rotate", 0, 1, mirrored=True, bins=5), Step("cutmix")], 2),
        sequence(),
        augmix(),
        blend(over_range("rotate", 0.5), over_range("cutout")),
    ],
)
def test_batches_drawn_together_equal_batches_drawn_alone(propose):
    generators = [[rng.generator(seed, "x") for seed in (4, 0, 9)] for _ in range(2)]
    alone = join_batches([propose(5, rng=generator) for generator in generators[0]], 5)
    assert draw_together(propose, 5, generators[1]).to_json() == alone.to_json()


@given(seed=seeds, name=st.sampled_from(sorted(TRANSFORMS)))
def test_one_transform_is_a_sequence_of_one(seed, name):
    drawn = (draw(7, rng=rng.generator(seed)) for draw in (sequence(over_range(name, 0.5)), uniform(1, transforms=(name,))))
    one, other = (plan.to_json() for plan in drawn)
    assert one == other


def test_proposals_of_the_same_depth_are_merged():
    mirrored = any_of([Step("cutout", 0, 1, 0.5), Step("rotate", 0, 1, mirrored=True, bins=5), Step("cutmix")], 1)
    several, counts = [sequence(), uniform(1), sequence(Step("random_crop")), mirrored], [2, 1, 3, 2]
    images = make_images(0, 40, 3, 8, 8)
    merged = pickle.loads(pickle.dumps(merge(several, counts)))  # noqa: S301 - policies are sent to other processes
    addresses = [(i, j) for i, count in enumerate(counts) for j in range(count)]
    together = draw_together(merged, 5, [rng.generator(*address) for address in addresses])
    alone = join_batches([several[i](5, rng=rng.generator(i, j)) for i, j in addresses], 5)
    assert torch.equal(apply(images, together), apply(images, alone))
    for field in ("levels", "places", "partners"):  # the drawn values, where a transform is applied
        does = alone.ops >= 0
        assert torch.equal(getattr(together, field)[does], getattr(alone, field)[does])
    assert len(draw_together(merge([sequence(), sequence()], [1, 1]), 5, [rng.generator(0)] * 2)) == 10
    assert merge([uniform(1), uniform(2)], [1, 1]) is None
    assert merge([uniform(1), augmix()], [1, 1]) is None


@given(seed=seeds)
def test_a_blend_matches_pillow(seed):
    images = make_images(seed, 4, 3, 9, 8)
    both = blend(over_range("rotate", 0.7), over_range("solarize", 0.7))
    plan = both(4, rng=rng.generator(seed), candidates=2)
    draw = rng.generator(seed)
    alone = [apply(images, sequence(over_range(name, 0.7))(4, rng=draw, candidates=2)) for name in ("rotate", "solarize")]
    first, second = (some.permute(0, 2, 3, 1).numpy() for some in alone)
    expected = [np.array(Image.blend(*map(Image.fromarray, pair), 0.5)) for pair in zip(first, second, strict=True)]
    assert (apply(images, plan).permute(0, 2, 3, 1).numpy() == np.stack(expected)).all()
    labels = torch.tensor([2, 0, 1, 2])  # each image is mixed with itself, so its label is unchanged
    assert torch.equal(mix_labels(labels, plan, 3, (9, 8)), torch.eye(3)[labels.repeat_interleave(2)])


def test_a_blend_of_three_has_equal_weights():
    images = torch.full((1, 1, 8, 8), 90, dtype=torch.uint8)
    plan = blend(Step("identity"), Step("identity"), Step("invert"))(1, rng=rng.generator(0))
    assert apply(images, plan).unique().tolist() == [(90 + 90 + 165) // 3]
    for steps in ([Step("invert")], [Step("invert"), Step("mixup")]):
        with pytest.raises(ValueError, match="2 or more transforms that keep labels"):
            blend(*steps)


def test_posterize_of_the_released_code_keeps_0_to_3_bits_equally_often():
    plan = uniform(1, transforms=("posterize",), probability=1.0, profile="released")(4000, rng=rng.generator(0))
    bits = Counter((8 - 4 * plan.levels).flatten().tolist())
    assert bits.keys() == {0.0, 1.0, 2.0, 3.0}
    assert chi2(list(bits.values())) < 16.27  # 3 degrees of freedom: p > 0.001
    others = [
        uniform(2, profile=profile, transforms=PAPER_16[:8])(50, rng=rng.generator(1)) for profile in ("paper", "released")
    ]
    assert others[0].to_json() == others[1].to_json()


def test_every_function_returns_a_proposal():
    assert isinstance(uniform(), Proposal)


@pytest.mark.parametrize("function", [sequence, blend])
@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (("horizontal_flip",), r"takes steps, got 'horizontal_flip': write {}\(Step\('horizontal_flip'\)\)"),
        ((Step("invert"), "rotate"), r"takes steps, got 'rotate': write {}\(Step\('rotate'\)\)"),
        (("horizontal_flop",), "unknown transform 'horizontal_flop', did you mean 'horizontal_flip'?"),
        (([Step("invert"), Step("rotate")],), r"takes steps, got \[Step\(.*: write {}\(\*steps\)"),
        ((["invert", "rotate"],), r"write {}\(\*steps\)"),
        ((uniform(2), uniform(2)), r"takes steps, got <.*: write {}\(Step\(name\), \.\.\.\)"),
        ((None,), "takes steps, got None"),
    ],
)
def test_invalid_steps_are_refused_with_a_correct_call(function, steps, message, unchecked):
    with pytest.raises(ValueError, match=message.replace("{}", function.__name__)):
        function(*steps)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 17}, r"depth must lie in \[0, 16\]"),
        ({"depth": -1}, "depth must be at least 0, got -1"),
        ({"depth": 1, "transforms": ()}, "depth must lie in"),
        ({"profile": "authors"}, "profile must be one of paper, released, got 'authors'"),
        ({"probability": 1.5}, r"probability must lie in \[0, 1\], got 1.5"),
        ({"transforms": ("rotat",), "depth": 1}, "did you mean 'rotate'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        uniform(**arguments)
