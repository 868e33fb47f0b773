"""A study of mixup: compared with weight decay, with different fractions of same-class partners, and what it corrects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import Unpack

from outspan.config import Recipe
from outspan.data.sets import Data, noun_of
from outspan.data.stratify import hold_out
from outspan.figures.markup import display, figure_bytes
from outspan.files import Json, write_json
from outspan.measurement.effects import Estimate
from outspan.measurement.info import StudyInfo, study_info
from outspan.measurement.intervals import Interval, compute_intervals, difference_intervals
from outspan.measurement.mixup_margins import Margins, measure_margins
from outspan.measurement.recipes import BASELINE, study_recipe, unaugmented
from outspan.measurement.scores import Scores, compute_scores
from outspan.measurement.study import Study, StudyResult
from outspan.policies.table import find_policy
from outspan.recipe_keys import StudyKeys
from outspan.training.ensemble import is_batchable
from outspan.training.pool import Pool, Watch, no_progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRACTIONS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of partners with the same class
WEIGHT_DECAYS = (1e-4, 3e-4, 1e-3, 3e-3)
MARGINS_AT = (0.0, 0.5, 1.0)  # fractions for which the paper plots the margins (arXiv:2005.00695, Appendix on mixup)
_HELD_OUT = 6  # one in 6 training images is held out to choose the weight decay


@dataclass(frozen=True)
class Tuning:
    """The chosen weight decay, and how it was chosen."""

    weight_decay: float
    accuracies: Mapping[float, float]  # by weight decay, on held-out training images; empty if there is only one value
    held_out: int  # number of held-out images

    def as_dict(self) -> dict[str, Json]:
        """Return what mixup.json contains."""
        accuracies = {repr(value): accuracy for value, accuracy in self.accuracies.items()}
        return {"chosen": self.weight_decay, "held_out": self.held_out, "accuracy": accuracies}


@dataclass(frozen=True)
class SameClassScores:
    """The scores of mixup with a fraction of same-class partners."""

    fraction: float
    scores: Scores
    instability_interval: Interval

    def as_dict(self) -> dict[str, Json]:
        """Return what mixup.json contains."""
        return {
            "share": self.fraction,  # stored files keep this name
            **self.scores.brief(),
            "instability_interval": list(self.instability_interval),
        }


@dataclass(frozen=True)
class MixupStudy:
    """The result of `study_mixup`."""

    info: StudyInfo
    tuning: Tuning
    baseline: Scores  # with the weight decay of the recipe
    weight_decay: Scores  # with the chosen weight decay, without mixup
    mixup: Scores  # with the chosen weight decay and mixup
    difference: Estimate  # the error with mixup minus that with the chosen weight decay alone
    same_class: tuple[SameClassScores, ...]  # by fraction of same-class partners
    margins: Margins

    def as_dict(self) -> dict[str, Json]:
        """Return what mixup.json contains."""
        table = {BASELINE: self.baseline.brief(), "l2": self.weight_decay.brief(), "mixup": self.mixup.brief()}
        if scores := [one.scores for one in self.same_class if one.fraction == 1]:
            table["same_class"] = scores[0].brief()
        return self.info.as_dict() | {
            "weight_decay": self.tuning.as_dict(),
            "scores": table,
            "difference": self.difference.as_dict(),
            "same_class": [one.as_dict() for one in self.same_class],
            "margins": self.margins.as_dict(),
        }

    def save(self, folder: Path) -> None:
        """Write mixup.json into a folder."""
        write_json(folder / "mixup.json", self.as_dict())

    def figure(self) -> "Figure":
        """Return a figure of the instability over the fraction of same-class partners, and of the margins."""
        from outspan.figures.measure import Estimate, mixup_figure

        curve = [Estimate(one.fraction, one.scores.instability, one.instability_interval) for one in self.same_class]
        levels = {"baseline": self.baseline.instability, "weight decay": self.weight_decay.instability}
        corrected = {f"{100 * one.fraction:.12g} % same class": one.histogram for one in self.margins.corrected}
        return mixup_figure(curve, levels, self.margins.right, self.margins.wrong, corrected)

    def _repr_html_(self) -> str:
        """Return the scores and the figure, for notebooks."""
        scores = {"baseline": self.baseline, "weight decay": self.weight_decay, "mixup": self.mixup}
        rows = [(name, f"{100 * one.error:.2f}", f"{100 * one.instability:.2f}") for name, one in scores.items()]
        return display(["", "error, %", "instability, %"], rows, self.info.test_set, self.figure())

    def _repr_png_(self) -> bytes:
        """Return the figure, for notebooks."""
        return figure_bytes(self.figure())


def study_mixup(
    recipe: Recipe | Path | str | None = None,
    *,
    weight_decays: Sequence[float] = WEIGHT_DECAYS,
    fractions: Sequence[float] = FRACTIONS,
    seeds: int | Sequence[int] = 9,
    out: Path | str,
    shared_batches: bool = False,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    gpus_per_run: float | None = None,
    device: str | None = None,
    watch: Watch = no_progress,
    **keys: Unpack[StudyKeys],
) -> MixupStudy:
    """Train several seeds with and without mixup, and return their scores, and the margins of the images that change.

    The result is also written to `out`/mixup.json.

    Args:
        weight_decays: values to choose from. The value with the best accuracy on held-out training images is used with
            mixup. More than one value needs an mlp.
        fractions: fractions of mixing partners that have the class of the image.

    The other arguments are those of `measure`.
    """
    baseline = mixup_baseline(study_recipe("mixup", recipe, keys))
    check_values(baseline, weight_decays, fractions)
    pool = Pool(jobs, engine, address, gpus_per_run)
    study = Study(baseline, seeds=seeds, out=out, shared_batches=shared_batches, device=device, pool=pool, watch=watch)
    tuning = tune(study, weight_decays)
    result = summarize_mixup(study.run(mixup_recipes(baseline, tuning.weight_decay, fractions)), tuning, fractions)
    result.save(study.folder.out)
    return result


def mixup_baseline(recipe: Recipe) -> Recipe:
    """Return the recipe without mixup: with crop and flip, if the data set uses them, and the recipe's weight decay."""
    return replace(unaugmented(recipe), policy="baseline")


