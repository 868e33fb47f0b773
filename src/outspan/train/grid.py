"""A grid of recipes in its folder: every point is trained, and one is chosen on images or texts held out of train."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from outspan.config import Recipe, default_recipe, read_values, with_values
from outspan.data.sets import is_textual
from outspan.files import write_json
from outspan.train.loop import train
from outspan.train.workers import Watch, run_all, unwatched


def read_grid(path: Path, changes: Mapping[str, Any]) -> tuple[Recipe, Mapping[str, Sequence[Any]]]:
    """Return the recipe in a TOML file and its axes: every key that has a list of values."""
    values = {**read_values(path), **changes}
    axes = {key: value for key, value in values.items() if isinstance(value, list)}
    begun = default_recipe(str(values.get("data", "")), is_textual)
    recipe = with_values(begun, {key: value for key, value in values.items() if key not in axes})
    if not axes:
        raise ValueError(f"{path}: a grid has a list of values for some key, e.g. lr = [1e-5, 2e-5]")
    for key, choices in axes.items():
        if not choices:
            raise ValueError(f"{path}: {key} has no values")
    points(recipe, axes)  # whatever is wrong with one of them is said before any is trained
    if not recipe.validation:
        raise ValueError(f"{path}: a grid is chosen on what is held out of train: set validation")
    return recipe, axes


def points(recipe: Recipe, axes: Mapping[str, Sequence[Any]]) -> dict[str, Recipe]:
    """Return the recipe of every point of a grid, by a name for its folder.

    >>> list(points(Recipe(validation=5), {"lr": [0.1, 0.2], "batch": [32]}))
    ['lr=0.1,batch=32', 'lr=0.2,batch=32']
    """
    found = {}
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        name = ",".join(f"{key}={value}" for key, value in point.items())
        found[name.replace("/", "%2F")] = with_values(recipe, point)  # a path is not one here
    return found


def run_grid(
    recipe: Recipe,
    axes: Mapping[str, Sequence[Any]],
    *,
    out: Path,
    device: str = "cpu",
    jobs: int = 1,
    watch: Watch = unwatched,
) -> dict[str, Any]:
    """Train every point, choose the best on what is held out after the last epoch, and train that on all of train.

    What is in the folder already is not trained again. The test accuracy is that of the last run alone: it chose nothing.
    """
    asked = points(recipe, axes)
    runs = [(name, partial(train, point, out=out / name, device=device)) for name, point in asked.items()]
    done = zip(asked, run_all(runs, jobs=jobs, watch=watch), strict=True)
    found: dict[str, Any] = {"points": {name: run.metrics[-1]["validation_accuracy"] for name, run in done}}
    found["chosen"] = max(found["points"], key=found["points"].get)
    with watch(f"{found['chosen']}, on all of train") as on_step:
        last = replace(asked[found["chosen"]], validation=0)
        found["test_accuracy"] = train(last, out=out / f"chosen-{found['chosen']}", device=device, on_step=on_step).accuracy
    write_json(out / "grid.json", found)
    return found
