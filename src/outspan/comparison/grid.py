"""Grid search: train every point of a grid of recipes, and choose one on validation data."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from outspan.config import Recipe, default_recipe, read_values, with_values
from outspan.data.sets import load_for, noun_of
from outspan.devices import default_device
from outspan.files import write_json
from outspan.training import Diverged, OnStep
from outspan.training.loop import Summary, train
from outspan.training.pool import Watch, named, run_all, unwatched


@dataclass(frozen=True)
class GridResult:
    """The result of `grid_search`."""

    points: Mapping[str, float | None]  # the validation accuracy of each point, None if its training diverged
    chosen: str  # the point with the highest validation accuracy
    test_accuracy: float  # of the chosen point, trained on all training data


def read_grid(path: Path, changes: Mapping[str, Any]) -> tuple[Recipe, Mapping[str, Sequence[Any]]]:
    """Return the recipe in a TOML file, with changes, and the axes of its grid: every key with a list of values."""
    values = {**read_values(path), **changes}
    axes = {key: value for key, value in values.items() if isinstance(value, list)}
    recipe = with_values(default_recipe(values, noun_of), {key: value for key, value in values.items() if key not in axes})
    if not axes:
        raise ValueError(f"{path}: a grid needs a list of values for at least one key, e.g. lr = [1e-5, 2e-5]")
    for key, choices in axes.items():
        if not choices:
            raise ValueError(f"{path}: {key} has no values; a grid needs at least one")
    if "optimizer" in axes and "lr" not in values:
        raise ValueError(f"{path}: a grid over optimizers needs lr, because their default rates differ: set lr")
    points(recipe, axes)  # refuses a wrong point before any is trained
    return recipe, axes


def points(recipe: Recipe, axes: Mapping[str, Sequence[Any]]) -> dict[str, Recipe]:
    """Return the recipe of every point of a grid, by the name of its folder.

    >>> list(points(Recipe(validation=5), {"lr": [0.1, 0.2], "batch": [32]}))
    ['lr=0.1,batch=32', 'lr=0.2,batch=32']
    """
    recipes = {}
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        name = ",".join(f"{key}={value}" for key, value in point.items())
        recipes[name.replace("/", "%2F")] = with_values(recipe, point)  # the name must be a single path component
    return recipes


def grid_search(
    recipe: Recipe,
    axes: Mapping[str, Sequence[Any]],
    *,
    out: Path,
    device: str | None = None,
    jobs: int = 1,
    watch: Watch = unwatched,
) -> GridResult:
    """Train every point, choose the one with the best validation accuracy, and train it on all training data.

    The validation data are `recipe.validation` samples of the training split, or the validation split of the data. In
    the second case the chosen point is not trained again. A point whose training diverges is not chosen. Finished runs in
    the folder are not repeated. The result is also written to `out`/grid.json.

    Args:
        recipe: the values of all other keys.
        axes: by recipe key, the values to try.
        out: the folder of the grid, with one folder per point.
        device: "cpu" or "cuda". The default is the GPU, if there is one.
        jobs: the number of parallel processes, with one thread each.
        watch: called with the title of each run. It returns a context manager for the run's `on_step` callback.
    """
    device = device or default_device()
    recipes = points(recipe, axes)
    _check_validation(recipes)
    runs = [(name, partial(named, name, partial(_train, point, out / name, device))) for name, point in recipes.items()]
    summaries: dict[str, Summary | None] = dict(zip(recipes, run_all(runs, jobs=jobs, watch=watch), strict=True))
    accuracies = {name: run.metrics[-1]["validation_accuracy"] for name, run in summaries.items() if run is not None}
    if not accuracies:
        raise ValueError("the training of every point of the grid diverged: try smaller values of lr")
    chosen = max(accuracies, key=lambda name: accuracies[name])
    summary = summaries[chosen]
    if recipes[chosen].validation:
        with watch(f"{chosen}, on all of train") as on_step:
            whole = replace(recipes[chosen], validation=0)
            summary = train(whole, out=out / f"chosen-{chosen}", device=device, on_step=on_step)
    assert summary is not None
    result = GridResult({name: accuracies.get(name) for name in recipes}, chosen, summary.accuracy)
    write_json(out / "grid.json", asdict(result))
    return result


def _check_validation(recipes: Mapping[str, Recipe]) -> None:
    """Refuse points without validation data."""
    for recipe in {recipe.data: recipe for recipe in recipes.values() if not recipe.validation}.values():
        if load_for(recipe).validation is None:
            raise ValueError(f"a grid is chosen on validation data, and {recipe.data!r} has none: set validation")


def _train(recipe: Recipe, out: Path, device: str, *, on_step: OnStep | None) -> Summary | None:
    """Return the summary of a point, None if its training diverges."""
    try:
        return train(recipe, out=out, device=device, on_step=on_step)
    except Diverged:
        return None
