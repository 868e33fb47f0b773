"""Core sets: the fewest transforms, one after another, that are nearly as good as the best set of a greedy search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from typing_extensions import Unpack

from outspan.config import Recipe, write_recipe
from outspan.figures.markup import display
from outspan.files import Json, write_json, write_whole
from outspan.measurement.compose import composition_name
from outspan.measurement.effects import Estimate
from outspan.measurement.info import StudyInfo, study_info
from outspan.measurement.intervals import Interval, compute_intervals, difference_intervals
from outspan.measurement.predictions import Predictions
from outspan.measurement.recipes import (
    BASELINE,
    PAPER_FIVE,
    baseline_recipe,
    chain,
    check_transforms,
    select_transforms,
    study_recipe,
)
from outspan.measurement.scores import Scores, compute_scores
from outspan.measurement.study import Study
from outspan.recipe_keys import StudyKeys
from outspan.training.pool import Pool, Watch, no_progress

TOLERANCE = 0.1  # the error of the core set is at most this fraction above the lowest error


@dataclass(frozen=True)
class SearchStep:
    """A set of transforms on the path of the greedy search."""

    transforms: tuple[str, ...]
    scores: Scores
    interval: Interval  # of the error
    next_errors: Mapping[str, float] = field(default_factory=dict)  # by transform, the error if it is added

    def as_dict(self) -> dict[str, Json]:
        """Return what core.json contains for a step."""
        values: dict[str, Json] = {
            "transforms": list(self.transforms),
            **self.scores.brief(),
            "interval": list(self.interval),
        }
        if self.next_errors:
            values["then"] = dict(self.next_errors)
        return values


@dataclass(frozen=True)
class CoreSet:
    """The result of `find_core_set`: the chosen transforms, a recipe that trains with them, and the path of the search."""

    info: StudyInfo
    recipe: Recipe
    chosen: SearchStep
    difference: Estimate  # the error of the core set minus that without transforms
    path: tuple[SearchStep, ...]  # from no transforms to the set with the lowest error
    models: int  # number of trained models

    @property
    def transforms(self) -> tuple[str, ...]:
        """The core set."""
        return self.chosen.transforms

    @property
    def best(self) -> SearchStep:
        """The set with the lowest error."""
        return self.path[-1]

    @property
    def transforms_per_sample(self) -> float:
        """The mean number of transforms of the core set that are applied to a sample."""
        return len(self.transforms) * self.recipe.probability

    def as_dict(self) -> dict[str, Json]:
        """Return what core.json contains."""
        return self.info.as_dict() | {
            "core": list(self.transforms),
            "error": self.chosen.scores.error,
            "difference": self.difference.as_dict(),
            "best": {"transforms": list(self.best.transforms), "error": self.best.scores.error},
            "within": TOLERANCE,
            "cost": {"transforms_an_image": self.transforms_per_sample, "models": self.models},
            "path": [step.as_dict() for step in self.path],
        }

    def save(self, folder: Path) -> None:
        """Write core.json and the recipe core.toml into a folder."""
        error, best = (f"{100 * step.scores.error:.2f} %" for step in (self.chosen, self.best))
        text = write_recipe(
            self.recipe,
            f"The core set found by `outspan core`: {' + '.join(self.transforms) or 'none'}.",
            f"Error of the majority vote of {len(self.info.seeds)} seeds: {error}. Best set: {best}.",
        )
        write_whole(folder / "core.toml", lambda partial: partial.write_text(text, encoding="utf-8"))
        write_json(folder / "core.json", self.as_dict())

    def _repr_html_(self) -> str:
        """Return the path of the search, for notebooks."""
        rows = [(" + ".join(step.transforms) or "none", f"{100 * step.scores.error:.2f}") for step in self.path]
        caption = f"Core set: {' + '.join(self.transforms) or 'none'}; {self.info.test_set}"
        return display(["set", "error, %"], rows, caption)


def find_core_set(
    recipe: Recipe | Path | str | None = None,
    *,
    transforms: str | Sequence[str] = PAPER_FIVE,
    seeds: int | Sequence[int] = 9,
    out: Path | str,
    probability: float | None = None,
    shared_batches: bool = False,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    gpus_per_run: float | None = None,
    device: str | None = None,
    watch: Watch = no_progress,
    **keys: Unpack[StudyKeys],
) -> CoreSet:
    """Return the smallest set of transforms whose error is within 10 % of the best that a greedy search finds.

    The folder can be shared with `measure` and `compose`. The result is also written to `out`/core.json, and its recipe to
    `out`/core.toml. The arguments are those of `measure`.
    """
    base = study_recipe("core", recipe, keys)
    names = select_transforms(transforms, base)
    check_transforms(base, names)
    baseline = baseline_recipe(base, probability)
    pool = Pool(jobs, engine, address, gpus_per_run)
    study = Study(baseline, seeds=seeds, out=out, shared_batches=shared_batches, device=device, pool=pool, watch=watch)
    core = search(study, names)
    core.save(study.folder.out)
    return core


def search(study: Study, transforms: Sequence[str], *, seed: int = 0) -> CoreSet:
    """Add the transform that reduces the error most, after the others, until no transform reduces it.

    The core set is the shortest of these sets, the empty one included, whose error is within 10 % of the lowest. All sets are
    compared on the same test samples, so the lowest error is slightly too low for new data.
    """
    check_transforms(study.baseline, transforms)
    result = study.run({BASELINE: study.baseline})
    seen = dict(result.predictions)
    path = [_step((), seen, seed)]
    while left := [name for name in transforms if name not in path[-1].transforms]:
        sets = [(*path[-1].transforms, name) for name in left]
        seen |= study.run({composition_name(names): chain(study.baseline, names) for names in sets}).predictions
        tried = {names: compute_scores(seen[composition_name(names)], seed=seed) for names in sets}
        best = min(sets, key=lambda names: (tried[names].error, -tried[names].accuracy))
        path[-1] = replace(path[-1], next_errors={names[-1]: one.error for names, one in tried.items()})
        if tried[best].error >= path[-1].scores.error:
            break
        path.append(_step(best, seen, seed))
    limit = round((1 + TOLERANCE) * path[-1].scores.error, 12)
    chosen = next(step for step in path if round(step.scores.error, 12) <= limit)
    recipe = chain(study.baseline, chosen.transforms) if chosen.transforms else study.baseline
    info = study_info(study.settings, study.seeds, seen, result.noun, seed=seed)
    both = {"none": seen[BASELINE], "core": seen[composition_name(chosen.transforms) or BASELINE]}
    interval = difference_intervals(both, "none", seed=seed)["core"].error
    difference = Estimate(chosen.scores.error - path[0].scores.error, interval)
    return CoreSet(info, replace(recipe, seed=0), chosen, difference, tuple(path), len(seen) * len(study.seeds))


def _step(transforms: tuple[str, ...], predictions: Mapping[str, Predictions], seed: int) -> SearchStep:
    one = predictions[composition_name(transforms) or BASELINE]
    return SearchStep(transforms, compute_scores(one, seed=seed), compute_intervals({"": one}, seed=seed)[""].error)
