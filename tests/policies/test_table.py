"""The table of policies: the listed recipe keys of a policy are those that change its batches."""

from dataclasses import replace

import pytest
import torch

from outspan.config import Recipe
from outspan.data.sets import load
from outspan.policies.auto import Auto
from outspan.policies.table import POLICIES, build_policy, ignored_keys
from outspan.transforms.normalize import Normalize

CHANGES = {
    "transforms": "geometric",
    "depth": 1,
    "probability": 0.9,
    "profile": "released",
    "candidates": 5,
    "keep": 2,
    "select": "proportional",
    "score": "excess",
    "score_every": 2,
    "magnitude": 20.0,
}


def make_inputs(recipe: Recipe) -> list[torch.Tensor]:
    """Return the inputs that a policy makes of a few images at two steps."""
    digits = load("digits")
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    policy = build_policy(recipe, model, digits, Normalize((0.1,), (0.3,)))
    return [policy(digits.train.images[:40], digits.train.labels[:40], step=step).inputs for step in (0, 1)]


def test_partners_by_class_are_refused_with_several_processes():
    problem = (
        "same_class is for a single process, got same_class=0.5 and 2 processes: leave same_class out, or start one process"
    )
    with pytest.raises(ValueError, match=problem):
        build_policy(
            Recipe(policy="mixup", same_class=0.5), torch.nn.Identity(), load("digits"), Normalize((0.1,), (0.3,)), world=2
        )


@pytest.mark.parametrize("name", sorted(POLICIES.keys() - {"fastautoaugment", "pba", "adversarial"}))
def test_a_key_changes_only_the_policies_that_list_it(name):
    recipe = Recipe(policy=name, transforms="rotate,posterize" if name == "blend" else "paper16")
    usual = make_inputs(recipe)
    for key, value in CHANGES.items():
        result = make_inputs(replace(recipe, **{key: value}))
        same = all(one.shape == other.shape and torch.equal(one, other) for one, other in zip(result, usual, strict=True))
        assert same == (key not in POLICIES[name].keys), key
        assert ignored_keys([key, "lr"], name) == ([key] if same else [])


def test_every_key_of_a_policy_is_tested():
    elsewhere = {
        "policy_file",
        "policy_epochs",
        "adversaries",
        "subpolicies",
        "controller_lr",
        "entropy",
    }  # test_files, test_adversarial
    assert {key for spec in POLICIES.values() for key in spec.keys} == CHANGES.keys() | elsewhere


@pytest.mark.parametrize(
    ("transforms", "expected"),
    [("rotate", {"rotate"}), ("rotate,invert", {"rotate"}), ("rotate,cutout", {"rotate", "cutout"}), ("invert", {"invert"})],
)
def test_auto_applies_all_transforms_of_a_recipe_that_has_fewer_than_depth(transforms, expected):
    digits, recipe = load("digits"), Recipe(policy="auto", transforms=transforms, depth=3, epochs=100)
    policy = build_policy(recipe, torch.nn.Identity(), digits, Normalize((0.1,), (0.3,)))
    plan = policy(digits.train.images[:8], digits.train.labels[:8], step=0).plan
    applied = [{plan.names[op] for op in row if op >= 0} for row in plan.ops.tolist()]
    assert applied == [set()] + [expected] * 7  # one in 16 samples has no transforms


@pytest.mark.parametrize(
    ("keys", "tried"),
    [
        ({}, ["random_crop", "horizontal_flip"]),
        ({"transforms": "geometric"}, []),  # other transforms: only these
        ({"crop": "resized"}, ["horizontal_flip"]),  # cropped when the files are read
        ({"defaults": "imagenet"}, []),  # it has a crop and a flip
        ({"defaults": "svhn"}, ["horizontal_flip"]),
    ],
)
def test_auto_tries_crop_and_flip_unless_the_recipe_decides(keys, tried):
    policy = build_policy(Recipe(policy="auto", **keys), torch.nn.Identity(), load("digits"), Normalize((0.1,), (0.3,)))
    assert isinstance(policy, Auto)
    assert list(policy.safe) == tried


def test_transforms_of_texts_are_refused_for_images():
    digits, model, normalize = load("digits"), torch.nn.Identity(), Normalize((0.1,), (0.3,))
    for policy in ("uncertain", "random", "sequence"):
        recipe = Recipe(policy=policy, transforms="rotate,switchout")
        with pytest.raises(ValueError, match="transform 'switchout' is not for images: use one of identity, auto_contrast"):
            build_policy(recipe, model, digits, normalize)
    build_policy(Recipe(policy="randaugment", transforms="switchout"), model, digits, normalize)  # an unused key
