"""Core sets: the few transforms, one after another, that do nearly as well as the best that a greedy search finds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from outspan.config import Recipe
from outspan.measurement.compose import name_of, summary
from outspan.measurement.scores import intervals
from outspan.measurement.study import BASELINE, Measured, Study, check_transforms, one_after_another
from outspan.measurement.summary import about

WITHIN = 0.1  # of the best error score


@dataclass(frozen=True)
class Core:
    """A core set: the recipe that trains with it, and how it was found, as numbers."""

    recipe: Recipe
    found: dict[str, Any]


def core(study: Study, transforms: Sequence[str], *, seed: int = 0) -> Core:
    """Add, one at a time and after those so far, the transform that lowers the error most, until none lowers it.

    The core is the shortest of these sets, none included, whose error is within 10 % of the lowest. All are judged by the same
    test images, so the lowest error is a little too good: it is the luckiest of those tried.
    """
    check_transforms(study.baseline, transforms)
    measured = study.run({BASELINE: study.baseline})
    path, seen = [_entry([], measured, seed)], dict(measured.predictions)
    while left := [name for name in transforms if name not in path[-1]["transforms"]]:
        sets = [[*path[-1]["transforms"], name] for name in left]
        measured = study.run({name_of(some): one_after_another(study.baseline, some) for some in sets})
        seen |= measured.predictions
        tried = {some[-1]: summary(measured.predictions[name_of(some)], seed) for some in sets}
        best = min(sets, key=lambda some: (tried[some[-1]]["error"], -tried[some[-1]]["accuracy"]))
        path[-1]["then"] = {name: entry["error"] for name, entry in tried.items()}
        if tried[best[-1]]["error"] >= path[-1]["error"]:
            break
        path.append(_entry(best, measured, seed))
    enough = round((1 + WITHIN) * path[-1]["error"], 12)
    chosen = next(entry for entry in path if round(entry["error"], 12) <= enough)
    names = chosen["transforms"]
    recipe = one_after_another(study.baseline, names) if names else study.baseline
    probability = study.baseline.probability
    cost = {"transforms_an_image": len(names) * probability, "models": len(seen) * len(study.seeds)}
    return Core(
        replace(recipe, seed=0),
        {
            **about(study.settings, study.seeds, seen, seed=seed),
            "core": names,
            "error": chosen["error"],
            "best": {"transforms": path[-1]["transforms"], "error": path[-1]["error"]},
            "within": WITHIN,
            "cost": cost,
            "path": path,
        },
    )


def _entry(names: Sequence[str], measured: Measured, seed: int) -> dict[str, Any]:
    some = measured.predictions[name_of(names) or BASELINE]
    around = intervals({"": some}, seed=seed)[""].error
    return {"transforms": list(names), **summary(some, seed), "interval": list(around)}
