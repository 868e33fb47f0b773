"""Pairs of transforms: which second transform reduces the error of the first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import Unpack

from outspan.config import Recipe
from outspan.data.sets import noun_of
from outspan.figures.markup import display, figure_bytes
from outspan.files import Json, write_json
from outspan.measurement.effects import Estimate
from outspan.measurement.info import StudyInfo, study_info
from outspan.measurement.intervals import difference_intervals
from outspan.measurement.predictions import Predictions
from outspan.measurement.recipes import (
    BASELINE,
    PAPER_FIVE,
    baseline_recipe,
    chain,
    select_transforms,
    single_transforms,
    study_recipe,
)
from outspan.measurement.scores import Scores, compute_scores
from outspan.measurement.study import Study, StudyResult
from outspan.policies.table import find_policy
from outspan.recipe_keys import StudyKeys
from outspan.training.pool import Pool, Watch, no_progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A pair is an edge if it reduces the error of its first transform by a larger fraction (arXiv:2005.00695, Section 4).
REDUCTION = 0.1


@dataclass(frozen=True)
class Pair:
    """A composition of two transforms, compared with the first transform alone."""

    first: str
    second: str
    scores: Scores
    difference: Estimate  # the error of the pair minus the error of the first transform
    reduction: float  # the fraction by which the pair reduces the error of the first transform

    @property
    def is_edge(self) -> bool:
        """Whether the reduction is more than 10 %."""
        return self.reduction > REDUCTION

    @property
    def is_significant(self) -> bool:
        """Whether the 95 % interval of the difference is below 0."""
        return self.difference.interval.high < 0

    def as_dict(self) -> dict[str, Json]:
        """Return what the JSON file contains for a pair."""
        values = {"first": self.first, "second": self.second, **self.scores.brief()}
        return values | {"difference": self.difference.as_dict(), "cut": self.reduction, "edge": self.is_edge}


@dataclass(frozen=True)
class CompositionGraph:
    """The result of `compose`: the scores of every pair, and the edges from A to B where B reduces the error of A."""

    info: StudyInfo
    additive: bool  # whether both outputs are blended, instead of applying one transform after the other
    baseline: Scores
    transforms: Mapping[str, Scores]  # the scores of each transform alone
    pairs: tuple[Pair, ...]

    @property
    def edges(self) -> tuple[Pair, ...]:
        """The pairs that reduce the error of the first transform by more than 10 %."""
        return tuple(pair for pair in self.pairs if pair.is_edge)

    @property
    def name(self) -> str:
        """The name of its files, without the suffix."""
        return "composition-additive" if self.additive else "composition"

    def as_dict(self) -> dict[str, Json]:
        """Return what the JSON file contains."""
        order = "blended into" if self.additive else "after"
        return self.info.as_dict() | {
            "composition": "additive" if self.additive else "multiplicative",
            "edge": f"the second, {order} the first, cuts its error by more than {REDUCTION:.0%}",
            BASELINE: self.baseline.brief(),
            "transforms": {name: one.brief() for name, one in self.transforms.items()},
            "pairs": [pair.as_dict() for pair in self.pairs],
            "edges": [[pair.first, pair.second] for pair in self.edges],
        }

    def save(self, folder: Path) -> None:
        """Write composition.json, or composition-additive.json, into a folder."""
        write_json(folder / f"{self.name}.json", self.as_dict())

    def figure(self) -> "Figure":
        """Return a figure of the transforms with an arrow for each edge."""
        from outspan.figures.measure import Arrow, graph_figure

        arrows = [Arrow(pair.first, pair.second, pair.reduction, pair.is_significant) for pair in self.edges]
        order = "blending B into A" if self.additive else "B after A"
        title = f"A → B: {order} reduces the error of A alone (in the box) by more than 10 %"
        title += f"\n{self.info.test_set}; dashed: not significant (95 % interval)"
        return graph_figure({name: one.error for name, one in self.transforms.items()}, arrows, title)

    def _repr_html_(self) -> str:
        """Return the pairs that reduce the error of their first transform, and the graph, for notebooks."""
        edges = sorted(self.edges, key=lambda pair: -pair.reduction)
        rows = [
            (f"{pair.first} → {pair.second}", f"{100 * pair.scores.error:.2f}", f"{100 * pair.reduction:.0f}") for pair in edges
        ]
        caption = f"Pairs that reduce the error of their first transform by more than 10 %; {self.info.test_set}"
        return display(["pair", "error, %", "reduction, %"], rows, caption, self.figure())

    def _repr_png_(self) -> bytes:
        """Return the figure, for notebooks."""
        return figure_bytes(self.figure())


def compose(
    recipe: Recipe | Path | str | None = None,
    *,
    transforms: str | Sequence[str] = PAPER_FIVE,
    additive: bool = False,
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
) -> CompositionGraph:
    """Train several seeds of each transform and of every pair, and return by how much pairs reduce the error.

    In a folder of `measure` with the same settings, the baseline and the single transforms are not trained again. The
    result is also written to `out`/composition.json, or composition-additive.json.

    Args:
        transforms: at least 2 names of transforms, or "all".
        additive: blend both outputs equally, instead of applying the second transform after the first.

    The other arguments are those of `measure`.
    """
    base = study_recipe("compose", recipe, keys)
    names = select_transforms(transforms, base)
    recipes = compositions(baseline_recipe(base, probability), names, additive=additive)
    baseline = recipes[BASELINE]
    pool = Pool(jobs, engine, address, gpus_per_run)
    study = Study(baseline, seeds=seeds, out=out, shared_batches=shared_batches, device=device, pool=pool, watch=watch)
    graph = build_graph(study.run(recipes), names, additive=additive)
    graph.save(study.folder.out)
    return graph


def composition_name(transforms: Sequence[str], *, additive: bool = False) -> str:
    """Return the name of a composition in the folder of a study: "rotate+cutout", or "rotate&cutout" if blended."""
    return ("&" if additive else "+").join(transforms)


def compositions(baseline: Recipe, transforms: Sequence[str], *, additive: bool = False) -> dict[str, Recipe]:
    """Return the recipes of the baseline, of each transform alone, and of every pair: in both orders, or blended."""
    if len(set(transforms)) < 2:
        raise ValueError(f"compositions need at least 2 different transforms, got {list(transforms)}")
    if additive and (noun := noun_of(baseline.data)) not in find_policy("blend").nouns:
        raise ValueError(f"additive compositions are not for {noun}, got data {baseline.data!r}: use images")
    recipes = single_transforms(baseline, transforms)
    for pair in combinations(transforms, 2) if additive else permutations(transforms, 2):
        recipe = chain(baseline, pair)
        recipe = replace(recipe, policy="blend") if additive else recipe
        recipes[composition_name(pair, additive=additive)] = recipe
    return recipes


def build_graph(result: StudyResult, transforms: Sequence[str], *, additive: bool = False, seed: int = 0) -> CompositionGraph:
    """Return the scores of all compositions, and for every ordered pair how much the second reduces the error of the first.

    A blend has no order, so both directions have the same models, compared with different single transforms.
    """
    ensembles = result.predictions
    pairs = []
    for first in transforms:
        others = {second: _find(ensembles, first, second, additive) for second in transforms if second != first}
        differences = difference_intervals({first: ensembles[first], **others}, first, seed=seed)
        alone = compute_scores(ensembles[first], seed=seed).error
        for second, predictions in others.items():
            together = compute_scores(predictions, seed=seed)
            # Rounded, so that a reduction by exactly 10 % is not more than 10 %.
            reduction = round(1 - together.error / alone, 12) if alone else 0.0
            difference = Estimate(together.error - alone, differences[second].error)
            pairs.append(Pair(first, second, together, difference, reduction))
    return CompositionGraph(
        study_info(result.settings, result.seeds, ensembles, result.noun, seed=seed),
        additive,
        compute_scores(ensembles[BASELINE], seed=seed),
        {name: compute_scores(ensembles[name], seed=seed) for name in transforms},
        tuple(pairs),
    )


def _find(ensembles: Mapping[str, Predictions], first: str, second: str, additive: bool) -> Predictions:
    """Return the predictions of a pair. A blend is stored in one of the two orders."""
    name = composition_name((first, second), additive=additive)
    return ensembles[name if name in ensembles else composition_name((second, first), additive=additive)]
