"""Strength and finish, for every policy."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import outspan
from outspan import rng
from outspan.config import Recipe
from outspan.data.sets import load
from outspan.policies.published import augmix, randaugment, trivialaugment
from outspan.policies.strength import scale, strength_at
from outspan.policies.table import POLICIES, build_policy
from outspan.transforms.normalize import Normalize
from outspan.transforms.table import find

PROPOSALS = {
    "uniform": outspan.uniform(depth=3),
    "randaugment": randaugment(2, 9),
    "trivialaugment": trivialaugment(),
    "augmix": augmix(),
    "blend": outspan.blend(outspan.Step("rotate", -1, 1), outspan.Step("posterize", 0, 1)),
}


def applied(plan) -> float:
    """Return the fraction of a plan's entries that apply a transform."""
    return float((plan.ops >= 0).double().mean())


@pytest.mark.parametrize("name", PROPOSALS)
@pytest.mark.parametrize("strength", [0.25, 0.5, 1.0, 1.5, 4.5])
def test_levels_and_probabilities_are_scaled(name, strength):
    plan = PROPOSALS[name](4_000, rng=rng.generator(0, "plan"))
    scaled = scale(plan, strength, [rng.generator(0, "strength")])
    kept = scaled.ops >= 0
    assert bool((scaled.ops[kept] == plan.ops[kept]).all())
    expected = applied(plan) * min(strength, 1)
    error = (expected * (1 - expected) / plan.ops.numel()) ** 0.5
    assert abs(applied(scaled) - expected) <= 5 * error
    lowest, highest = np.array([find(name).levels for name in plan.names], dtype=np.float32)[scaled.ops[kept].numpy()].T
    wanted = np.clip(plan.levels[kept].numpy() * np.float32(strength), lowest, highest)
    assert np.array_equal(scaled.levels[kept].numpy(), wanted)


def test_several_batches_are_scaled_like_single_batches():
    propose = outspan.uniform(depth=2)
    plans = [propose(6, rng=rng.generator(seed)) for seed in (1, 2)]
    alone = [scale(plan, 0.5, [rng.generator(seed, "strength")]) for seed, plan in zip((1, 2), plans, strict=True)]
    both = scale(outspan.Plan.cat(plans), 0.5, [rng.generator(seed, "strength") for seed in (1, 2)])
    assert torch.equal(both.ops, torch.cat([plan.ops for plan in alone]))


def make(recipe: Recipe):
    digits = load("digits")
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    return build_policy(recipe, model, digits, Normalize((0.1,), (0.3,))), digits.train


@pytest.mark.parametrize("name", sorted(POLICIES.keys() - {"fastautoaugment", "pba"}))
def test_the_finish_and_strength_0_apply_only_the_defaults(name):
    transforms = "rotate,posterize" if name == "blend" else "paper16"
    recipe = Recipe(policy=name, transforms=transforms, epochs=50, batch=5_000, finish=0.4, adversaries=2)  # 50 steps
    policy, train = make(recipe)
    images, labels = train.images[:20], train.labels[:20]
    rows = POLICIES[name].rows(recipe)
    plain = Normalize((0.1,), (0.3,))(images).repeat_interleave(rows, 0)
    augments = name not in ("none", "baseline")
    for step, changes in {0: augments, 29: augments, 30: False, 49: False}.items():
        batch = policy(images, labels, step=step)
        assert torch.equal(batch.inputs, plain) == (not changes), step
        if not changes:
            assert batch.chosen is None  # nothing is scored
    weak, _ = make(replace(recipe, strength=0.0, finish=0.0))
    assert torch.equal(weak(images, labels, step=0).inputs, plain)


def test_the_defaults_keep_their_strength_in_the_finish():
    policy, train = make(Recipe(policy="random", defaults="flip", epochs=1, batch=1_000, finish=0.4))
    inputs = policy(train.images[:100], train.labels[:100], step=4).inputs
    plain = Normalize((0.1,), (0.3,))(train.images[:100])
    flipped = (inputs == plain.flip(-1)).flatten(1).all(1)
    assert bool(((inputs == plain).flatten(1).all(1) | flipped).all())
    assert 25 < int(flipped.sum()) < 75


def test_the_controller_does_not_learn_from_the_finish():
    policy = outspan.Adversarial(update_every=2, policies=2, classes=10, finish=0.5, steps=8)
    for step in range(4):
        policy.learn(torch.tensor([1.0, 2.0]), step=step)
    before = {key: value.clone() for key, value in policy.state_dict().items()}
    for step in range(4, 8):
        policy.learn(torch.tensor([1.0, 2.0]), step=step)
    assert all(torch.equal(value, before[key]) for key, value in policy.state_dict().items())


def test_the_first_step_of_the_finish():
    assert [strength_at(step, 1.0, 0.1, 10) for step in (8, 9)] == [1.0, 0.0]
    assert strength_at(10**9, 0.7, 0.0, None) == 0.7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": -0.1}, r"strength is out of range, got -0.1 \(allowed: \[0, 4.5\]\)"),
        ({"strength": 4.6}, r"strength is out of range, got 4.6"),
        ({"strength": float("nan")}, r"strength is out of range, got nan"),
        ({"finish": 1.0, "steps": 10}, r"finish is out of range, got 1.0 \(allowed: \[0, 1\)\)"),
        ({"finish": -0.1, "steps": 10}, "finish is out of range"),
        ({"finish": 0.1}, r"finish needs steps, the total number of steps of the run: add steps=\.\.\., got finish=0.1"),
        ({"finish": 0.1, "steps": 0}, "steps must be an integer of at least 1"),
        ({"finish": 0.1, "steps": 2.5}, "steps must be an integer of at least 1, .* got 2.5"),
        ({"finish": "a", "steps": 10}, "finish must be a number, got 'a'"),
    ],
)
def test_values_out_of_range_are_refused(options, message, unchecked):
    with pytest.raises(ValueError, match=message):
        outspan.Plain(outspan.uniform(), classes=10, **options)


def test_recipes_refuse_values_out_of_range():
    with pytest.raises(ValueError, match=r"finish is out of range, got 1 \(allowed: \[0, 1\)\)"):
        Recipe(finish=1)
    assert max(transform.limit for transform in outspan.TRANSFORMS.values()) == 4.5  # the limit of the recipe
