"""The margins of the images that mixup corrects, compared with those of all images."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from outspan.files import Json
from outspan.measurement.margins import histogram
from outspan.measurement.recipes import BASELINE
from outspan.measurement.scores import corrected_and_broken, find_majority
from outspan.measurement.study import StudyResult


@dataclass(frozen=True)
class Corrected:
    """The images that mixup, with a fraction of same-class partners, corrects and breaks."""

    fraction: float
    count: int  # of corrected images
    broken: int
    baseline_accuracy: float | None  # of the baseline's single models on the corrected images; None if there are none
    mean_margin: float | None  # of the baseline on the corrected images
    histogram: tuple[int, ...]  # of these margins

    def as_dict(self) -> dict[str, Json]:
        """Return what mixup.json contains."""
        return {
            "share": self.fraction,  # stored files keep this name
            "count": self.count,
            "broken": self.broken,
            "baseline_accuracy": self.baseline_accuracy,
            "mean_margin": self.mean_margin,
            "histogram": list(self.histogram),
        }


@dataclass(frozen=True)
class Margins:
    """Histograms of margins, averaged over seeds, with 10 bins from 0 to 1."""

    right: Mapping[str, list[int]]  # of the baseline and of mixup, where the vote of the baseline is right
    wrong: Mapping[str, list[int]]  # the same, where the vote of the baseline is wrong
    corrected: tuple[Corrected, ...]
    mean_of_wrong: float | None  # mean margin of the baseline, where its vote is wrong; None if it is never wrong

    def as_dict(self) -> dict[str, Json]:
        """Return what mixup.json contains."""
        return {
            "bins": "10 of equal width from 0 to 1, margins averaged over seeds",
            "right": dict(self.right),
            "wrong": dict(self.wrong),
            "corrected": [one.as_dict() for one in self.corrected],
            "mean_margin_of_wrong": self.mean_of_wrong,
        }


def measure_margins(result: StudyResult, mixup: str, same_class: Mapping[float, str], *, seed: int = 0) -> Margins:
    """Return the margins of a study of mixup.

    Args:
        result: the predictions and margins of all configurations.
        mixup: the name of the configuration with mixup.
        same_class: by fraction of same-class partners, the name of the configuration.
        seed: decides tied votes.
    """
    ensembles = result.predictions
    margins = {name: result.margins[name].double().mean(0) for name in (BASELINE, mixup)}
    right = find_majority(ensembles[BASELINE], seed=seed).classes == ensembles[BASELINE].labels
    baseline, mixed = margins[BASELINE], margins[mixup]
    on_right = {"baseline": histogram(baseline[right]), "mixup": histogram(mixed[right])}
    on_wrong = {"baseline": histogram(baseline[~right]), "mixup": histogram(mixed[~right])}
    corrected = []
    for fraction, name in same_class.items():
        changes = corrected_and_broken(ensembles[name], ensembles[BASELINE], seed=seed)
        values = baseline[changes.corrected]
        counts = len(values), len(changes.broken)
        mean = _mean(values)
        corrected.append(Corrected(fraction, *counts, changes.baseline_accuracy_on_corrected, mean, tuple(histogram(values))))
    return Margins(on_right, on_wrong, tuple(corrected), _mean(baseline[~right]))


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if len(values) else None
