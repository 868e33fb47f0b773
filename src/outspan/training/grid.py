"""A grid of recipes in its folder: every point is trained, and one is chosen on images or texts held out of train."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from outspan.config import Recipe, default_recipe, read_values, with_values
from outspan.data.sets import load_for, noun_of
from outspan.files import write_json
from outspan.training import Diverged, OnStep
from outspan.training.loop import Summary, train
from outspan.training.pool import Watch, named, run_all, unwatched


def read_grid(path: Path, changes: Mapping[str, Any]) -> tuple[Recipe, Mapping[str, Sequence[Any]]]:
    """Return the recipe in a TOML file and its axes: every key that has a list of values."""
    values = {**read_values(path), **changes}
    axes = {key: value for key, value in values.items() if isinstance(value, list)}
    recipe = with_values(default_recipe(values, noun_of), {key: value for key, value in values.items() if key not in axes})
    if not axes:
        raise ValueError(f"{path}: a grid has a list of values for some key, e.g. lr = [1e-5, 2e-5]")
    for key, choices in axes.items():
        if not choices:
            raise ValueError(f"{path}: {key} has no values")
    if "optimizer" in axes and "lr" not in values:
        raise ValueError(f"{path}: optimizers differ in the rate that suits them: set lr")
    points(recipe, axes)  # whatever is wrong with one of them is said before any is trained
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

    What is in the folder already is not trained again. A point that diverges, whose accuracy is None, is not chosen. The test
    accuracy is that of the chosen run alone: it chose nothing. Where the data has a split for it, that is the point's.
    """
    asked = points(recipe, axes)
    for point in {point.data: point for point in asked.values() if not point.validation}.values():
        if load_for(point).validation is None:
            raise ValueError("a grid is chosen on what is held out of train: set validation")
    runs = [(name, partial(named, name, partial(_train, point, out / name, device))) for name, point in asked.items()]
    done: dict[str, Summary | None] = dict(zip(asked, run_all(runs, jobs=jobs, watch=watch), strict=True))
    held = {name: run.metrics[-1]["validation_accuracy"] for name, run in done.items() if run is not None}
    if not held:
        raise ValueError("every point of the grid diverges: try smaller rates")
    chosen = max(held, key=lambda name: held[name])
    last = done[chosen]
    if asked[chosen].validation:
        with watch(f"{chosen}, on all of train") as on_step:
            whole = replace(asked[chosen], validation=0)
            last = train(whole, out=out / f"chosen-{chosen}", device=device, on_step=on_step)
    assert last is not None
    found = {"points": {name: held.get(name) for name in asked}, "chosen": chosen, "test_accuracy": last.accuracy}
    write_json(out / "grid.json", found)
    return found


def _train(point: Recipe, out: Path, device: str, *, on_step: OnStep | None) -> Summary | None:
    try:
        return train(point, out=out, device=device, on_step=on_step)
    except Diverged:
        return None
