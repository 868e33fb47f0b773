"""The function `outspan.evaluate`: how well a run classifies its test data, overall and per class."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from outspan import devices
from outspan.data.dataset import Data
from outspan.data.stratify import MORE_TEST_SAMPLES, warn_missing_classes
from outspan.figures.markup import display, figure_bytes
from outspan.files import expand_home
from outspan.models.evaluating import on_device
from outspan.models.precision import in_precision
from outspan.policies.objectives import find_objective
from outspan.shapes import Float64, Int64, Labels, describe
from outspan.training.evaluation_data import EvaluationData, Part, load_evaluation_data, use_splits
from outspan.training.label_metrics import (
    LabelMetrics,
    LabelScores,
    compute_label_intervals,
    compute_label_metrics,
    scores_by_label,
)
from outspan.training.logits import compute_logits
from outspan.training.metrics import (
    Bin,
    ClassScores,
    Metrics,
    calibration_bins,
    compute_intervals,
    compute_metrics,
    confusion_matrix,
    scores_by_class,
)
from outspan.training.trained import Trained, as_trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure


METRIC_NAMES = {
    "accuracy": "accuracy",
    "map": "average precision, mean (mAP)",
    "micro_f1": "F1, over all labels",
    "label_accuracy": "accuracy, over all labels",
    "top5": "top-5 accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "F1, mean over classes",
    "weighted_f1": "F1, weighted by class size",
    "auroc": "AUROC, each class against the rest",
    "ece": "calibration error (ECE)",
}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How well a run classifies its test data. Numbers are computed when they are first read."""

    probabilities: Float64[Tensor, "N classes"] = field(repr=False)  # in the order of the test split
    tested: EvaluationData = field(repr=False)  # which data
    run: Trained = field(repr=False)

    @property
    def labels(self) -> Labels:
        """The class of each tested sample."""
        return self.tested.split.labels

    @cached_property
    def metrics(self) -> Metrics:
        """Accuracy, F1, AUROC, calibration error and others."""
        return compute_metrics(self.probabilities, self.labels)

    @cached_property
    def intervals(self) -> Mapping[str, tuple[float, float]]:
        """The 95 % confidence interval of each metric, by its name in `metrics`; see `compute_intervals`."""
        return compute_intervals(self.probabilities, self.labels)

    @cached_property
    def confusion(self) -> Int64[Tensor, "classes classes"]:
        """Counts: rows are true classes, columns predicted ones."""
        return confusion_matrix(self.probabilities, self.labels)

    @cached_property
    def scores(self) -> Mapping[str, ClassScores]:
        """Precision, recall, F1 and number of samples of each class, those with the most errors first."""
        scores = zip(self.run.classes, scores_by_class(self.confusion), strict=True)
        return dict(sorted(scores, key=lambda item: (item[1].recall is None, item[1].recall)))

    @cached_property
    def calibration(self) -> list[Bin]:
        """The mean confidence and the accuracy in each of 15 bins of confidence."""
        return calibration_bins(self.probabilities, self.labels)

    def figure(self) -> "Figure":
        """Return a figure of the calibration: the accuracy against the confidence."""
        from outspan.figures.evaluation import reliability_figure

        counts = [one.samples for one in self.calibration]
        confidences = [math.nan if one.confidence is None else one.confidence for one in self.calibration]
        accuracies = [math.nan if one.accuracy is None else one.accuracy for one in self.calibration]
        return reliability_figure(counts, confidences, accuracies, self.metrics.ece)

    def _repr_html_(self) -> str:
        """Return the metrics, the scores of each class and the calibration, for notebooks."""
        metrics = [(name, f"{100 * value:.2f}") for name, value in asdict(self.metrics).items() if value is not None]
        rows = [(name, one.support, *map(_percent, (one.recall, one.precision, one.f1))) for name, one in self.scores.items()]
        classes = display(["class", "samples", "recall, %", "precision, %", "F1, %"], rows, "Classes")
        return display(["metric", "%"], metrics, f"Tested on {self.tested}", self.figure()) + classes

    def _repr_png_(self) -> bytes:
        """Return the calibration, for notebooks."""
        return figure_bytes(self.figure())

    @property
    def accuracy(self) -> float:
        """The fraction of the samples that is classified correctly."""
        return self.metrics.accuracy

    @property
    def balanced_accuracy(self) -> float:
        """The mean accuracy over the classes that occur."""
        return self.metrics.balanced_accuracy

    @property
    def by_class(self) -> Mapping[str, float | None]:
        """The accuracy of each class, which is its recall; None for a class without test samples."""
        return {name: self.scores[name].recall for name in self.run.classes}


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"


