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
from outspan.config import Recipe, build_recipe
from outspan.data.sets import noun_of
from outspan.devices import find_device
from outspan.files import write_json
from outspan.messages import shown
from outspan.policies.table import check_noun, check_recipe, find_policy, policies_with_crops
from outspan.recipe_keys import RecipeKeys
from outspan.training.pool import Watch, no_progress, run_all, run_with_title
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
    """The result of `compare`: the test accuracies of each policy, with the same recipe and the same seeds."""

    recipe: Recipe  # its policy and seed are not used
    policies: Mapping[str, PolicyResult]
    chance: float  # the accuracy of always predicting the most frequent class of the test split

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Sentences: which policy is best, whether its lead is significant, and which policies are not above `chance`."""
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
    watch: Watch = no_progress,
    **keys: Unpack[RecipeKeys],
) -> Comparison:
    """Train each policy with the seeds 0, 1, …, and return the test accuracies.

    Each run has its own folder, `out`/POLICY-SEED. A finished run is not repeated, and a stopped run is resumed. The
    result is also written to `out`/comparison.json.

    Example::

        result = outspan.compare(data="digits", model="mlp", policies=["none", "random"], epochs=2, out="runs/compared")
        print(result.policies["random"].mean)  # mean test accuracy over 3 seeds
        print(*result.verdicts, sep="\n")  # which policy is best, and whether the difference is significant

    Args:
        recipe: A `Recipe`, or the path of a TOML file, that all runs share. Its policy and seed are not used.
        policies: Names of policies, as a list or separated by commas.
        seeds: Number of runs per policy.
        out: The folder of the comparison.
        jobs: Number of parallel processes, with one thread each.
        device: Where to train: "cpu" or "cuda". By default a GPU if there is one, otherwise the CPU.
        skip_bad: Tolerate up to this number of unreadable files in an image folder.
        watch: Shows progress. Called with the title of each run, e.g. "random, seed 0". It must return a context manager
            that yields the `on_step` callback of this run (see `outspan.train`), or None.
        **keys: Keys of the recipe, e.g. `data="digits"`, `epochs=5`. They override those of `recipe`.

    Raises:
        ValueError: If a policy, a key or the data is wrong, or if a training diverges.
    """
    check_keys(keys)
    if not isinstance(seeds, int) or seeds < 1:
        raise ValueError(f"seeds must be a number of runs per policy, at least 1, got {shown(seeds)}")
    shared, out, device = build_recipe(recipe, keys, noun_of), Path(out), str(find_device(device))
    recipes = _recipes(shared, _policy_names(policies))
    order = sorted(itertools.product(recipes, range(seeds)), key=lambda task: not find_policy(task[0]).uses_model)
    tasks = {}
    for policy, seed in order:  # the slowest first, so that no slow run is left alone at the end
        title, folder = f"{policy}, seed {seed}", out / f"{policy}-{seed}"
        options = {"out": folder, "device": device, "skip_bad": skip_bad}
        job = partial(train, replace(recipes[policy], seed=seed), **options)
        tasks[policy, seed] = title, partial(run_with_title, title, job)
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
            how = "use policies and seeds (--policies and --seeds)"
            raise ValueError(f"compare sets {key} itself, so {key} cannot be changed: {how}")


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
    cropped = policies_with_crops(recipes, recipe.data)
    if cropped and len(cropped) < len(recipes) and recipe.defaults == "none":
        fair = "For a fair comparison set defaults to flip or cifar-cutout, e.g. `--set defaults=flip`."
        warnings.warn(f"only `{cropped[0]}` crops and flips. {fair}", stacklevel=3)
    return recipes


def _result(runs: Sequence[Summary]) -> PolicyResult:
    accuracies = tuple(run.accuracy for run in runs)
    curves = tuple(tuple(row["test_accuracy"] for row in run.metrics) for run in runs)
    return PolicyResult(accuracies, *mean_and_std(accuracies), mean_and_std([run.seconds for run in runs])[0], curves)
