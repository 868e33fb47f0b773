"""Train several policies with several seeds each, and compare their test accuracies."""

import itertools
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import Unpack

from outspan.comparison.statistics import describe_chance, describe_lead, mean_and_std
from outspan.config import Recipe, RecipeKeys, build_recipe
from outspan.data.sets import noun_of
from outspan.devices import default_device
from outspan.files import write_json
from outspan.policies.table import check_noun, check_recipe, find_policy, with_own_crops
from outspan.training.pool import Watch, named, run_all, unwatched
from outspan.training.run import Summary
from outspan.training.train import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE = "comparison.json"


@dataclass(frozen=True)
class PolicyResult:
    """The runs of one policy."""

    accuracies: tuple[float, ...]  # on the test split after the last epoch, by seed
    mean: float
    std: float  # the sample standard deviation over seeds, 0 for one seed
    seconds: float  # mean training time of a run
    curves: tuple[tuple[float, ...], ...]  # the test accuracy after each epoch, by seed


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`: what each policy reached with the same recipe and the same seeds."""

    recipe: Recipe  # its policy and seed are not used
    policies: Mapping[str, PolicyResult]
    chance: float  # the accuracy of always predicting the most frequent class of the test split

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Sentences for a reader: which policy leads, whether significantly, and which policies learned nothing."""
        accuracies = {name: result.accuracies for name, result in self.policies.items()}
        sentences = (describe_lead(accuracies), describe_chance(accuracies, self.chance))
        return tuple(sentence for sentence in sentences if sentence)

    def as_dict(self) -> dict[str, object]:
        """Return what comparison.json contains."""
        shared = {key: value for key, value in asdict(self.recipe).items() if key not in ("policy", "seed")}
        policies = {
            name: {
                "test_accuracy": list(result.accuracies),
                "mean": result.mean,
                "std": result.std,
                "seconds": round(result.seconds, 1),
            }
            for name, result in self.policies.items()
        }
        count = max(len(result.accuracies) for result in self.policies.values())
        return {"recipe": shared, "seeds": list(range(count)), "policies": policies}

    def save(self, folder: Path) -> None:
        """Write comparison.json into a folder."""
        write_json(folder / FILE, self.as_dict())

    def figure(self) -> "Figure":
        """Return a figure of the test accuracy of each policy over the epochs."""
        from outspan.figures.compare import compare_figure

        return compare_figure({policy: result.curves for policy, result in self.policies.items()})


def compare(
    recipe: Recipe | Path | str | None = None,
    *,
    policies: str | Sequence[str] = ("none", "random", "uncertain"),
    seeds: int = 3,
    out: Path | str,
    jobs: int = 1,
    device: str | None = None,
    skip_bad: int = 0,
    watch: Watch = unwatched,
    **keys: Unpack[RecipeKeys],
) -> Comparison:
    """Train each policy with the seeds 0, 1, …, and return the accuracies.

    Each run has its own folder, `out`/POLICY-SEED. A finished run is not repeated and a stopped run is resumed. The
    result is also written to `out`/comparison.json.

    Args:
        recipe: a recipe, or the path of a TOML file, that all runs share. Its policy and seed are not used.
        policies: names of policies, or comma-separated names.
        seeds: the number of runs per policy.
        out: the folder of the comparison.
        jobs: the number of parallel processes, with one thread each.
        device: "cpu" or "cuda". The default is the GPU, if there is one.
        skip_bad: the number of unreadable files to tolerate in an image folder.
        watch: called with the title of each run. It returns a context manager for the run's `on_step` callback.
        **keys: recipe keys, e.g. `data="digits"`, `epochs=5`.

    Example::

        result = outspan.compare(data="digits", model="mlp", policies=["none", "random"], epochs=2, out="runs/compared")
        result.policies["random"].mean  # the mean test accuracy over 3 seeds
        for sentence in result.verdicts:
            print(sentence)
    """
    check_keys(keys)
    shared, out = build_recipe(recipe, keys, noun_of), Path(out)
    recipes = _recipes(shared, policies.split(",") if isinstance(policies, str) else policies)
    order = sorted(itertools.product(recipes, range(seeds)), key=lambda task: not find_policy(task[0]).uses_model)
    tasks = {}
    for policy, seed in order:  # the slowest first, so that no slow run is left alone at the end
        title, folder = f"{policy}, seed {seed}", out / f"{policy}-{seed}"
        options = {"out": folder, "device": device or default_device(), "skip_bad": skip_bad}
        tasks[policy, seed] = title, partial(named, title, partial(train, replace(recipes[policy], seed=seed), **options))
    summaries = dict(zip(tasks, run_all(list(tasks.values()), jobs=jobs, watch=watch), strict=True))
    by_policy = {policy: [summaries[policy, seed] for seed in range(seeds)] for policy in recipes}
    chance = max(runs[0].chance for runs in by_policy.values())
    result = Comparison(shared, {policy: _result(runs) for policy, runs in by_policy.items()}, chance)
    result.save(out)
    return result


def check_keys(keys: Collection[str]) -> None:
    """Refuse the recipe keys that `compare` sets itself."""
    for key in ("policy", "seed"):
        if key in keys:
            raise ValueError(f"compare sets {key} itself, so {key} cannot be changed: use --policies and --seeds")


def _recipes(recipe: Recipe, policies: Sequence[str]) -> dict[str, Recipe]:
    """Return the recipe of each policy. A recipe that cannot be trained is a ValueError."""
    recipes = {}
    for name in dict.fromkeys(policy.strip() for policy in policies):
        policy_file = recipe.policy_file if find_policy(name).needs_file else ""
        recipes[name] = replace(recipe, policy=name, policy_file=policy_file)
        check_recipe(recipes[name])
        check_noun(recipes[name], noun_of(recipe.data))
    cropped = with_own_crops(recipes, recipe.data)
    if cropped and len(cropped) < len(recipes) and recipe.defaults == "none":
        fair = "For a fair comparison add `--set defaults=flip` or `--set defaults=cifar-cutout`."
        warnings.warn(f"only `{cropped[0]}` crops and flips. {fair}", stacklevel=3)
    return recipes


def _result(runs: Sequence[Summary]) -> PolicyResult:
    accuracies = tuple(run.accuracy for run in runs)
    curves = tuple(tuple(row["test_accuracy"] for row in run.metrics) for run in runs)
    return PolicyResult(accuracies, *mean_and_std(accuracies), mean_and_std([run.seconds for run in runs])[0], curves)
