"""Partners by class: the requested fraction has the same class, and partners are uniform within the batch."""

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import seeds
from outspan import Plain, Plan, augmix, mixup, rng, sequence, uniform
from outspan.config import Recipe
from outspan.data.sets import load
from outspan.policies.partners import partners_by_class
from outspan.policies.table import build_policy
from outspan.transforms.normalize import Normalize


def redraw(plan: Plan, labels: torch.Tensor, fraction: float, *seeds: int) -> Plan:
    return partners_by_class(plan, labels, fraction, [rng.generator(seed, "partners") for seed in seeds or (0,)])


@given(seed=seeds, fraction=st.sampled_from([0.0, 1.0]), classes=st.integers(1, 4), size=st.integers(1, 9))
def test_partners_have_the_requested_class_if_possible(seed, fraction, classes, size):
    labels = torch.from_numpy(rng.generator(seed, "labels").integers(0, classes, size))
    plan = redraw(mixup()(size, rng=rng.generator(seed)), labels, fraction, seed)
    partners = plan.partners[:, 0]
    for i, label in enumerate(labels.tolist()):
        allowed = [j for j in range(size) if (labels[j] == label) == (fraction == 1) and j != i]
        assert int(partners[i]) in (allowed or [i])


def test_fractions_are_as_requested_and_partners_are_uniform():
    labels = torch.tensor([0, 0, 0, 1, 1, 2]).repeat(4000)
    plan = redraw(mixup()(len(labels), rng=rng.generator(1)), labels, 0.25)
    same = (labels[plan.partners[:, 0]] == labels).double().mean()
    assert same == pytest.approx(0.25, abs=0.01)
    for fraction, expected in ((1.0, {1, 2}), (0.0, {3, 4, 5})):
        counts = Counter(
            int(redraw(mixup()(6, rng=rng.generator(i)), labels[:6], fraction, i).partners[0, 0]) for i in range(900)
        )
        assert set(counts) == expected
        assert all(abs(count - 900 / len(expected)) < 90 for count in counts.values())


def test_batches_have_partners_of_their_own_and_separate_seeds():
    labels = torch.tensor([0, 0, 1, 1, 0, 1, 0, 1])
    policy = Plain(mixup(), classes=2, same_class=0.5)
    both = policy.draw_several(labels, seeds=[3, 8], step=5)
    for i, seed in enumerate((3, 8)):
        alone = replace(policy, seed=seed).draw_several(labels[4 * i : 4 * i + 4], seeds=[seed], step=5)
        assert torch.equal(both.partners[4 * i : 4 * i + 4] - 4 * i, alone.partners)
    batch = replace(policy, seed=8)(torch.zeros((4, 1, 3, 3), dtype=torch.uint8), labels[4:], step=5)
    assert torch.equal(batch.drawn.partners, both.partners[4:] - 4)


def test_rows_mixed_with_their_own_image_are_unchanged():
    labels = torch.tensor([0, 1, 0])
    plan = augmix()(3, rng=rng.generator(0))
    assert redraw(plan, labels, 1.0).to_json() == plan.to_json()
    after = plan.then(sequence()(3, rng=rng.generator(0))).then(mixup()(3, rng=rng.generator(0)))
    drawn = redraw(after, labels, 1.0)
    assert drawn.partners[:3, -1].tolist() == [2, 1, 0]
    assert torch.equal(drawn.partners[:, :-1], after.partners[:, :-1])
    assert redraw(uniform(2, transforms=("rotate", "blur"))(3, rng=rng.generator(0)), labels, 0.0).partners.max() == -1


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="same_class needs labels that are class indices"):
        redraw(mixup()(2, rng=rng.generator(0)), torch.tensor([0, 1]).repeat(2, 1), 0.5)
    for fraction in (-0.5, 1.5, float("nan")):
        with pytest.raises(ValueError, match="same_class must lie in"):
            Plain(mixup(), classes=2, same_class=fraction)
        with pytest.raises(ValueError, match="same_class is out of range"):
            Recipe(same_class=fraction)


@pytest.mark.parametrize("keys", [{}, {"policy": "uncertain"}])
def test_policies_that_use_the_model_refuse_same_class_and_name_one_that_takes_it(keys):
    build = partial(build_policy, model=torch.nn.Identity(), data=load("digits"), preprocess=Normalize((0.0,), (1.0,)))
    message = r"same_class is for policies that do not use the model, got policy '\w+': .*--policy random, or policy=\"random\""
    with pytest.raises(ValueError, match=message):
        build(Recipe(same_class=0.5, **keys))
    build(Recipe(same_class=0.5, policy="random"))
