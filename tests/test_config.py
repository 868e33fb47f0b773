"""Recipes: their types, defaults, files, and errors."""

import contextlib
import copy
import json
import math
import pickle
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import outspan
from outspan import Normalize, models
from outspan.comparison.grid import build_grid, points
from outspan.config import (
    DEFAULTS,
    KEYS,
    RENAMED,
    Recipe,
    build_recipe,
    changed_keys,
    read_changes,
    read_recipe,
    read_values,
    scaled,
    stored_recipe,
    with_values,
    write_recipe,
)
from outspan.data.sets import Data
from outspan.data.splits import InMemory
from outspan.limits import LIMITS
from outspan.policies.table import build_policy
from outspan.recipe_keys import RecipeKeys
from outspan.training import Stopped
from outspan.training.train import train


def test_a_recipe_is_read_from_toml(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text('data = "mnist"\nepochs = 3\nlr = 1\n')
    assert read_recipe(path) == Recipe(data="mnist", epochs=3, lr=1.0)


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(),
        Recipe(data='C:\\my "pictures"\té', lr=1e-7, weight_decay=5.0, same_class=0.25, select="2"),
        Recipe(policy="sequence", transforms="rotate,cutout", epochs=100),
    ],
)
def test_a_written_recipe_is_read_unchanged(recipe, tmp_path):
    path = tmp_path / "r.toml"
    path.write_text(write_recipe(recipe, "one line", "another"), encoding="utf-8")
    assert path.read_text(encoding="utf-8").startswith("# one line\n# another\n")
    assert read_recipe(path) == recipe


@pytest.mark.parametrize("policy", [Recipe().policy, "uncertain"])
def test_a_written_recipe_names_its_policy(policy, tmp_path):
    path = tmp_path / "r.toml"
    path.write_text(write_recipe(Recipe(policy=policy)))
    values = read_values(path)
    assert values["policy"] == policy  # also if it is the default, which may change
    assert "seed" not in values
    path.write_text("")  # files of older versions leave a default policy out
    assert read_recipe(path).policy == Recipe().policy


