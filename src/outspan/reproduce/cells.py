"""Run cells of the paper's tables: train each over several seeds, and record the accuracies."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch

import outspan
from outspan import devices
from outspan.comparison.statistics import mean_and_std
from outspan.config import Recipe, check_scale, scaled, stored_recipe
from outspan.files import Json, commit, write_json
from outspan.messages import first_line
from outspan.reproduce.methods import METHODS, POLICY_FILES, needs_file, recipe_of, row_recipe
from outspan.reproduce.paper import Item, find_item
from outspan.reproduce.status import missing_data
from outspan.training import OnStep, checkpoint
from outspan.training.pool import Pool, Watch, no_progress, run_all
from outspan.training.run import Summary
from outspan.training.train import train


@dataclass(frozen=True)
class Cell:
    """A cell of a table: the paper's number, and our accuracies over seeds, or the reason why there are none."""

    row: str
    method: str
    paper: str
    accuracies: tuple[float, ...] = ()
    why_not: str = ""
    failed: bool = False  # whether one of its runs failed

    @property
    def percent(self) -> str:
        """The mean accuracy in %, with the standard deviation over several seeds; "-" without accuracies."""
        if not self.accuracies:
            return "-"
        mean, std = mean_and_std(self.accuracies)
        return f"{100 * mean:.2f}" + (f" ± {100 * std:.2f}" if len(self.accuracies) > 1 else "")


@dataclass(frozen=True)
class Reproduction:
    """The requested cells of a table, and the file with all results so far."""

    table: str
    scale: float
    seeds: int
    cells: tuple[Cell, ...]
    file: Path | None  # None: no cell was run

    @property
    def succeeded(self) -> bool:
        """Whether at least one cell was run, and none failed."""
        return self.file is not None and not any(cell.failed for cell in self.cells)


@dataclass(frozen=True)
class CellRecord:
    """A cell in the result file: the accuracies of its finished runs, and their recipe without the seed."""

    row: str
    method: str
    paper: str
    seeds: tuple[int, ...]
    accuracies: tuple[float, ...]
    recipe: Mapping[str, Json]
    why_not: str


@dataclass(frozen=True)
class _FinishedRun:
    accuracy: float
    recipe: Mapping[str, Json]


def run_table(
    table: str,
    *,
    rows: Sequence[str],
    methods: Sequence[str] = ("baseline", "ra", "uncertain"),
    seeds: int = 1,
    scale: float = 1.0,
    policy_files: Mapping[str, str] | None = None,
    out: Path = Path("runs/reproduce"),
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    gpus_per_run: float | None = None,
    device: str | None = None,
    compile: bool = False,
    skip_bad: int = 0,
    watch: Watch = no_progress,
) -> Reproduction:
    """Train cells of a table over seeds 0, 1, …, and compare them with the paper. Existing runs in `out` are resumed.

    `rows` and `methods` select the cells. `scale` is the fraction of epochs and images. `policy_files` are the published
    policy files by method. `jobs`, `engine`, `address` and `gpus_per_run` say where to train, as in `outspan.compare`. If a run
    fails, the `why_not` of its cell is the reason, and the other runs are still executed.
    """
    item = find_item(table)
    if not item.cells:
        raise ValueError(f"{table} has no rows to run; use this command instead: {item.command}")
    check_scale(scale)
    if unknown_methods := set(policy_files or {}) - set(POLICY_FILES):
        raise ValueError(f"policy_files has {unknown_methods.pop()!r}; only {', '.join(POLICY_FILES)} use a policy file")
    folder = out / table / f"scale-{scale:g}"
    device = str(devices.find_device(device))
    pool = Pool(jobs, engine, address, gpus_per_run)
    planned = list(plan_cells(item, rows, methods, policy_files or {}))
    pool.check(device)
    start = partial(train, device=device, compile=compile, skip_bad=skip_bad)
    execute = partial(run_all, pool=pool, device=device, out=folder, watch=watch)
    cells = _run_cells(planned, seeds, scale, folder, start, execute)
    file = None
    if any(cell.accuracies for cell in cells):
        file = folder / f"{table}.json"
        records = [asdict(record) for record in record_cells(item, cells, folder)]
        write_json(file, {"table": table, "scale": scale, **_environment(device), "cells": records})
    return Reproduction(table, scale, seeds, cells, file)