def mixup_recipes(baseline: Recipe, weight_decay: float, fractions: Sequence[float] = FRACTIONS) -> dict[str, Recipe]:
    """Return the recipes of the study by name: the baseline, weight decay alone, mixup, and mixup by fraction."""
    decayed = replace(baseline, weight_decay=weight_decay)
    mixed = replace(decayed, defaults="mixup")
    by_fraction = {same_class_name(one, weight_decay): replace(mixed, same_class=one) for one in fractions}
    return {BASELINE: baseline, f"l2-{weight_decay!r}": decayed, f"mixup-{weight_decay!r}": mixed, **by_fraction}


def same_class_name(fraction: float, weight_decay: float) -> str:
    """Return the name of mixup with a fraction of same-class partners in the folder of a study."""
    return f"same-class-{fraction!r}-l2-{weight_decay!r}"  # all digits, so that different values have different names


def check_values(baseline: Recipe, weight_decays: Sequence[float], fractions: Sequence[float] = FRACTIONS) -> None:
    """Refuse values that the study cannot use."""
    if (noun := noun_of(baseline.data)) not in find_policy("mixup").nouns:
        raise ValueError(f"mixup is not for {noun}, got data {baseline.data!r}: use images")
    if not weight_decays or not all(0 <= value < float("inf") for value in weight_decays):
        raise ValueError(f"weight decays must be 0 or more, at least one, got {list(weight_decays)}")
    if not fractions or not all(0 <= fraction <= 1 for fraction in fractions):
        raise ValueError(f"fractions of the same class must lie in [0, 1], at least one, got {list(fractions)}")
    if len(set(weight_decays)) > 1 and not is_batchable(baseline):
        raise ValueError(
            f"choosing among weight decays needs an mlp without validation images, got {baseline.model}: "
            f"pass one value, e.g. --l2 {baseline.weight_decay:g}"
        )


def tune(study: Study, weight_decays: Sequence[float]) -> Tuning:
    """Return the weight decay with the best mean accuracy on held-out training images. A single value is not tested."""
    check_values(study.baseline, weight_decays)
    values = list(dict.fromkeys(weight_decays))
    if len(values) == 1:
        return Tuning(values[0], {}, 0)
    data = study.data
    train, held_out = hold_out(data.train, len(data.train) // _HELD_OUT, 0)
    if held_out is None:
        raise ValueError(f"at least {_HELD_OUT} training images are needed to choose a weight decay, got {len(data.train)}")
    tuning = Study(
        study.baseline,
        seeds=study.seeds,
        out=study.folder.out / "tuning",
        shared_batches=study.shared_batches,
        device=study.device,
        watch=study.watch,
        data=Data(data.name, train, held_out, data.classes),
    )
    recipes = {f"l2-{value!r}": replace(study.baseline, weight_decay=value) for value in values}
    predictions = tuning.run(recipes).predictions
    accuracies = {value: compute_scores(predictions[f"l2-{value!r}"]).accuracy for value in values}
    return Tuning(max(values, key=lambda value: accuracies[value]), accuracies, len(held_out))


def summarize_mixup(
    result: StudyResult, tuning: Tuning, fractions: Sequence[float] = FRACTIONS, *, seed: int = 0
) -> MixupStudy:
    """Return the scores and margins of the models of `mixup_recipes`. `seed` decides tied votes and the resampling."""
    decay, ensembles = tuning.weight_decay, result.predictions
    score_intervals = compute_intervals(ensembles, seed=seed)
    names = {fraction: same_class_name(fraction, decay) for fraction in fractions}
    curve = [
        SameClassScores(fraction, compute_scores(ensembles[name], seed=seed), score_intervals[name].instability)
        for fraction, name in names.items()
    ]
    mixed, decayed = (ensembles[f"{name}-{decay!r}"] for name in ("mixup", "l2"))
    interval = difference_intervals({"l2": decayed, "mixup": mixed}, "l2", seed=seed)["mixup"].error
    scores = {name: compute_scores(one, seed=seed) for name, one in (("l2", decayed), ("mixup", mixed))}
    drawn = {fraction: names[fraction] for fraction in MARGINS_AT if fraction in names} or names
    return MixupStudy(
        study_info(result.settings, result.seeds, ensembles, result.noun, seed=seed),
        tuning,
        compute_scores(ensembles[BASELINE], seed=seed),
        scores["l2"],
        scores["mixup"],
        Estimate(scores["mixup"].error - scores["l2"].error, interval),
        tuple(curve),
        measure_margins(result, f"mixup-{decay!r}", drawn, seed=seed),
    )
