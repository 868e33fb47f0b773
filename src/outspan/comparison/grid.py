"""Grid search: train every point of a grid of recipes, and choose one on validation data."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from typing_extensions import Unpack

from outspan.config import Recipe, Value, build_recipe, read_values, with_values
from outspan.data.sets import load_for, noun_of
from outspan.devices import find_device
from outspan.files import output_folder, write_json
from outspan.policies.table import warn_ignored_keys
from outspan.recipe_keys import RecipeKeys
from outspan.training import Diverged, OnStep
from outspan.training.pool import Pool, Watch, no_progress, run_all, run_with_title
from outspan.training.run import Summary
from outspan.training.train import train
from outspan.training.validation import find_metric

Axes = Mapping[str, Sequence[Value]]  # by recipe key, the values to try
_NO_AXES: Axes = MappingProxyType({})
_NO_KEYS: Mapping[str, Value] = MappingProxyType({})


@dataclass(frozen=True)
class GridResult:
    """The result of `grid_search`."""

    points: Mapping[str, float | None]  # the validation score of each point, None if its training diverged
    chosen: str  # the point with the highest validation score
    test_accuracy: float  # of the chosen point, trained on all training data
    metric: str = "accuracy"  # what the score is: the recipe's `best_metric`, or "map" if a sample can have several labels


def build_grid(
    recipe: Recipe | Path | str | None = None, axes: Axes = _NO_AXES, keys: RecipeKeys | Mapping[str, Value] = _NO_KEYS
) -> tuple[Recipe, Axes]:
    """Return the recipe of a grid and its axes.

    Args:
        recipe: A `Recipe`, or the path of a TOML file. Every key of the file with a list of values is an axis.
        axes: The values to try, by recipe key, in addition to those of the file.
        keys: Values of other recipe keys.
    """
    stored = read_values(Path(recipe)) if isinstance(recipe, Path | str) else {}
    source = f"{recipe}: " if stored else ""
    values = {**stored, **keys, **axes}
    axes = {key: value for key, value in values.items() if isinstance(value, list | tuple)}
    fixed = {key: value for key, value in values.items() if key not in axes}
    if "epochs" in axes:
        fixed = {"min_steps": 0, **fixed}
    base = build_recipe(recipe if isinstance(recipe, Recipe) else None, fixed, noun_of)
    if not axes:
        raise ValueError(f"{source}a grid needs a list of values for at least one key, e.g. lr = [1e-5, 2e-5]")
    for key, choices in axes.items():
        if not choices:
            raise ValueError(f"{source}{key} has no values: list at least one")
    has_lr = "lr" in values or (isinstance(recipe, Recipe) and "lr" not in recipe.unset)
    if "optimizer" in axes and not has_lr:
        raise ValueError(f"{source}a grid over optimizers needs lr, because their default rates differ: set lr")
    if "best_metric" in axes:
        raise ValueError(f"{source}best_metric must be the same for all points, because it chooses one of them, got a list")
    policies = axes.get("policy", [base.policy])
    warn_ignored_keys({**keys, **axes}, base, list(map(str, policies)), stacklevel=4)
    points(base, axes)  # refuses a wrong point before any is trained
    return base, axes


def points(recipe: Recipe, axes: Axes) -> dict[str, Recipe]:
    """Return the recipe of every point of a grid, by the name of its folder.

    >>> list(points(Recipe(validation=5), {"lr": [0.1, 0.2], "batch": [32]}))
    ['lr=0.1,batch=32', 'lr=0.2,batch=32']
    """
    recipes = {}
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        name = ",".join(f"{key}={value}" for key, value in point.items())
        values = {"min_steps": recipe.min_steps, **point}  # also with an axis of epochs
        recipes[name.replace("/", "%2F")] = with_values(recipe, values)  # the name must be a single path component
    return recipes


def grid_search(
    recipe: Recipe | Path | str | None = None,
    axes: Axes = _NO_AXES,
    *,
    out: Path | str,
    device: str | None = None,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    gpus_per_run: float | None = None,
    watch: Watch = no_progress,
    **keys: Unpack[RecipeKeys],
) -> GridResult:
    """Train every point, choose the one with the best validation score, and train it on all training data.

    The validation data are `recipe.validation` samples of the training split, or the validation split of the data. In
    the second case the chosen point is not trained again. A point whose training diverges is not chosen. Finished runs in
    the folder are not repeated. The result is also written to `out`/grid.json.

    Args:
        recipe: A `Recipe`, or the path of a TOML file. Every key of the file with a list of values is an axis of the grid.
        axes: The values to try, by recipe key, in addition to those of the file.
        out: The folder of the grid, with one folder per point.
        device: Where to train, as in `outspan.train`, e.g. "cpu" or "cuda:1".
        jobs, engine, address, gpus_per_run: Where to train, and how many points at a time, as in `outspan.compare`.
        watch: Shows progress, as in `outspan.compare`.
        **keys: Other keys of the recipe, e.g. `data="digits"`, `validation=500`.

    Example::

        result = grid_search(axes={"lr": [0.01, 0.1]}, data="digits", model="mlp", validation=500, out="runs/grid")
        result.chosen  # "lr=0.1"
    """
    device, out, pool = str(find_device(device)), output_folder(out), Pool(jobs, engine, address, gpus_per_run)
    recipes = points(*build_grid(recipe, axes, keys))
    _check_validation(recipes)
    pool.check(device)
    execute = partial(run_all, pool=pool, device=device, out=out, recipes=recipes.values(), watch=watch)
    runs = [
        (name, partial(run_with_title, name, partial(_train, point, out / name, device))) for name, point in recipes.items()
    ]
    summaries: dict[str, Summary | None] = dict(zip(recipes, execute(runs), strict=True))
    last = {name: run.metrics[-1] for name, run in summaries.items() if run is not None}
    if not last:
        raise ValueError("the training of every point of the grid diverged: try smaller values of lr")
    metric = find_metric(next(iter(last.values())))
    scores = {name: row[f"validation_{metric}"] for name, row in last.items()}
    chosen = max(scores, key=lambda name: scores[name])
    summary = summaries[chosen]
    if recipes[chosen].validation:
        whole = partial(
            train,
            replace(recipes[chosen], validation=0, patience=0, best_metric="accuracy"),
            out=out / f"chosen-{chosen}",
            device=device,
        )
        summary = execute([(f"{chosen}, on all of train", whole)])[0]
    assert summary is not None
    result = GridResult({name: scores.get(name) for name in recipes}, chosen, summary.accuracy, str(metric))
    write_json(out / "grid.json", asdict(result))
    return result


def _check_validation(recipes: Mapping[str, Recipe]) -> None:
    """Refuse points without validation data."""
    for recipe in {recipe.data: recipe for recipe in recipes.values() if not recipe.validation}.values():
        if load_for(recipe).validation is None:
            raise ValueError(f"a grid needs validation data, and {recipe.data!r} has none: set validation, e.g. to 500")


def _train(recipe: Recipe, out: Path, device: str, *, on_step: OnStep | None) -> Summary | None:
    """Return the summary of a point, None if its training diverges."""
    try:
        return train(recipe, out=out, device=device, on_step=on_step)
    except Diverged:
        return None