def plan_cells(
    item: Item, rows: Sequence[str], methods: Sequence[str], policy_files: Mapping[str, str]
) -> Iterator[tuple[Cell, Recipe | None]]:
    """Yield the requested cells with their recipes. The recipe is None if the data or a policy file is missing.

    Unknown names and damaged policy files are refused.
    """
    for row in rows:
        for method in methods:
            paper = item.cells.get(row, {}).get(method, "-")
            if method in POLICY_FILES and method not in policy_files:
                row_recipe(item, row)  # refuses an unknown row
                yield Cell(row, method, paper, why_not=needs_file(method)), None
                continue
            recipe = recipe_of(item, row, method, file=policy_files.get(method, ""))
            if missing := missing_data(recipe.data):
                yield Cell(row, method, paper, why_not=f"needs {missing}"), None
            else:
                yield Cell(row, method, paper), recipe


def _run_cells(
    planned: Sequence[tuple[Cell, Recipe | None]],
    seeds: int,
    scale: float,
    folder: Path,
    start: Callable[..., Summary],
    execute: Callable[..., list[Summary | str]],
) -> tuple[Cell, ...]:
    """Train each cell over its seeds. Cells without a recipe are returned without changes."""
    recipes = {cell: scaled(recipe, scale) for cell, recipe in planned if recipe is not None}
    runs = {
        (cell, seed): partial(start, replace(recipe, seed=seed), out=folder / cell.row / f"{cell.method}-{seed}")
        for cell, recipe in recipes.items()
        for seed in range(seeds)
    }
    titled = [(f"{cell.row} {cell.method}, seed {seed}", partial(_try, run)) for (cell, seed), run in runs.items()]
    results = dict(zip(runs, execute(titled, recipes=recipes.values()), strict=True))

    def fill(cell: Cell) -> Cell:
        done = [results[cell, seed] for seed in range(seeds) if cell in recipes]
        accuracies = tuple(run.accuracy for run in done if not isinstance(run, str))
        failures = [f"seed {seed}: {run}" for seed, run in enumerate(done) if isinstance(run, str)]
        return replace(cell, accuracies=accuracies, why_not="; ".join(failures) or cell.why_not, failed=bool(failures))

    return tuple(fill(cell) for cell, _ in planned)


def _try(run: Callable[..., Summary], *, on_step: OnStep | None) -> Summary | str:
    """Return the summary of a run, or the reason why it failed."""
    try:
        return run(on_step=on_step)
    except (ValueError, RuntimeError, OSError, MemoryError) as error:  # out of memory, a full disk
        return first_line(error)


def record_cells(item: Item, cells: Sequence[Cell], folder: Path) -> list[CellRecord]:
    """Return the requested cells, and all others with finished runs in the folder."""
    requested = {(cell.row, cell.method): cell.why_not for cell in cells}
    records = []
    for row, numbers in item.cells.items():
        for method in METHODS:
            runs = _finished_runs(folder / row, method)
            if not runs and (row, method) not in requested:
                continue
            seeds = tuple(sorted(runs))
            recipe = next(iter(runs.values())).recipe if runs else {}
            accuracies = tuple(runs[seed].accuracy for seed in seeds)
            why_not = requested.get((row, method), "")
            records.append(CellRecord(row, method, numbers.get(method, "-"), seeds, accuracies, recipe, why_not))
    return records


def _finished_runs(folder: Path, method: str) -> dict[int, _FinishedRun]:
    """Return the finished runs of a cell by seed."""
    runs = {}
    for path in folder.glob(f"{method}-[0-9]*"):
        try:
            loaded = checkpoint.load(path)
        except ValueError:  # damaged: resuming the run reports it
            continue
        if loaded is None:
            continue
        metadata = loaded[1]
        recipe = stored_recipe(metadata["recipe"])
        if len(metadata["metrics"]) == recipe.total_epochs(metadata["data"]["train"]):
            stored = {key: value for key, value in metadata["recipe"].items() if key != "seed"}
            runs[recipe.seed] = _FinishedRun(metadata["metrics"][-1]["test_accuracy"], stored)
    return runs


def _environment(device: str) -> dict[str, str]:
    """Return the versions and the device, which decide the speed of the runs and the last bits of their results."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return {"outspan": outspan.__version__, "commit": commit(), "torch": torch.__version__, "device": name}
