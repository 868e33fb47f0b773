"""The status of a table or figure: measured, runnable, or which data it needs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypedDict, final

from outspan.config import read_recipe
from outspan.data.sets import SETS, missing_files
from outspan.downloads import root
from outspan.files import HOME
from outspan.reproduce.paper import PAPER, ROWS, Item, find_item


class _RecipeContent(TypedDict):
    model: str
    epochs: int


class _CellContent(TypedDict):
    row: str
    method: str
    accuracies: list[float]


@final
class _StudyContent(TypedDict):
    settings: _RecipeContent
    seeds: list[int]


@final
class _RunContent(TypedDict):
    recipe: _RecipeContent


@final
class _TableContent(TypedDict):
    scale: float
    cells: list[_CellContent]


_Content: TypeAlias = _StudyContent | _RunContent | _TableContent  # the keys of a result file that are read here


@dataclass(frozen=True)
class ResultFile:
    """A file in results/: how its numbers were made, and the cells (row, method) of a table that were run at full scale."""

    path: Path
    setting: str
    cells: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RowStatus:
    """A row of a table: its recipe, and the data that is missing."""

    row: str
    recipe: str
    missing: str | None  # None: the row can be run


@dataclass(frozen=True)
class ItemStatus:
    """A table or figure of the paper with its status in one sentence, and its rows if it has any."""

    name: str
    item: Item
    status: str
    rows: tuple[RowStatus, ...]


def list_paper() -> list[ItemStatus]:
    """Return every table and figure of the paper with its status."""
    recipe_folder()  # without the recipes nothing is runnable
    return [ItemStatus(name, item, status(item), ()) for name, item in PAPER.items()]


def describe(name: str) -> ItemStatus:
    """Return a table or figure of the paper with its status and its rows."""
    item, folder = find_item(name), recipe_folder()
    rows = []
    for row in item.cells:
        path = folder / f"{ROWS[row]}.toml"
        rows.append(RowStatus(row, f"recipes/paper/{path.name}", missing_data(read_recipe(path).data)))
    return ItemStatus(name, item, status(item), tuple(rows))


def recipe_folder() -> Path:
    """Return the folder of the paper's recipes."""
    folder = HOME / "recipes" / "paper"
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; install outspan again, or run it in a clone of the repository")
    return folder


def status(item: Item) -> str:
    """Return the status of a table or figure: measured (in which files), runnable (how), or which data is missing."""
    if files := result_files(item):
        expected = {(row, method) for row, numbers in item.cells.items() for method in numbers if numbers[method] != "-"}
        left = expected - {cell for file in files for cell in file.cells}
        is_whole = not left and all(any(file.path.match(pattern) for file in files) for pattern in item.results)
        names = ", ".join(f"results/{file.path.name}{file.setting}" for file in files)
        page = f"; compared with the paper in {item.page}" if item.page else ""
        return f"measured here: {'' if is_whole else 'in part: '}{names}{page}"
    missing = {name: text for name in item.data if (text := missing_data(name)) is not None}
    if item.data and len(missing) == len(item.data):
        return f"needs data that is not available: {'; '.join(missing.values())}"
    part = f" (without {', '.join(missing)}, not available)" if missing else ""
    return f"runnable{part}: {item.command}"


def missing_data(name: str) -> str | None:
    """Return which files of a data set are missing and where to get them, or None if all are available."""
    missing = missing_files(name)
    if not missing:
        return None
    entry = SETS[name]
    if not entry.sources:
        return f"{' and '.join(map(str, missing))} ({entry.origin})"
    folder = root() / entry.folder
    is_partial = folder.is_dir() and any(folder.iterdir())  # fetching does not overwrite files
    first, hint = (missing[0], f"remove {folder}, then ") if is_partial else (folder, "")
    return f"{first} ({hint}outspan data fetch {name}, from {entry.sources[0].url})"


def result_files(item: Item) -> list[ResultFile]:
    """Return the files in results/ with all or part of a table or figure."""
    paths = [path for pattern in item.results for path in sorted((HOME / "results").glob(pattern))]
    files = [_read_result(path) for path in paths]
    return [file for file in files if not item.cells or file.cells]


def _read_result(path: Path) -> ResultFile:
    try:
        content: _Content = json.loads(path.read_text())
        return ResultFile(path, _setting(content), _full_cells(content))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path}: not a result file of outspan; remove it from results/") from None


def _full_cells(content: _Content) -> tuple[tuple[str, str], ...]:
    """Return the cells of a result of `reproduce` that were run at full scale."""
    if "cells" not in content:
        return ()
    is_full = content["scale"] == 1
    return tuple((cell["row"], cell["method"]) for cell in content["cells"] if cell["accuracies"] and is_full)


def _setting(content: _Content) -> str:
    """Return how the numbers of a file were made: model and epochs of a study or a run, or the cells of a table."""
    if "settings" in content:
        return f" ({content['settings']['model']}, {content['settings']['epochs']} epochs, {len(content['seeds'])} seeds)"
    if "recipe" in content:
        return f" ({content['recipe']['model']}, {content['recipe']['epochs']} epochs)"
    return f" ({', '.join(' '.join(cell) for cell in _full_cells(content))})" if "cells" in content else ""
