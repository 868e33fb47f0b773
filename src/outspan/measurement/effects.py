"""The effect of each transform on error, instability and accuracy, compared with the baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from outspan.figures.markup import display, figure_bytes
from outspan.files import Json, write_json, write_whole
from outspan.measurement.info import StudyInfo, study_info
from outspan.measurement.intervals import Interval, Intervals, compute_intervals, difference_intervals
from outspan.measurement.predictions import Predictions, save_predictions
from outspan.measurement.recipes import BASELINE
from outspan.measurement.scores import Scores, compute_scores, corrected_and_broken, scores_by_class
from outspan.measurement.study import StudyResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from outspan.figures.measure import Point

Verdict = Literal["better", "worse", "no significant difference"]
LEVEL, DRAWS = 0.95, 1000  # confidence level of the intervals, and number of resampled test sets
FEW = 3  # this number of seeds, the first ones, is also scored alone, as in the paper's Appendix B
_STORED_VERDICTS = {"no significant difference": "not told apart"}  # the name in scores.json, which must not change


@dataclass(frozen=True)
class Estimate:
    """A score and its confidence interval."""

    value: float
    interval: Interval

    @property
    def is_significant(self) -> bool:
        """Whether the interval does not contain 0."""
        return self.interval.low > 0 or self.interval.high < 0

    def as_dict(self) -> dict[str, Json]:
        """Return the value and the interval by name."""
        return {"value": self.value, "interval": list(self.interval)}


@dataclass(frozen=True)
class EnsembleScores:
    """The scores of the models of one configuration, one model per seed."""

    accuracy: Estimate
    accuracy_std: float  # over seeds
    accuracy_by_seed: tuple[float, ...]
    error: Estimate  # of the majority vote
    instability: Estimate
    ties: int
    by_class: Mapping[str, Scores] = field(repr=False)
    first_seeds: Scores | None = None  # of the first 3 seeds alone, if there are more

    def as_dict(self) -> dict[str, Json]:
        """Return what scores.json contains for a configuration."""
        accuracy = {"value": self.accuracy.value, "std": self.accuracy_std, "interval": list(self.accuracy.interval)}
        values: dict[str, Json] = {
            "accuracy": accuracy | {"by_seed": list(self.accuracy_by_seed)},
            "error": self.error.as_dict(),
            "instability": self.instability.as_dict(),
            "ties": self.ties,
        }
        if self.first_seeds is not None:
            few = asdict(self.first_seeds)
            values[f"first_{FEW}_seeds"] = {key: few[key] for key in ("accuracy", "error", "instability", "ties")}
        values["by_class"] = {name: asdict(one) for name, one in self.by_class.items()}
        return values


@dataclass(frozen=True)
class Effect:
    """The scores of a transform minus those of the baseline, and the samples whose vote changes."""

    accuracy: Estimate
    error: Estimate
    instability: Estimate
    verdict: Verdict  # from the interval of the error
    corrected: int  # number of samples that only the vote with the transform gets right
    baseline_accuracy_on_corrected: float | None  # of the baseline's single models
    broken: int  # number of samples that only the vote of the baseline gets right
    accuracy_on_broken: float | None  # of the transform's single models

    def as_dict(self) -> dict[str, Json]:
        """Return what scores.json contains for the effect of a transform."""
        difference = {key: getattr(self, key).as_dict() for key in ("accuracy", "error", "instability")}
        return {
            "difference": difference | {"verdict": _STORED_VERDICTS.get(self.verdict, self.verdict)},
            "corrected": {"count": self.corrected, "baseline_accuracy": self.baseline_accuracy_on_corrected},
            "broken": {"count": self.broken, "accuracy": self.accuracy_on_broken},
        }


@dataclass(frozen=True)
class TransformResult:
    """A transform: the scores of its models and their difference from the baseline."""

    scores: EnsembleScores
    effect: Effect


@dataclass(frozen=True, eq=False)
class Measurement:
    """The result of `measure`: the scores of the baseline, and the scores and the effect of each transform."""

    info: StudyInfo
    baseline: EnsembleScores
    transforms: Mapping[str, TransformResult]
    predictions: Mapping[str, Predictions] = field(repr=False)  # of the baseline and of each transform
    earlier: tuple[str, ...] = ()  # transforms in `transforms` that an earlier call in the same folder measured
    unfinished: tuple[str, ...] = ()  # transforms of which the folder has only some seeds; they are not in `transforms`

    def by_verdict(self, verdict: Verdict) -> tuple[str, ...]:
        """Return the transforms with a verdict."""
        return tuple(name for name, result in self.transforms.items() if result.effect.verdict == verdict)

    def as_dict(self) -> dict[str, Json]:
        """Return what scores.json contains."""
        method = {"level": LEVEL, "draws": DRAWS, "over": "test samples; the models stay as they are"}
        transforms = {name: one.scores.as_dict() | one.effect.as_dict() for name, one in self.transforms.items()}
        return self.info.as_dict() | {"intervals": method, BASELINE: self.baseline.as_dict(), "transforms": transforms}

    def save(self, folder: Path) -> None:
        """Write scores.json and predictions.npz into a folder."""
        write = partial(save_predictions, predictions=self.predictions, seeds=self.info.seeds)
        write_whole(folder / "predictions.npz", write)
        write_json(folder / "scores.json", self.as_dict())

    def figure(self) -> "Figure":
        """Return a figure of the error against the instability of each transform."""
        from outspan.figures.measure import measure_figure

        points = {name: _point(one.scores, one.effect.verdict) for name, one in self.transforms.items()}
        title = f"{self.info.test_set}, 95 % intervals over {self.info.noun}"
        return measure_figure(_point(self.baseline), points, title)

    def _repr_html_(self) -> str:
        """Return the table and the figure, for notebooks."""
        rows = [(BASELINE, f"{100 * self.baseline.error.value:.2f}", f"{100 * self.baseline.instability.value:.2f}", "")]
        for name, one in self.transforms.items():
            scores = f"{100 * one.scores.error.value:.2f}", f"{100 * one.scores.instability.value:.2f}"
            rows.append((name, *scores, one.effect.verdict))
        columns = ["transform", "error, %", "instability, %", "verdict"]
        return display(columns, rows, self.info.test_set, self.figure())

    def _repr_png_(self) -> bytes:
        """Return the figure, for notebooks."""
        return figure_bytes(self.figure())


def _point(scores: EnsembleScores, verdict: str = "") -> "Point":
    from outspan.figures.measure import Point

    instability, error = scores.instability, scores.error
    return Point(instability.value, error.value, instability.interval, error.interval, verdict)


def summarize(
    result: StudyResult, *, earlier: Sequence[str] = (), unfinished: Sequence[str] = (), seed: int = 0
) -> Measurement:
    """Return the scores and effects of all configurations of a study. `seed` decides tied votes and the resampling."""
    ensembles = result.predictions
    score_intervals = compute_intervals(ensembles, level=LEVEL, draws=DRAWS, seed=seed)
    differences = difference_intervals(ensembles, BASELINE, level=LEVEL, draws=DRAWS, seed=seed)
    scored = {name: _score(one, score_intervals[name], result.classes, seed) for name, one in ensembles.items()}
    transforms = {}
    for name, difference in differences.items():
        changes = corrected_and_broken(ensembles[name], ensembles[BASELINE], seed=seed)
        effect = Effect(
            *_differences(scored[name], scored[BASELINE], difference),
            _verdict(difference.error),
            len(changes.corrected),
            changes.baseline_accuracy_on_corrected,
            len(changes.broken),
            changes.accuracy_on_broken,
        )
        transforms[name] = TransformResult(scored[name], effect)
    info = study_info(result.settings, result.seeds, ensembles, result.noun, seed=seed)
    return Measurement(info, scored[BASELINE], transforms, ensembles, tuple(earlier), tuple(unfinished))


def _score(predictions: Predictions, score_intervals: Intervals, classes: Sequence[str], seed: int) -> EnsembleScores:
    whole = compute_scores(predictions, seed=seed)
    right = (predictions.classes == predictions.labels).sum(1).tolist()
    by_class = {classes[label]: one for label, one in scores_by_class(predictions, seed=seed).items()}
    return EnsembleScores(
        Estimate(whole.accuracy, score_intervals.accuracy),
        whole.std,
        tuple(count / whole.samples for count in right),
        Estimate(whole.error, score_intervals.error),
        Estimate(whole.instability, score_intervals.instability),
        whole.ties,
        by_class,
        compute_scores(predictions.first(FEW), seed=seed) if len(predictions.classes) > FEW else None,
    )


def _differences(
    scored: EnsembleScores, baseline: EnsembleScores, difference: Intervals
) -> tuple[Estimate, Estimate, Estimate]:
    return (
        Estimate(scored.accuracy.value - baseline.accuracy.value, difference.accuracy),
        Estimate(scored.error.value - baseline.error.value, difference.error),
        Estimate(scored.instability.value - baseline.instability.value, difference.instability),
    )


def _verdict(error: Interval) -> Verdict:
    return "better" if error.high < 0 else "worse" if error.low > 0 else "no significant difference"
