"""Which data a run is tested on: its own test split, or other data with the same classes."""

import filecmp
import warnings
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from outspan.data.folders import is_undivided, list_whole
from outspan.data.image_files import Files
from outspan.data.sets import SETS, AnySplit, Data, as_read, hold_out, load_for
from outspan.data.tables import is_table, read_table
from outspan.text.documents import Documents
from outspan.training.provenance import check_same_data
from outspan.training.setup import make_preprocess
from outspan.training.trained import Trained, load


class Part(str, Enum):
    """Which part of the data a run is tested on."""

    HELD_OUT = "held out"  # what the run left out of data without a test split
    SPLIT = "test split"  # the data's own
    WHOLE = "whole"  # all of it


@dataclass(frozen=True)
class Tested:
    """A run and the data that it is tested on."""

    run: Trained
    data: Data
    part: Part
    seen: int = 0  # how many of the tested texts or images the run has trained on

    def __str__(self) -> str:
        """Say in words what is tested."""
        count, name = f"{len(self.data.test):,} {self.run.noun}", self.data.name
        seen = f"; the run has trained on {self.seen:,} of them" if self.seen else ""
        if self.part == Part.WHOLE:
            return f"all {count} of {name}{seen}"
        return (
            f"the {count} that the run held out of {name}"
            if self.part == Part.HELD_OUT
            else f"the test split of {name}, {count}"
        )


def load_run(out: Path, other: str = "", *, skip_bad: int = 0) -> tuple[Trained, Data]:
    """Return a run's model and its data, which must be what it was, or `other` data of its shape and classes."""
    tested = load_tested(out, other, skip_bad=skip_bad)
    return tested.run, tested.data


def load_tested(out: Path, other: str = "", *, skip_bad: int = 0) -> Tested:
    """Return a run's model and its test data: the run's own, which must not have changed, or `other` with the same classes.

    A table, or a folder of class folders, is tested whole; if the run trained on it, only the part that the run held out.
    """
    run = load(out)
    was = Path(run.recipe.data)
    if not other:
        if was.is_absolute() and not was.exists():
            raise ValueError(f"{was}: no longer exists; pass --data with its new path")
        data, part = load_for(run.recipe, skip_bad=skip_bad), Part.HELD_OUT if _is_undivided(was) else Part.SPLIT
    elif _is_undivided(Path(other)) or _is_tested_alone(Path(other), run):
        data, part = _load_undivided(run, other, skip_bad)
    else:
        own = Path(other).resolve() == was.resolve()
        recipe = replace(run.recipe, data=other, fraction=run.recipe.fraction if own else 1.0)
        data, part = load_for(recipe, skip_bad=skip_bad), Part.SPLIT
    if data.test.noun != run.noun:
        raise ValueError(f"{data.name}: the run's model takes {run.noun}, got {data.test.noun}")
    read = replace(data, test=as_read(data.test, run.recipe))
    now = {"shape": list(read.test.shape), "classes": list(data.classes)}
    then = {"shape": list(run.shape), "classes": list(run.classes)}
    if not other:
        digest = data.test.digest if run.test_digest else None
        check_same_data(now | {"test_digest": digest}, then | {"test_digest": run.test_digest}, out)
    for key in now:
        if now[key] != then[key]:
            raise ValueError(f"{other}: its {key} must be the run's, {then[key]}, got {now[key]}")
    return Tested(run, read, part, _count_seen(run, data.test) if part == Part.WHOLE else 0)


def _is_undivided(path: Path) -> bool:
    """Return whether data has no test split of its own: a table, or a folder of class folders."""
    return str(path) not in SETS and ((path.is_file() and is_table(path)) or is_undivided(path))


def _is_tested_alone(folder: Path, run: Trained) -> bool:
    """Return whether a folder of images has a test split, and no train split."""
    return run.noun == "images" and str(folder) not in SETS and folder.is_dir() and not (folder / "train").is_dir()


def _load_undivided(run: Trained, other: str, skip_bad: int) -> tuple[Data, Part]:
    """Return the test data of a table or folder without a train split: all of it, or the part that the run held out."""
    path, noun = Path(other), "texts" if is_table(Path(other)) else "images"
    if noun != run.noun:
        raise ValueError(f"{other}: the run's model takes {run.noun}, got {noun}")
    if _is_undivided(path) and (own := _own_data(run, other, skip_bad)) is not None:
        return own, Part.HELD_OUT
    if noun == "texts":
        columns = {"text": run.recipe.text_column, "label": run.recipe.label_column}
        tested: AnySplit = read_table(path, run.classes, **columns)
    else:
        tested = Files(*list_whole(path, run.classes), run.recipe.size, skip_bad=skip_bad)
    return Data(other, tested, tested, run.classes), Part.WHOLE if _is_undivided(path) else Part.SPLIT


def _own_data(run: Trained, other: str, skip_bad: int) -> Data | None:
    """Return the data, divided as in the run, if the run trained on it: same path, or same content elsewhere; else None."""
    try:
        data = load_for(replace(run.recipe, data=other), skip_bad=skip_bad)
        train = hold_out(data.train, run.recipe.validation, run.recipe.seed)[0]
    except ValueError:  # it cannot be divided as the run's was, or has other classes
        return None
    if Path(other).resolve() == Path(run.recipe.data).resolve():
        if run.test_digest not in (None, data.test.digest):
            warnings.warn(f"{other}: has changed since the run; tested on what the run would hold out of it now", stacklevel=4)
        return data
    if (train.digest, data.test.digest) != (run.train_digest, run.test_digest):
        return None
    # The digest of files is one of names: another folder may have the same.
    alike = not isinstance(train, Files) or make_preprocess(*train.statistics()) == run.preprocess
    return data if alike else None


def _count_seen(run: Trained, tested: AnySplit) -> int:
    """Return how many of the tested texts or images the run has trained on, as far as its data is still there."""
    was = run.recipe.data
    if Path(was).is_absolute() and not Path(was).exists():
        return 0
    try:
        train = hold_out(load_for(run.recipe).train, run.recipe.validation, run.recipe.seed)[0]
    except ValueError:  # changed since
        return 0
    if isinstance(train, Documents) and isinstance(tested, Documents):
        texts = set(train.texts)
        return sum(text in texts for text in tested.texts)
    if isinstance(train, Files) and isinstance(tested, Files):
        return _count_copies(train.paths, tested.paths)
    return 0


def _count_copies(known: Sequence[Path], paths: Sequence[Path]) -> int:
    """Return how many files are copies of known ones, under the same name in a folder of the same name."""

    def keyed(files: Sequence[Path]) -> Iterator[tuple[Hashable, Path]]:
        for path in files:
            with suppress(OSError):  # a broken link
                yield (path.parent.name, path.name, path.stat().st_size), path

    by_key: dict[Hashable, list[Path]] = {}
    for key, path in keyed(known):
        by_key.setdefault(key, []).append(path)
    return sum(any(filecmp.cmp(path, other, shallow=False) for other in by_key.get(key, ())) for key, path in keyed(paths))
