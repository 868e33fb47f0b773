"""The function `outspan.evaluate`: the test accuracy of a run, overall and per class."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from outspan import devices
from outspan.data.dataset import Data
from outspan.files import expand_home
from outspan.models.evaluating import on_device
from outspan.shapes import Int64, describe
from outspan.training.evaluation_data import EvaluationData, load_evaluation_data, use_splits
from outspan.training.logits import compute_logits
from outspan.training.trained import Trained, as_trained


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How well a run classifies its test data."""

    accuracy: float
    balanced_accuracy: float  # mean accuracy over the classes that occur
    by_class: Mapping[str, float | None]  # accuracy per class; None for a class without test samples
    confusion: Int64[Tensor, "classes classes"] = field(repr=False)  # counts: rows are true classes, columns predicted ones
    tested: EvaluationData = field(repr=False)  # which data
    run: Trained = field(repr=False)


def evaluate(
    run: Trained | Path | str,
    data: Path | str | None = None,
    *,
    splits: Data | None = None,
    device: str | torch.device | None = None,
    skip_bad: int = 0,
    on_batch: Callable[[int, int], object] = lambda done, total: None,
) -> Evaluation:
    """Evaluate a run on its test data, or on other data with the same classes.

    Example::

        evaluation = outspan.evaluate("runs/a")
        print(evaluation.accuracy, evaluation.by_class)
        outspan.evaluate("runs/a", "other/photos")

    Args:
        run: The folder of a run, or what `outspan.load` returns.
        data: The name or path of other data. Its test split is used. Data without splits, such as a table or a folder of class
            folders, is used completely, but if the run was trained on it, only the part that the run held out.
        splits: An `outspan.data.sets.Data`, used instead of data that is read. Its test split is used.
        device: Where to compute. By default a GPU if there is one, otherwise the CPU. Afterwards the model of a loaded run is
            where it was before.
        skip_bad: Tolerate up to this number of unreadable files in an image folder or in tar shards.
        on_batch: Called after each batch with the number of samples done and the total number.

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
    with on_device(run.model, where) as model:
        predicted = compute_logits(model, tested.split, run.preprocess, where, on_batch).argmax(1)
    count = len(run.classes)
    confusion = torch.bincount(tested.split.labels * count + predicted, minlength=count**2).view(count, count)
    by_class = confusion.diag().double() / confusion.sum(1).clamp(min=1)
    occurs = confusion.any(1)
    return Evaluation(
        accuracy=float(confusion.diag().double().sum() / confusion.sum()),
        balanced_accuracy=float(by_class[occurs].mean()),
        by_class={
            name: value if is_there else None
            for name, value, is_there in zip(run.classes, by_class.tolist(), occurs.tolist(), strict=True)
        },
        confusion=confusion,
        tested=tested,
        run=run,
    )
