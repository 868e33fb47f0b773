"""Which data a run is tested on: its own test split, or other data with the same classes."""

import warnings
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from outspan.data.dataset import AnySamples, Data, count_copies
from outspan.data.sets import has_test_only, hold_out, is_undivided, load_for, load_whole, noun_of
from outspan.training.provenance import check_same_data
from outspan.training.trained import Trained


class Part(str, Enum):
    """Which part of the data a run is tested on."""

    HELD_OUT = "held out"  # the part that the run held out of data without a test split
    SPLIT = "test split"  # the test split of the data
    WHOLE = "whole"  # all of it


@dataclass(frozen=True, eq=False)
class Tested:
    """The data that a run is tested on."""

    data: Data
    part: Part
    trained_on: int = 0  # how many of the tested samples the run was trained on

    def __str__(self) -> str:
        """Return a description of the data for messages."""
        count, name = f"{len(self.data.test):,} {self.data.test.noun}", self.data.name
        if self.part == Part.SPLIT:
            return f"the test split of {name}, {count}"
        if self.part == Part.HELD_OUT:
            return f"the {count} that the run held out of {name}"
        seen = f"; the run was trained on {self.trained_on:,} of them" if self.trained_on else ""
        return f"all {count} of {name}{seen}"


def load_tested(run: Trained, other: str = "", *, skip_bad: int = 0) -> Tested:
    """Return the test data of a run, which must not have changed, or `other` data of its shape and classes.

    Data without splits is used completely, but if the run was trained on it, only the part that the run held out.
    """
    data, part = _load_other(run, other, skip_bad) if other else _load_own(run, skip_bad)
    _check_noun(run, data.name, data.test.noun)
    trained_on = _count_trained_on(run, data.test) if part == Part.WHOLE else 0
    prepared = replace(data, test=data.test.prepared(run.recipe))
    now = {"shape": list(prepared.test.shape), "classes": list(data.classes)}
    then = {"shape": list(run.shape), "classes": list(run.classes)}
    if not other:
        digest = data.test.digest if run.test_digest else None
        check_same_data(now | {"test_digest": digest}, then | {"test_digest": run.test_digest}, run.folder)
    for key in now:
        if now[key] != then[key]:
            raise ValueError(f"{other}: its {key} must be that of the run, {then[key]}, got {now[key]}")
    return Tested(prepared, part, trained_on)


def _check_noun(run: Trained, name: str, noun: str) -> None:
    if noun != run.noun:
        raise ValueError(f"{name}: the model of the run takes {run.noun}, got {noun}")


def _load_own(run: Trained, skip_bad: int) -> tuple[Data, Part]:
    """Return the data of the run."""
    path = Path(run.recipe.data)
    if path.is_absolute() and not path.exists():
        raise ValueError(f"{path}: no longer exists; pass --data with its new path")
    return load_for(run.recipe, skip_bad=skip_bad), Part.HELD_OUT if is_undivided(run.recipe.data) else Part.SPLIT


def _load_other(run: Trained, name: str, skip_bad: int) -> tuple[Data, Part]:
    """Return other data by its name or path, which may be that of the run."""
    if is_undivided(name) or has_test_only(name):
        _check_noun(run, name, noun_of(name))
        if is_undivided(name) and (divided := _load_divided(run, name, skip_bad)) is not None:
            return divided, Part.HELD_OUT
        part = Part.WHOLE if is_undivided(name) else Part.SPLIT
        return load_whole(name, run.classes, run.recipe, skip_bad=skip_bad), part
    is_same = Path(name).resolve() == Path(run.recipe.data).resolve()
    recipe = replace(run.recipe, data=name, fraction=run.recipe.fraction if is_same else 1.0)
    return load_for(recipe, skip_bad=skip_bad), Part.SPLIT


def _load_divided(run: Trained, name: str, skip_bad: int) -> Data | None:
    """Return the data divided as in the run if the run trained on it: same path, or same content elsewhere; else None."""
    try:
        data = load_for(replace(run.recipe, data=name), skip_bad=skip_bad)
        train = hold_out(data.train, run.recipe.validation, run.recipe.seed)[0]
    except ValueError:  # it cannot be divided as the data of the run, or has other classes
        return None
    if Path(name).resolve() == Path(run.recipe.data).resolve():
        if run.test_digest not in (None, data.test.digest):
            warnings.warn(f"{name}: has changed since the run; tested on what the run would hold out of it now", stacklevel=5)
        return data
    if (train.digest, data.test.digest) != (run.train_digest, run.test_digest):
        return None
    # The digest of image files is one of their names: another folder may have the same.
    return data if train.has_statistics(run.mean, run.std) else None


def _count_trained_on(run: Trained, test: AnySamples) -> int:
    """Return how many of the tested samples the run was trained on, if its data is still there."""
    path = Path(run.recipe.data)
    if path.is_absolute() and not path.exists():
        return 0
    try:
        train = hold_out(load_for(run.recipe).train, run.recipe.validation, run.recipe.seed)[0]
    except ValueError:  # the data has changed since
        return 0
    return count_copies(test, train)
