"""The cells of the tables of the paper: the recipe of each cell, and the printed result."""

from dataclasses import replace

import pytest

from outspan.config import Recipe, read_recipe
from outspan.data.sets import load
from outspan.files import HOME
from outspan.models import build
from outspan.policies.table import build_policy
from outspan.reproduce.cells import Cell
from outspan.reproduce.methods import METHODS, recipe_of
from outspan.reproduce.paper import ROWS, find_item
from outspan.transforms.normalize import Normalize


def test_every_row_has_a_recipe_for_its_data():
    for row, name in ROWS.items():
        recipe = read_recipe(HOME / "recipes" / "paper" / f"{name}.toml")
        assert recipe.data == row.split("/")[0]
        assert (recipe.candidates, recipe.keep) == ((8, 4) if recipe.data == "imagenet" else (4, 1))


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("method", METHODS)
def test_every_cell_has_a_recipe_that_can_be_built(row, method, tmp_path):
    file = tmp_path / "policy"
    numbers = [5] * 60
    file.write_text(repr(["1", "1", 1, 1, numbers, numbers]) if method == "pba" else "[[['Invert', 1, 1], ['Color', 1, 1]]]")
    recipe = recipe_of(find_item("table-3"), row, method, file=str(file))
    data = load("digits")
    policy = build_policy(recipe, build("mlp", data.train.shape, 10), data, Normalize((0.5,), (0.2,)))
    assert len(policy(data.train.images[:2], data.train.labels[:2], step=0).targets) >= 2
    base = read_recipe(HOME / "recipes" / "paper" / f"{ROWS[row]}.toml")
    for key in ("data", "model", "epochs", "batch", "lr", "weight_decay", "schedule"):
        assert getattr(recipe, key) == getattr(base, key)


def test_methods_have_the_policies_of_their_names():
    def recipe(method: str, item: str = "table-3") -> Recipe:
        return recipe_of(find_item(item), "cifar10/wrn-28-10", method)

    assert (recipe("ra").policy, recipe("ra").depth, recipe("ra").magnitude, recipe("ra").defaults) == (
        "randaugment", 3, 5.0, "cifar-cutout",
    )  # fmt: skip
    assert (recipe("baseline").policy, recipe("baseline").defaults) == ("baseline", "none")
    assert (recipe("uncertain").candidates, recipe("uncertain").keep, recipe("uncertain").defaults) == (4, 1, "cifar")
    assert (recipe("uncertain", "figure-4").candidates, recipe("uncertain", "figure-4").keep) == (8, 4)
    assert (recipe("adv-aa").policy, recipe("adv-aa").adversaries) == ("adversarial", 8)
    assert recipe_of(find_item("table-3"), "imagenet/resnet-50", "aa").defaults == "flip"


def test_baselines_apply_the_transforms_of_the_paper():
    """Section 5.1: crop and flip on CIFAR, cutout on every image of SVHN, flips after the crop of the reader for ImageNet."""
    expected = {"cifar10/wrn-28-10": {"random_crop", "horizontal_flip"}, "svhn/wrn-28-10": {"cutout"}}
    expected["imagenet/resnet-50"] = {"horizontal_flip"}
    for row, names in expected.items():
        recipe = recipe_of(find_item("table-3"), row, "baseline")
        data = replace(load("digits"), name=recipe.data)
        policy = build_policy(recipe, build("mlp", data.train.shape, 10), data, Normalize((0.5,), (0.2,)))
        plan = policy(data.train.images[:50], data.train.labels[:50], step=0).drawn
        assert {plan.names[op] for op in plan.ops.unique().tolist() if op >= 0} == names
        if row.startswith("svhn"):
            assert bool((plan.ops >= 0).any(1).all())


@pytest.mark.parametrize(
    ("row", "method", "message"),
    [
        ("cifar10/wrn-28", "ra", "unknown row 'cifar10/wrn-28', did you mean 'cifar10/wrn-28-10'"),
        ("cifar10/wrn-28-10", "rand", "unknown method 'rand', did you mean 'random'"),
        ("cifar10/wrn-28-10", "pba", "pba needs --policy-file pba=FILE: schedules/rcifar10_16_wrn.txt"),
    ],
)
def test_unknown_cells_are_refused(row, method, message):
    with pytest.raises(ValueError, match=message):
        recipe_of(find_item("table-3"), row, method)
    with pytest.raises(ValueError, match="unknown table or figure 'table-9', did you mean"):
        find_item("table-9")


def test_a_cell_prints_its_mean_and_standard_deviation():
    assert Cell("a", "b", "-").percent == "-"
    assert Cell("a", "b", "-", (0.5,)).percent == "50.00"
    assert Cell("a", "b", "-", (0.5, 0.52)).percent == "51.00 ± 1.41"