def test_adamw_has_its_own_learning_rate(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text('optimizer = "adamw"')
    assert build_recipe(path).lr == build_recipe(None, {"optimizer": "adamw"}).lr == 1e-3
    assert build_recipe(path, {"lr": 0.1}).lr == build_recipe(path, {"optimizer": "sgd"}).lr == 0.1
    text = write_recipe(build_recipe(path, {"lr": 0.1}))
    path.write_text(text)
    assert read_recipe(path).lr == 0.1
    for optimizer in ("adamw", "sgd"):
        assert build_recipe(None, {"data": "x", "optimizer": optimizer}, lambda name: "texts").lr == 2e-5


def test_a_recipe_without_lr_has_the_rate_of_its_optimizer():
    assert (Recipe().lr, Recipe(optimizer="adamw").lr, Recipe(optimizer="adamw", lr=0.1).lr) == (0.1, 1e-3, 0.1)
    assert build_recipe(Recipe(), {"optimizer": "adamw"}).lr == 1e-3
    assert build_recipe(Recipe(optimizer="adamw"), {"optimizer": "sgd"}).lr == 0.1
    assert build_recipe(Recipe(lr=0.1), {"optimizer": "adamw"}).lr == 0.1
    with pytest.raises(ValueError, match="a grid over optimizers needs lr"):
        build_grid(Recipe(), {"optimizer": ["sgd", "adamw"]})
    assert build_recipe(build_recipe(Recipe()), {"optimizer": "adamw"}).lr == 0.1  # a recipe that was built is complete


@pytest.mark.parametrize("restore", [lambda recipe: recipe, copy.copy, lambda recipe: pickle.loads(pickle.dumps(recipe))])  # noqa: S301
def test_keys_of_a_recipe_that_are_not_set_have_the_default_for_its_data(restore):
    recipe = restore(Recipe(data="reviews", epochs=20, lr=0.1))
    assert recipe == Recipe(data="reviews")
    assert hash(recipe) == hash(Recipe(data="reviews"))
    built = build_recipe(recipe, {"batch": 6}, lambda name: "texts" if name == "reviews" else "images")
    values = {"data": "reviews", "epochs": 20, "min_steps": 0, "lr": 0.1, "batch": 6}
    assert built == with_values(Recipe(), {**DEFAULTS["texts"], **values})
    assert build_recipe(built, {}, lambda name: "images") == built  # a recipe that was built is complete


def test_keywords_are_the_keys_of_a_recipe_with_their_types():
    types = {**RecipeKeys.__annotations__, "select": str, "channels": str, "class_weights": str}  # numbers are converted
    assert RecipeKeys.__annotations__["select"] == str | float
    assert types == {field.name: field.type for field in fields(Recipe)}
    assert all(type(getattr(Recipe(), key)) is type_ for key, type_ in types.items())
    assert not RecipeKeys.__required_keys__


def test_a_recipe_is_built_from_defaults_then_a_file_then_keywords(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text('data = "reviews"\nepochs = 7\nbatch = 5')
    built = build_recipe(str(path), {"batch": 6}, lambda name: "texts" if name == "reviews" else "images")
    assert built == with_values(Recipe(), {**DEFAULTS["texts"], "data": "reviews", "epochs": 7, "min_steps": 0, "batch": 6})
    assert build_recipe(path, {"batch": 6}) == Recipe(data="reviews", epochs=7, batch=6)
    assert build_recipe(Recipe(epochs=3), {"batch": 6}) == Recipe(epochs=3, batch=6)
    assert build_recipe() == Recipe()
    with pytest.raises(ValueError, match="unknown key 'epoch', did you mean 'epochs'"):
        build_recipe(None, {"epoch": 3})


def test_an_old_key_is_refused_with_its_new_name_but_read_from_stored_files(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text("share = 0.5")
    for build in (
        partial(read_recipe, path),
        partial(build_recipe, None, read_changes(["share=0.5"])),
        partial(build_recipe, Recipe(), {"share": 0.5}),
    ):
        with pytest.raises(ValueError, match="key 'share' is now called 'fraction'"):
            build()
    assert stored_recipe({"share": 0.5, "epochs": 3}) == Recipe(fraction=0.5, epochs=3)
    assert not set(RENAMED) & set(KEYS)
    assert set(RENAMED.values()) <= set(KEYS)


def test_text_is_converted_to_the_type_of_its_key():
    assert with_values(Recipe(), {"lr": "0.2", "epochs": "7", "select": "0.5"}) == Recipe(lr=0.2, epochs=7, select="0.5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch = 3", r"r\.toml: unknown key 'epoch', did you mean 'epochs'"),
        ("epochs = 3.5", "epochs must be a whole number, got 3.5"),
        ('epochs = "many"', "epochs must be a whole number, got 'many'"),
        ("data = 3", "data must be a name or a path, got 3: pass an outspan.data.sets.Data as splits="),
        ("model = 3", "model must be a string, got 3$"),
        ("transforms = ['rotate']", r"transforms must be a string, got \['rotate'\]: separate names by commas"),
        ("select = true", "select must be a string, got True"),
        ("epochs = true", "epochs must be a whole number, got True"),
        ("epochs = 0", r"epochs is out of range, got 0 \(allowed: 1 to 1,000,000\)"),
        ("keep = 5", r"keep is out of range, got 5 \(allowed: 1 to candidates, 4\)"),
        ("lr = nan", r"lr is out of range, got nan \(allowed: \(0, 1e\+06\]\)"),
        ('schedule = "step"', "schedule must be one of cosine, .*, got 'step'"),
        ("epochs = ", "not TOML"),
        ('crop = "left"', "crop must be one of centre, resized, got 'left'"),
        ("fraction = 0", r"fraction is out of range, got 0.0 \(allowed: \(0, 1\]\)"),
    ],
)
def test_invalid_recipes_are_refused(text, message, tmp_path):
    path = tmp_path / "r.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_recipe(path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": "3"}, "epochs must be a whole number, got '3'"),
        ({"lr": True}, "lr must be a number, got True"),
        ({"crop": 3}, "crop must be a string, got 3"),
        ({"data": (1, 2)}, r"data must be a name or a path, got \(1, 2\): pass an outspan.data.sets.Data as splits="),
        (
            {"model": torch.nn.Linear(1, 1)},
            r"model must be a string, got Linear\(.*\): use your own training loop, docs/loops.md",
        ),
        ({"policy": outspan.uniform()}, "policy must be a string, .*: use your own training loop, docs/loops.md"),
    ],
)
def test_a_recipe_refuses_a_wrong_type_by_name(values, message, unchecked):
    with pytest.raises(ValueError, match=message):
        Recipe(**values)


def test_a_power_a_path_and_another_spelling_are_accepted(tmp_path, unchecked):
    (tmp_path / "r.toml").write_text("select = 2")
    assert read_recipe(tmp_path / "r.toml").select == build_recipe(None, {"select": 2}).select == Recipe(select=2).select == "2"
    assert Recipe(data=Path("a/b")).data == build_recipe(None, {"data": Path("a/b")}).data == str(Path("a/b"))
    assert Recipe(crop="center") == Recipe(crop="centre")


