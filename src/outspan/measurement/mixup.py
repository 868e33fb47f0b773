"""Studies of mixup: what partners of the same class do, how it compares with weight decay, and which images it corrects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from outspan.config import Recipe
from outspan.data.sets import Data, hold_out, is_textual
from outspan.measurement.compose import summary
from outspan.measurement.margins import histogram
from outspan.measurement.scores import corrected_and_broken, intervals, majority
from outspan.measurement.study import BASELINE, Measured, Study, unaugmented
from outspan.measurement.summary import about
from outspan.training.ensemble import is_batchable

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of partners that are of an image's own class
CORRECTED_AT = (0.0, 0.5, 1.0)  # whose corrected images the paper draws (arXiv:2005.00695, Appendix on mixup)
_HELD_OUT = 6  # one in so many train images, for choosing the weight decay


@dataclass(frozen=True)
class Tuned:
    """A weight decay, and the accuracy on held-out train images of all that were tried, if it was chosen."""

    weight_decay: float
    tried: Mapping[float, float]
    held_out: int


def baseline_of(recipe: Recipe) -> Recipe:
    """Return the recipe without mixing: crop and flip where the data set takes them, and its own weight decay."""
    return replace(unaugmented(recipe), policy="baseline")


def configurations(baseline: Recipe, weight_decay: float, shares: Sequence[float] = SHARES) -> dict[str, Recipe]:
    """Return the recipes of a study, by name: the baseline, weight decay alone, mixup, and mixup by share of the same class."""
    decayed = replace(baseline, weight_decay=weight_decay)
    mixed = replace(decayed, defaults="mixup")
    by_share = {same_class(share, weight_decay): replace(mixed, same_class=share) for share in shares}
    return {BASELINE: baseline, f"l2-{weight_decay!r}": decayed, f"mixup-{weight_decay!r}": mixed, **by_share}


def same_class(share: float, weight_decay: float) -> str:
    """Return what mixup with a share of partners of the same class is called in a study's folder."""
    return f"same-class-{share!r}-l2-{weight_decay!r}"  # whole: no two are called alike


def check_asked(baseline: Recipe, weight_decays: Sequence[float], shares: Sequence[float] = SHARES) -> None:
    """Refuse what a study of mixup cannot be asked, before anything is made."""
    if is_textual(baseline.data):
        raise ValueError(f"mixup is for images, got the text {baseline.data!r}")
    if not weight_decays or not all(0 <= value < float("inf") for value in weight_decays):
        raise ValueError(f"weight decays must be 0 or more, at least one, got {list(weight_decays)}")
    if not shares or not all(0 <= share <= 1 for share in shares):
        raise ValueError(f"shares of the same class must lie in [0, 1], at least one, got {list(shares)}")
    if len(set(weight_decays)) > 1 and not is_batchable(baseline):
        raise ValueError(
            f"choosing among weight decays needs an mlp without validation images, got {baseline.model}: "
            f"give one, e.g. --l2 {baseline.weight_decay:g}"
        )


def tune(study: Study, weight_decays: Sequence[float]) -> Tuned:
    """Return the weight decay with the best accuracy on train images held out, averaged over seeds; one alone is not tried."""
    check_asked(study.baseline, weight_decays)
    tried = list(dict.fromkeys(weight_decays))
    if len(tried) == 1:
        return Tuned(tried[0], {}, 0)
    data = study.data
    kept, held = hold_out(data.train, len(data.train) // _HELD_OUT, 0)
    if held is None:
        raise ValueError(f"there are too few train images to hold some out, got {len(data.train)}")
    apart = Study(
        study.baseline,
        seeds=study.seeds,
        out=study.folder.out / "tuning",
        shared_batches=study.shared_batches,
        device=study.device,
        watch=study.watch,
        data=Data(data.name, kept, held, data.classes),
    )
    recipes = {f"l2-{value!r}": replace(study.baseline, weight_decay=value) for value in tried}
    found = apart.run(recipes).predictions
    accuracies = {value: summary(found[f"l2-{value!r}"])["accuracy"] for value in tried}
    return Tuned(max(tried, key=lambda value: accuracies[value]), accuracies, len(held))


def study_mixup(study: Study, weight_decays: Sequence[float], shares: Sequence[float] = SHARES) -> tuple[Measured, Tuned]:
    """Train what is missing of a study of mixup, and return what all predict and the weight decay that they have."""
    check_asked(study.baseline, weight_decays, shares)
    tuned = tune(study, weight_decays)
    return study.run(configurations(study.baseline, tuned.weight_decay, shares)), tuned


def mixup_summary(measured: Measured, tuned: Tuned, shares: Sequence[float] = SHARES, *, seed: int = 0) -> dict[str, Any]:
    """Return the scores beside one another, the curve over the share of the same class, and the margins, as numbers."""
    decay, several = tuned.weight_decay, measured.predictions
    table = {BASELINE: BASELINE, "l2": f"l2-{decay!r}", "mixup": f"mixup-{decay!r}"}
    if 1.0 in shares:
        table["same_class"] = same_class(1.0, decay)
    around = intervals(several, seed=seed)
    curve = [
        {
            "share": share,
            **summary(several[same_class(share, decay)], seed),
            "instability_interval": list(around[same_class(share, decay)].instability),
        }
        for share in shares
    ]
    tried = {repr(value): accuracy for value, accuracy in tuned.tried.items()}
    return {
        **about(measured.settings, measured.seeds, several, seed=seed),
        "weight_decay": {"chosen": decay, "held_out": tuned.held_out, "accuracy": tried},
        "scores": {name: summary(several[run], seed) for name, run in table.items()},
        "same_class": curve,
        "margins": _margins(measured, decay, [share for share in CORRECTED_AT if share in shares] or shares, seed),
    }


def _margins(measured: Measured, decay: float, shares: Sequence[float], seed: int) -> dict[str, Any]:
    """Return histograms of margins, averaged over seeds: where the baseline's vote is right, is wrong, and is corrected."""
    several, mean = measured.predictions, {name: own.double().mean(0) for name, own in measured.margins.items()}
    right = majority(several[BASELINE], seed=seed).classes == several[BASELINE].labels
    mixed = f"mixup-{decay!r}"
    found: dict[str, Any] = {"bins": "10 of equal width from 0 to 1, margins averaged over seeds"}
    for kind, where in (("right", right), ("wrong", ~right)):
        found[kind] = {"baseline": histogram(mean[BASELINE][where]), "mixup": histogram(mean[mixed][where])}
    found["corrected"] = []
    for share in shares:
        changes = corrected_and_broken(several[same_class(share, decay)], several[BASELINE], seed=seed)
        own = mean[BASELINE][changes.corrected]
        found["corrected"].append(
            {
                "share": share,
                "count": len(own),
                "broken": len(changes.broken),
                "baseline_accuracy": changes.baseline_on_corrected,
                "mean_margin": float(own.mean()) if len(own) else None,
                "histogram": histogram(own),
            }
        )
    wrong = mean[BASELINE][~right]
    return found | {"mean_margin_of_wrong": float(wrong.mean()) if len(wrong) else None}
