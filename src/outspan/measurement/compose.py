"""Which transforms help one another: every pair of a set, and the directed graph of those that cut the error score."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

from outspan.config import Recipe
from outspan.data.sets import is_textual
from outspan.measurement.scores import Predictions, difference_intervals, scores
from outspan.measurement.study import BASELINE, Measured, Study, configurations, one_after_another
from outspan.measurement.summary import about

CUT = 0.1  # an edge is a pair whose error is lower than the first's by more than this share (arXiv:2005.00695, Section 4)


def name_of(transforms: Sequence[str], *, additive: bool = False) -> str:
    """Return what a composition is called in a study's folder: "rotate+cutout" one after the other, "rotate&cutout" blended."""
    return ("&" if additive else "+").join(transforms)


def compositions(baseline: Recipe, transforms: Sequence[str], *, additive: bool = False) -> dict[str, Recipe]:
    """Return the recipes of the baseline, of each transform alone, and of every pair: ordered, or blended in no order."""
    if len(set(transforms)) < 2:
        raise ValueError(f"compositions need at least 2 different transforms, got {list(transforms)}")
    if additive and is_textual(baseline.data):
        raise ValueError(f"images are blended, texts are not: additive compositions of {baseline.data!r} cannot be made")
    found = configurations(baseline, transforms, baseline.probability)
    for pair in combinations(transforms, 2) if additive else permutations(transforms, 2):
        recipe = one_after_another(found[BASELINE], pair)
        found[name_of(pair, additive=additive)] = replace(recipe, policy="blend") if additive else recipe
    return found


def compose(study: Study, transforms: Sequence[str], *, additive: bool = False) -> Measured:
    """Train what is missing of the compositions of every two transforms, and return what all of them predict."""
    return study.run(compositions(study.baseline, transforms, additive=additive))


def graph(measured: Measured, transforms: Sequence[str], *, additive: bool = False, seed: int = 0) -> dict[str, Any]:
    """Return the scores of all, and of every ordered pair by how much the second cuts the error of the first alone.

    Blending has no order, so there both directions are of the same models, against another one alone.
    """
    several = measured.predictions
    pairs = []
    for first in transforms:
        others = {second: _pair(several, first, second, additive) for second in transforms if second != first}
        apart = difference_intervals({first: several[first], **others}, first, seed=seed)
        alone = scores(several[first], seed=seed).error
        for second, some in others.items():
            entry = summary(some, seed)
            cut = round(1 - entry["error"] / alone, 12) if alone else 0.0  # a tenth is a tenth, not a rounding more
            difference = {"value": entry["error"] - alone, "interval": list(apart[second].error)}
            pairs.append({"first": first, "second": second, **entry, "difference": difference, "cut": cut, "edge": cut > CUT})
    return {
        **about(measured.settings, measured.seeds, several, seed=seed),
        "composition": "additive" if additive else "multiplicative",
        "edge": f"the second, {'blended into' if additive else 'after'} the first, cuts its error by more than {CUT:.0%}",
        BASELINE: summary(several[BASELINE], seed),
        "transforms": {name: summary(several[name], seed) for name in transforms},
        "pairs": pairs,
        "edges": [[pair["first"], pair["second"]] for pair in pairs if pair["edge"]],
    }


def _pair(several: Mapping[str, Predictions], first: str, second: str, additive: bool) -> Predictions:
    name = name_of((first, second), additive=additive)
    return several[name if name in several else name_of((second, first), additive=additive)]


def summary(some: Predictions, seed: int = 0) -> dict[str, float]:
    """Return the scores of some models in a few numbers."""
    whole = scores(some, seed=seed)
    return {"accuracy": whole.accuracy, "std": whole.std, "error": whole.error, "instability": whole.instability}
