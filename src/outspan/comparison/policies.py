"""Train several policies with several seeds or folds each, for the same number of epochs or the same time, and compare them."""

import itertools
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch
from typing_extensions import Unpack

from outspan.comparison.equal_time import FILE as TIMES_FILE
from outspan.comparison.equal_time import plan_budget
from outspan.comparison.result import FILE as RESULT_FILE
from outspan.comparison.result import Comparison, PolicyResult, run_folder, summarize
from outspan.config import Recipe, build_recipe
from outspan.data.dataset import Data
from outspan.data.sets import load_for, noun_of
from outspan.devices import find_device
from outspan.files import output_folder
from outspan.limits import check_positive, check_whole
from outspan.messages import shown, unknown
from outspan.policies.fairness import policies_with_crops, policies_without_transforms
from outspan.policies.table import (
    check_noun,
    check_recipe,
    find_policy,
    warn_ignored_keys,
)
from outspan.recipe_keys import RecipeKeys
from outspan.training import checkpoint
from outspan.training.evaluate import evaluate
from outspan.training.label_metrics import LABEL_METRIC_NAMES, compute_label_metrics
from outspan.training.metrics import METRIC_NAMES, compute_metrics
from outspan.training.pool import Pool, Watch, no_progress, run_all, run_with_title
from outspan.training.run import Summary
from outspan.training.train import train

# Those of which more is better, for one label per sample and for several.
_METRICS = tuple(dict.fromkeys(name for name in (*METRIC_NAMES, *LABEL_METRIC_NAMES) if name != "ece"))


def compare(
    recipe: Recipe | Path | str | None = None,
    *,
    policies: str | Sequence[str] = ("none", "random", "auto"),
    seeds: int | None = None,
    out: Path | str,
    equal: str = "epochs",
    minutes: float | None = None,
    budgets: Iterable[float] = (1,),
    metric: str = "accuracy",
    step_seconds: Mapping[str, float] | None = None,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    gpus_per_run: float | None = None,
    device: str | None = None,
    skip_bad: int = 0,
    watch: Watch = no_progress,
    **keys: Unpack[RecipeKeys],
) -> Comparison:
    """Train each policy with the seeds 0, 1, …, or on the folds of a cross-validation, and return the test accuracies.

    Each run has its own folder, `out`/POLICY-SEED. A finished run is not repeated, and a stopped run is resumed. The
    result is also written to `out`/comparison.json.

    With `equal="time"` the time of a training step is measured for each policy first. Then every policy gets as many steps as
    fit into the time that the policy with the shortest step needs for the recipe's epochs. The learning rate schedule spans
    these steps. Evaluation does not count. The times are kept in `out`/step_times.json, and reused with the same settings.

    With the key `folds=K` the training samples are divided into K parts with the class shares of the whole. Run i of a policy
    has the seed i, is tested on part i and trains on the others. The test split of the data is not used.

    Example::

        result = outspan.compare(data="digits", model="mlp", policies=["none", "random"], epochs=2, out="runs/compared")
        print(result.policies["random"].mean)  # mean test accuracy over 3 seeds
        print(*result.verdicts, sep="\n")  # which policy is best, and whether the difference is significant

    Args:
        recipe: A `Recipe`, or the path of a TOML file, that all runs share. Its policy and seed are not used.
        policies: Names of policies, as a list or separated by commas.
        seeds: Number of runs per policy. The default is 3. With `folds` there is one run per fold, and `seeds` is left out.
        out: The folder of the comparison.
        equal: What all policies have in common: "epochs" or "time".
        minutes: With `equal="time"`, the training time of each run, instead of that of the recipe's epochs.
        budgets: With `equal="time"`, multiples of this time. The comparison is repeated for each of them.
        metric: By which test metric policies are compared, e.g. "macro_f1" for imbalanced data. All but "ece" of
            `evaluate(...).metrics` are allowed. For another one than the accuracy, the trained models are evaluated once more.
        step_seconds: With `equal="time"`, the seconds of a step by policy. By default they are measured.
        jobs: Number of parallel processes, with one thread each.
        engine: Where to train: "local" for processes of this machine, "ray" for Ray.
        address: With Ray, the cluster: "auto" or HOST:PORT. By default Ray is started on this machine, with `jobs` workers.
        gpus_per_run: With Ray on GPUs, the part of a GPU that a run gets, e.g. 0.25 for 4 runs per GPU. The default is 1.
        device: Where to train, as in `outspan.train`, e.g. "cpu" or "cuda:1".
        skip_bad: Tolerate up to this number of unreadable files in an image folder or in tar shards, or of rows of a table
            without a text or a label, which are left out.
        watch: Shows progress. Called with the title of each run, e.g. "random, seed 0". It must return a context manager
            that yields the `on_step` callback of this run (see `outspan.train`), or None.
        **keys: Keys of the recipe, e.g. `data="digits"`, `epochs=5`. They override those of `recipe`.

    Raises:
        ValueError: If a policy, a key or the data is wrong, or if a training diverges.
    """
    check_keys(keys)
    if metric not in _METRICS:
        raise unknown("metric", metric, _METRICS)
    pool = Pool(jobs, engine, address, gpus_per_run)
    names = _policy_names(policies)
    multiples = _check_time(equal, minutes, budgets, step_seconds, names)
    shared, folder, device = build_recipe(recipe, keys, noun_of), output_folder(out), str(find_device(device))
    if shared.patience:
        raise ValueError(f"patience must be 0 in a comparison, got {shared.patience}: all policies train for the same time")
    numbers, unit = _number_runs(shared, seeds), "fold" if shared.folds else "seed"
    recipes = _recipes(shared, names)
    warn_ignored_keys(keys, shared, list(recipes))
    _check_folder(folder, equal, [f"{name}-{number}" for name in recipes for number in numbers])
    pool.check(device)
    tested = None if metric == "accuracy" else _load_for_metric(metric, replace(shared, folds=0), skip_bad)
    planned = {(1.0, name): one for name, one in recipes.items()}
    if equal == "time":
        with watch("timing a step of each policy") as on_step:
            times = {"minutes": None if minutes is None else float(minutes), "step_seconds": step_seconds}
            data = load_for(shared, skip_bad=skip_bad)
            budget = plan_budget(shared, recipes, data, folder=folder, device=device, pool=pool, on_step=on_step, **times)
        planned = {(b, name): replace(one, steps=budget.steps(name, b)) for b in multiples for name, one in recipes.items()}
    tasks = {}
    # The slowest first, so that no slow run is left alone at the end.
    order = sorted(planned, key=lambda key: (-key[0], not find_policy(key[1]).uses_model))
    for (multiple, policy), number in itertools.product(order, numbers):
        title = f"{policy}, {unit} {number}" + ("" if multiple == 1 else f", budget {multiple:g}")
        options = {"out": run_folder(folder, multiple, policy, number), "device": device, "skip_bad": skip_bad}
        job = partial(train, _numbered(planned[multiple, policy], number), **options)
        tasks[multiple, policy, number] = title, partial(run_with_title, title, job)
    done = run_all(list(tasks.values()), pool, device=device, out=folder, recipes=recipes.values(), watch=watch)
    summaries = dict(zip(tasks, done, strict=True))
    values = {key: run.accuracy for key, run in summaries.items()}
    if tested is not None:  # `evaluate` takes the fold of a run
        values = {key: _evaluate(run_folder(folder, *key), metric, tested, device) for key in tasks}
    results = _by_budget(planned, numbers, summaries, values)
    result = Comparison(shared, results, max(run.chance for run in summaries.values()), equal, metric)
    result.save(folder)
    return result