NUMERIC = {key: type(getattr(Recipe(), key)) for key in KEYS if type(getattr(Recipe(), key)) in (int, float)}
EXTREMES = ("inf", "-inf", "nan", "1e320", "-1e320", "1e-320", "-1", "0", str(2**63), str(10**18), str(10**400), "9" * 5000)


@pytest.mark.parametrize("key", NUMERIC)
def test_extreme_values_are_accepted_or_refused_by_name(key, tmp_path, unchecked):
    refused = 0
    literal = [10**400, 10**5000, 2**63, -1, 0, 1e308, -1e308, float("inf"), float("nan"), None, [], "text"]
    for text in EXTREMES:
        (tmp_path / "r.toml").write_text(f"{key} = {text}")
        for make in (
            partial(build_recipe, None, {key: text}),
            partial(read_recipe, tmp_path / "r.toml"),
            *(partial(Recipe, **{key: value}) for value in literal),
        ):
            try:
                value = getattr(make(), key)
            except ValueError as error:
                refused += 1
                assert key in str(error) or "not TOML" in str(error)  # noqa: PT017
                assert len(str(error)) < 300  # noqa: PT017
            else:
                assert type(value) is NUMERIC[key] or value == int(value)
                assert -(2**63) <= value < 2**63
    assert refused > len(EXTREMES)


@pytest.mark.parametrize("key", NUMERIC)
def test_a_run_starts_at_the_limits_of_every_number(key, tmp_path, one_thread):
    allowed = LIMITS[key]
    policies = {
        "adversaries": "adversarial",
        "subpolicies": "adversarial",
        "controller_lr": "adversarial",
        "entropy": "adversarial",
    }
    policies |= {"magnitude": "randaugment", "same_class": "mixup", "candidates": "uncertain", "keep": "uncertain"}
    images, labels = torch.arange(12 * 16).view(12, 1, 4, 4).to(torch.uint8), torch.arange(12) % 2
    data = Data("few", InMemory(images, labels), InMemory(images, labels), ("a", "b"))
    for number, end in enumerate((allowed.low, allowed.high)):
        value = NUMERIC[key](end)
        if not allowed.holds(value):  # an open interval
            value = math.nextafter(value, 0.5)
        candidates = {"candidates": 1024} if key == "keep" else {}
        recipe = Recipe(
            model="mlp-2", policy=policies.get(key, "random"), epochs=2, batch=4, transforms="geometric", **candidates
        )
        with contextlib.suppress(Stopped, ValueError):  # the loss is not finite, or validation is larger than the data
            train(with_values(recipe, {key: value}), out=tmp_path / str(number), splits=data, on_step=lambda _: True)