@dataclass(frozen=True, eq=False)
class LabelEvaluation:
    """How well a run predicts the labels of its test data, of which a sample can have several."""

    probabilities: Float64[Tensor, "N classes"] = field(repr=False)  # in the order of the test split
    tested: EvaluationData = field(repr=False)  # which data
    run: Trained = field(repr=False)

    @property
    def labels(self) -> Labels:
        """Which classes each tested sample has, bool [N, classes]."""
        return self.tested.split.labels

    @cached_property
    def metrics(self) -> LabelMetrics:
        """Mean average precision, F1, and the fractions of right samples and labels."""
        return compute_label_metrics(self.probabilities, self.labels)

    @cached_property
    def intervals(self) -> Mapping[str, tuple[float, float]]:
        """The 95 % confidence interval of each metric, by its name in `metrics`."""
        return compute_label_intervals(self.probabilities, self.labels)

    @cached_property
    def scores(self) -> Mapping[str, LabelScores]:
        """Average precision, precision, recall, F1 and number of samples of each class, the worst average precision first."""
        scores = zip(self.run.classes, scores_by_label(self.probabilities, self.labels), strict=True)
        return dict(sorted(scores, key=lambda item: (item[1].average_precision is None, item[1].average_precision)))

    @property
    def accuracy(self) -> float:
        """The fraction of the samples whose labels are all right."""
        return self.metrics.accuracy


def evaluate(
    run: Trained | Path | str,
    data: Path | str | None = None,
    *,
    splits: Data | None = None,
    device: str | torch.device | None = None,
    skip_bad: int = 0,
    on_batch: Callable[[int, int], object] = lambda done, total: None,
) -> Evaluation | LabelEvaluation:
    """Evaluate a run on its test data, or on other data with the same classes.

    Example::

        evaluation = outspan.evaluate("runs/a")
        print(evaluation.metrics.macro_f1, evaluation.by_class)
        outspan.evaluate("runs/a", "other/photos")

    Args:
        run: The folder of a run, or what `outspan.load` returns.
        data: The name or path of other data. Its test split is used. Data without splits, such as a table or a folder of class
            folders, is used completely, but if the run was trained on it, only the part that the run held out.
        splits: An `outspan.data.sets.Data`, used instead of data that is read. Its test split is used.
        device: Where to compute. By default a GPU if there is one, otherwise the CPU. Afterwards the model of a loaded run is
            where it was before.
        skip_bad: Tolerate up to this number of unreadable files in an image folder or in tar shards, or of rows of a table
            without a text or a label, which are left out.
        on_batch: Called after each batch with the number of samples done and the total number.

    Returns:
        An `Evaluation`, or a `LabelEvaluation` if a sample can have several labels.

    Raises:
        ValueError: If the run cannot be loaded, or the data does not fit or has changed since the run.
    """
    run, where = as_trained(run), devices.find_device(device)
    if not isinstance(data, Path | str | None):
        raise ValueError(f"data must be the name or path of data, got {describe(data)}: use outspan.predict for a batch")
    if splits is not None and data is not None:
        raise ValueError("data and splits exclude each other: pass one of them")
    other = str(expand_home(data)) if data else ""
    tested = use_splits(run, splits) if splits is not None else load_evaluation_data(run, other, skip_bad=skip_bad)
    if tested.part != Part.WHOLE and run.recipe.fraction == 1 and not run.recipe.folds:  # otherwise they may be missing
        warn_missing_classes(tested.split.labels, run.classes, str(tested), MORE_TEST_SAMPLES)
    with on_device(run.model, where) as model:
        model = in_precision(model, run.recipe.precision)
        logits = compute_logits(model, tested.split, run.preprocess, where, on_batch)
    probabilities = find_objective(tested.split.labels).probabilities(logits.double())
    return (LabelEvaluation if run.multi_label else Evaluation)(probabilities, tested, run)