def _by_budget(
    planned: Iterable[tuple[float, str]],
    numbers: Iterable[int],
    summaries: Mapping[tuple[float, str, int], Summary],
    values: Mapping[tuple[float, str, int], float],
) -> dict[float, dict[str, PolicyResult]]:
    """Return the result of each policy by budget, from the summary and the value of the metric of each run."""
    results: dict[float, dict[str, PolicyResult]] = {}
    for multiple, policy in planned:
        keys = [(multiple, policy, number) for number in numbers]
        result = summarize([summaries[key] for key in keys], [values[key] for key in keys])
        results.setdefault(multiple, {})[policy] = result
    return results


def check_keys(keys: Collection[str]) -> None:
    """Refuse the recipe keys that `compare` sets itself."""
    for key in ("policy", "seed", "fold"):
        if key in keys:
            how = "use folds (--folds)" if key == "fold" else "use policies and seeds (--policies and --seeds)"
            raise ValueError(f"compare sets {key} itself, so {key} cannot be changed: {how}")


def _number_runs(recipe: Recipe, seeds: int | None) -> range:
    """Return the numbers of the runs of a policy: its seeds, or its folds."""
    if not recipe.folds:
        return range(3 if seeds is None else check_whole("seeds", seeds, 1))
    if seeds is not None:
        problem = f"seeds must be left out with folds, got seeds={shown(seeds)} and folds={recipe.folds}"
        raise ValueError(f"{problem}: run i of a policy has the seed i and is tested on fold i")
    return range(recipe.folds)


def _numbered(recipe: Recipe, number: int) -> Recipe:
    """Return the recipe of a run by its number, which is the seed, and the fold in a cross-validation."""
    return replace(recipe, seed=number, fold=number if recipe.folds else 0)


