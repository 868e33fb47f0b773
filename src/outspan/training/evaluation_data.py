"""Which data a run is tested on: its own test split, or other data with the same classes."""

import warnings
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from outspan import models
from outspan.config import Recipe
from outspan.data.dataset import Data, count_copies
from outspan.data.sets import check_data_holds, has_test_only, is_gone, is_undivided, load_for, load_whole
from outspan.data.splits import Samples, Split
from outspan.data.stratify import hold_out, take_fold
from outspan.shapes import channels_of_shape, describe
from outspan.training.provenance import check_same_value
from outspan.training.trained import Trained

_MODEL = "the model of the run"


class Part(str, Enum):
    """Which part of the data a run is tested on."""

    HELD_OUT = "held out"  # the part that the run held out of data without a test split
    SPLIT = "test split"  # the test split of the data
    WHOLE = "whole"  # all of it


@dataclass(frozen=True, eq=False)
class EvaluationData:
    """The data that a run is tested on."""

    data: Data
    split: Split  # the test split of `data` as the model reads it
    part: Part
    trained_on: int = 0  # how many of the tested samples the run was trained on

    def __str__(self) -> str:
        """Return a description of the data for messages."""
        count, name = f"{len(self.split):,} {self.split.noun}", self.data.name
        if self.part == Part.SPLIT:
            return f"the test split of {name}, {count}"
        if self.part == Part.HELD_OUT:
            return f"the {count} that the run held out of {name}"
        seen = f"; the run was trained on {self.trained_on:,} of them" if self.trained_on else ""
        return f"all {count} of {name}{seen}"


def load_evaluation_data(run: Trained, other: str = "", *, skip_bad: int = 0) -> EvaluationData:
    """Return the test data of a run, which must not have changed, or `other` data of its shape and classes.

    Data without splits is used completely, but if the run was trained on it, only the part that the run held out.
    """
    if not other:
        return _prepare_own(run, skip_bad)
    data, part = _load_other(run, other, skip_bad)
    check_data_holds(data.name, run.noun, _MODEL)
    trained_on = _count_trained_on(run, data.test) if part == Part.WHOLE else 0
    return EvaluationData(data, _prepare(run, data), part, trained_on)


def use_splits(run: Trained, splits: Data) -> EvaluationData:
    """Return the test split of data in memory, which must have the shape and the classes of a run.

    If the run was trained on a fold of this data, it is the samples that the run held out.
    """
    if not isinstance(splits, Data):
        raise ValueError(f"splits must be an outspan.data.sets.Data, got {describe(splits)}")
    models.check_takes(run.recipe.model, splits.test.noun)
    if run.recipe.folds and splits.test.digest != run.test_digest:  # otherwise it is divided already
        folded = take_fold(splits, run.recipe)
        if folded.test.digest == run.test_digest:
            return EvaluationData(folded, _prepare(run, folded), Part.HELD_OUT)
    return EvaluationData(splits, _prepare(run, splits), Part.SPLIT)


def _prepare(run: Trained, data: Data) -> Split:
    """Return the test split as the model of a run reads it. Another shape or other classes raise a ValueError."""
    split = data.test.prepared(run.recipe)
    for key, now, stored in (("shape", split.shape, run.shape), ("classes", data.classes, run.classes)):
        if now != stored:
            raise ValueError(f"{data.name}: its {key} must be that of the run, {list(stored)}, got {list(now)}")
    if (split.labels.ndim == 2) != run.multi_label:
        wanted, got = ("several labels", "one label")[:: 1 if run.multi_label else -1]
        raise ValueError(f"{data.name}: must have {wanted} per sample, as the data of the run, got {got}")
    return split


def _prepare_own(run: Trained, skip_bad: int) -> EvaluationData:
    try:
        data, part = _load_own(run, skip_bad)
        check_data_holds(data.name, run.noun, _MODEL)
        split = data.test.prepared(run.recipe)
        for key, now, stored in (("shape", split.shape, run.shape), ("classes", data.classes, run.classes)):
            check_same_value(key, list(now), list(stored), run.folder)
        if run.test_digest is not None:
            check_same_value("test_digest", data.test.digest, run.test_digest, run.folder)
    except ValueError as error:
        if Path(run.recipe.data).is_absolute():
            raise
        hint = "if the run was trained with splits=, evaluate it with outspan.evaluate(run, splits=...)"
        raise ValueError(f"{error}; {hint}") from None
    return EvaluationData(data, split, part)


def _load_own(run: Trained, skip_bad: int) -> tuple[Data, Part]:
    """Return the data of the run."""
    if is_gone(run.recipe.data):
        raise ValueError(f"{run.recipe.data}: no longer exists; pass --data with its new path")
    is_held_out = run.recipe.folds or is_undivided(run.recipe.data)
    return load_for(_reading(run), skip_bad=skip_bad), Part.HELD_OUT if is_held_out else Part.SPLIT


def _reading(run: Trained) -> Recipe:
    """Return the recipe to read data for a run: image files get the number of channels that the model was trained on."""
    channels = channels_of_shape(run.shape)
    return replace(run.recipe, channels=str(channels)) if channels else run.recipe


def _load_other(run: Trained, name: str, skip_bad: int) -> tuple[Data, Part]:
    """Return other data by its name or path, which may be that of the run."""
    if is_undivided(name) or has_test_only(name):
        check_data_holds(name, run.noun, _MODEL)
        if is_undivided(name) and (divided := _load_divided(run, name, skip_bad)) is not None:
            return divided, Part.HELD_OUT
        part = Part.WHOLE if is_undivided(name) else Part.SPLIT
        return load_whole(name, run.classes, _reading(run), skip_bad=skip_bad), part
    is_same = Path(name).resolve() == Path(run.recipe.data).resolve()
    changes = {} if is_same else {"fraction": 1.0, "folds": 0, "fold": 0, "weight_column": ""}
    part = Part.HELD_OUT if is_same and run.recipe.folds else Part.SPLIT
    return load_for(replace(_reading(run), data=name, **changes), skip_bad=skip_bad), part


def _load_divided(run: Trained, name: str, skip_bad: int) -> Data | None:
    """Return the data, divided as in the run, if the run was trained on it. Otherwise return None.

    The run was trained on it if its path is that of the data of the run, or if it has the same content.
    """
    try:
        data = load_for(replace(_reading(run), data=name), skip_bad=skip_bad)
        train = hold_out(data.train, run.recipe.validation, run.recipe.seed)[0]
    except ValueError:  # it cannot be divided as the data of the run, or has other classes
        return None
    if Path(name).resolve() == Path(run.recipe.data).resolve():
        if run.test_digest not in (None, data.test.digest):
            warnings.warn(f"{name}: has changed since the run; tested on what the run would hold out of it now", stacklevel=5)
        return data
    if (train.digest, data.test.digest) != (run.train_digest, run.test_digest):
        return None
    # The digest of image files depends only on their names and labels. Another folder may have the same ones.
    return data if train.statistics() == (run.mean, run.std) else None


def _count_trained_on(run: Trained, test: Samples) -> int:
    """Return how many of the tested samples the run was trained on; 0 if its data no longer exists or has changed."""
    if is_gone(run.recipe.data):
        return 0
    try:
        train = hold_out(load_for(_reading(run)).train, run.recipe.validation, run.recipe.seed)[0]
    except ValueError:  # the data has changed since
        return 0
    return count_copies(test, train)