def test_a_missing_file_raises_an_error(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        read_recipe(tmp_path / "none.toml")
    with pytest.raises(ValueError, match="recipe file 'digits' not found; for a data set use --data digits"):
        read_recipe(Path("digits"))
    with pytest.raises(ValueError, match=f"a folder, not a recipe file; for a folder of data use --data {tmp_path}"):
        read_recipe(tmp_path)


def test_a_scaled_recipe_has_at_least_one_epoch():
    small = scaled(Recipe(epochs=200, validation=5000), 0.001)
    assert (small.epochs, small.fraction, small.validation) == (1, 0.001, 5)
    assert scaled(Recipe(epochs=60), 0.05) == Recipe(epochs=3, fraction=0.05)
    assert scaled(Recipe(), 1.0) == Recipe()
    few = scaled(Recipe(epochs=2, min_steps=400, batch=10), 0.5)  # 40 epochs of 10 steps become 20 of 5
    assert few.total_steps(50) == 100
    for scale in (0.0, -1.0, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"scale must lie in \(0, 1\]"):
            scaled(Recipe(), scale)


def test_the_final_batch_of_an_epoch_may_be_smaller():
    assert [Recipe(batch=20).steps_per_epoch(samples) for samples in (1, 20, 21, 40)] == [1, 1, 2, 2]


@given(samples=st.integers(1, 5_000), batch=st.integers(1, 70), epochs=st.integers(1, 30), min_steps=st.integers(0, 3_000))
def test_a_run_has_the_fewest_whole_epochs_that_reach_the_least_number_of_steps(samples, batch, epochs, min_steps):
    recipe = Recipe(batch=batch, epochs=epochs, min_steps=min_steps)
    total, epoch_steps = recipe.total_epochs(samples), math.ceil(samples / batch)
    assert recipe.total_steps(samples) == total * epoch_steps >= min_steps
    assert total >= epochs
    assert total == epochs or (total - 1) * epoch_steps < min_steps  # one epoch less would not be enough
    assert replace(recipe, steps=7).total_steps(samples) == 7


def test_epochs_that_are_set_are_trained_exactly(tmp_path):
    texts, default = {"noun_of": lambda name: "texts"}, DEFAULTS["texts"]["min_steps"]
    path = tmp_path / "r.toml"
    path.write_text("epochs = 7")
    (tmp_path / "both.toml").write_text("epochs = 7\nmin_steps = 50")
    assert build_recipe(None, {}, **texts).min_steps == build_recipe(Recipe(), {"seed": 1}, **texts).min_steps == default > 0
    exact = [
        build_recipe(None, {"epochs": 7}, **texts),
        build_recipe(path, {}, **texts),
        build_recipe(Recipe(epochs=7), {}, **texts),
        build_recipe(Recipe(), {"epochs": "7"}, **texts),
        build_recipe(tmp_path / "both.toml", {"epochs": 7}, **texts),
        with_values(build_recipe(None, {}, **texts), {"epochs": 7}),
        stored_recipe({"epochs": 7}),  # of a version without `min_steps`
    ]
    assert [(recipe.epochs, recipe.min_steps) for recipe in exact] == [(7, 0)] * len(exact)
    least = [
        build_recipe(tmp_path / "both.toml", {}, **texts),
        build_recipe(path, {"min_steps": 50}, **texts),
        build_recipe(Recipe(epochs=7, min_steps=50), {"seed": 1}, **texts),
        stored_recipe({"epochs": 7, "min_steps": 50}),
    ]
    assert [(recipe.epochs, recipe.min_steps) for recipe in least] == [(7, 50)] * len(least)
    path.write_text(write_recipe(least[0]))
    assert build_recipe(path, {}, **texts) == least[0]


def test_the_epochs_of_a_grid_are_exact():
    for keys, expected in (({}, 0), ({"min_steps": 50}, 50)):
        recipe, axes = build_grid(None, {"epochs": [1, 2]}, {"validation": 5, **keys})
        assert [(point.epochs, point.min_steps) for point in points(recipe, axes).values()] == [(1, expected), (2, expected)]


def test_differences_of_recipes():
    assert changed_keys(Recipe(), Recipe(lr=0.2, seed=3)) == {"seed": (0, 3), "lr": (0.1, 0.2)}
    assert "transforms" in KEYS


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parent.parent / "recipes").glob("[!i]*.toml")), ids=lambda path: path.stem
)
def test_every_recipe_for_images_can_be_run(path):
    recipe = read_recipe(path)
    side = InMemory(torch.zeros(4, 3, 32, 32, dtype=torch.uint8), torch.arange(4) % 2)
    data = Data(recipe.data, side, side, ("a", "b"))
    model = models.build(recipe.model, side.shape, 2)
    policy = build_policy(recipe, model, data, Normalize((0.5,) * 3, (0.2,) * 3))
    assert len(policy(side.images, side.labels, step=0).inputs) == 4 * (8 if recipe.policy == "adversarial" else recipe.keep)
    assert path.read_text().startswith("# ")
    assert "Expected" in path.read_text()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"hidden_size": 384, "num_hidden_layers": 6, "max_position_embeddings": 512}, (1e-4, 2, 512)),  # MiniLM-L6
        ({"dim": 768, "n_layers": 6, "max_position_embeddings": 512}, (5e-5, 3, 512)),  # DistilBERT
        ({"hidden_size": 768, "num_hidden_layers": 12, "max_position_embeddings": 514}, (2e-5, 3, 512)),  # RoBERTa
        ({"hidden_size": 128, "num_hidden_layers": 2, "max_position_embeddings": 64}, (1e-4, 2, 64)),
        ({"hidden_size": None}, (2e-5, 3, 512)),
        (["not", "a", "config"], (2e-5, 3, 512)),
    ],
)
def test_the_defaults_of_texts_depend_on_the_size_of_the_model(config, expected, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config))
    model, texts = {"model": str(tmp_path)}, lambda name: "texts"
    built = build_recipe(None, model, texts)
    assert (built.lr, built.epochs, built.length) == expected
    assert build_recipe(Recipe(), model, texts).lr == build_recipe(Recipe(**model), {}, texts).lr == built.lr
    explicit = build_recipe(None, {**model, "lr": 3e-5, "epochs": 7, "length": 32}, texts)
    assert (explicit.lr, explicit.epochs, explicit.length) == (3e-5, 7, 32)
    assert build_recipe(None, model, lambda name: "images").lr == 0.1


@pytest.mark.parametrize(
    ("name", "lr"), [("sentence-transformers/all-MiniLM-L6-v2", 1e-4), ("prajjwal1/bert-tiny", 1e-4), ("some/dominique", 2e-5)]
)
def test_a_small_model_of_the_hub_is_known_by_its_name(name, lr):
    assert build_recipe(None, {"model": name}, lambda name: "texts").lr == lr