def _check_time(
    equal: str,
    minutes: float | None,
    budgets: Iterable[float],
    step_seconds: Mapping[str, float] | None,
    policies: Sequence[str],
) -> list[float]:
    """Refuse a wrong `equal`, and times that are not positive or are given without equal time. Return the budgets."""
    if equal not in ("epochs", "time"):
        raise ValueError(f"equal must be 'epochs' or 'time', got {shown(equal)}")
    multiples = list(budgets) if isinstance(budgets, Iterable) and not isinstance(budgets, str) else []
    if not multiples:
        raise ValueError(f"budgets must be a list of multiples of the time, e.g. [1, 2, 4], got {shown(budgets)}")
    for multiple in multiples:
        check_positive("each of budgets", multiple)
    if equal == "epochs" and (minutes is not None or multiples != [1] or step_seconds is not None):
        raise ValueError("minutes, budgets and step_seconds need equal time: use equal='time' (--equal time)")
    if minutes is not None:
        check_positive("minutes", minutes)
    if not isinstance(step_seconds, Mapping | None):
        raise ValueError(f"step_seconds must be a dictionary of seconds by policy, got {shown(step_seconds)}")
    if step_seconds is not None:
        for name in policies:
            check_positive(f"step_seconds[{name!r}]", step_seconds.get(name))
    return [float(multiple) for multiple in multiples]


def _check_folder(folder: Path, equal: str, runs: Iterable[str]) -> None:
    """Refuse to mix equal epochs and equal time in one folder, before any step is timed."""
    has_times = (folder / TIMES_FILE).exists()
    if equal == "epochs" and has_times:
        raise ValueError(
            f"{folder}: contains a comparison at equal time; choose another folder, or use equal='time' (--equal time)"
        )
    has_others = (folder / RESULT_FILE).exists() or any(checkpoint.has_checkpoints(folder / run) for run in runs)
    if equal == "time" and has_others and not has_times:
        raise ValueError(f"{folder}: contains runs that were not trained at equal time; choose another folder")


def _load_for_metric(metric: str, recipe: Recipe, skip_bad: int) -> Data:
    """Return the data of a recipe. Refuse a metric that data with its classes, or with several labels, does not have."""
    data = load_for(recipe, skip_bad=skip_bad)
    classes = len(data.classes)
    if data.test.labels.ndim == 2:
        example = compute_label_metrics(torch.full((1, classes), 0.5), torch.ones(1, classes, dtype=torch.bool))
    else:
        example = compute_metrics(torch.full((2, classes), 1 / classes), torch.tensor([0, 1]))
    defined = [name for name, value in asdict(example).items() if value is not None and name in _METRICS]
    if metric not in defined:
        problem = f"metric {metric!r} is not defined for {data.name}, with {classes} classes"
        labels = " and several labels per sample" if data.test.labels.ndim == 2 else ""
        raise ValueError(f"{problem}{labels}: use one of {', '.join(defined)}")
    return data


def _evaluate(run: Path, metric: str, data: Data, device: str) -> float:
    """Return a metric of a trained model on the test split."""
    value = getattr(evaluate(run, splits=data, device=device).metrics, metric, None)
    if value is None:
        raise ValueError(f"metric {metric!r} is not defined for {data.name}, whose test labels are all of one class")
    return value


def _policy_names(policies: str | Sequence[str]) -> list[str]:
    names = policies.split(",") if isinstance(policies, str) else policies
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"policies must be names such as 'random', got {shown(policies)}")
    names = [name.strip() for name in names if name.strip()]
    if not names:
        raise ValueError(f"policies must have at least one name, e.g. 'none,random', got {shown(policies)}")
    return names


def _recipes(recipe: Recipe, policies: Sequence[str]) -> dict[str, Recipe]:
    """Return the recipe of each policy. A recipe that cannot be trained is a ValueError."""
    recipes = {}
    for name in dict.fromkeys(policies):
        policy_file = recipe.policy_file if find_policy(name).needs_file else ""
        recipes[name] = replace(recipe, policy=name, policy_file=policy_file)
        check_recipe(recipes[name])
        check_noun(recipes[name], noun_of(recipe.data))
    for name in policies_without_transforms(recipes, recipe.data):
        warnings.warn(f"policy `{name}` has no transforms for data `{recipe.data}`: it is the same as `none`", stacklevel=3)
    cropped = policies_with_crops(recipes, recipe.data)
    if cropped and len(cropped) < len(recipes) and recipe.defaults == "none":
        fair = "For a fair comparison set defaults to flip or cifar-cutout, e.g. `--set defaults=flip`."
        warnings.warn(f"only `{cropped[0]}` crops and flips. {fair}", stacklevel=3)
    return recipes
