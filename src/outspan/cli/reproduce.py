"""The command that lists the paper's tables and figures, and runs their cells."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from outspan.cli.options import SkipBad
from outspan.cli.output import echo, echo_lines
from outspan.cli.progress import device, training_progress
from outspan.files import write_json

METHODS = "baseline,ra,uncertain"


def reproduce_command(
    table: Annotated[
        str | None, typer.Argument(help="table-1 … table-7, figure-1 … figure-6 or imdb. Lists all if omitted.")
    ] = None,
    rows: Annotated[str, typer.Option(help="Comma-separated rows, e.g. cifar10/wrn-28-10. Shows the rows if omitted.")] = "",
    methods: Annotated[
        str, typer.Option(help="Comma-separated methods: baseline, aa, fast-aa, pba, ra, ta, adv-aa, random, uncertain.")
    ] = METHODS,
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs per cell (seeds 0, 1, …). The paper uses 4.")] = 1,
    scale: Annotated[float, typer.Option(help="Fraction of the epochs and images to use, for a quick test.")] = 1.0,
    policy_file: Annotated[list[str] | None, typer.Option(help="METHOD=FILE: published policy file of fast-aa or pba.")] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="Output folder. Existing runs in it are resumed.")] = Path(
        "runs/reproduce"
    ),
    compile: Annotated[bool, typer.Option("--compile", help="Compile the models with torch.compile.")] = False,
    skip_bad: SkipBad = 0,
) -> None:
    """List the tables and figures of the paper with their status, or run cells of one and compare them with the paper.

    Example: outspan reproduce table-3 --rows cifar10/wrn-28-10 --methods baseline,ra,ta,uncertain --seeds 2 --scale 0.05
    """
    from outspan.config import check_scale
    from outspan.reproduce import paper
    from outspan.reproduce.cells import plan_cells, record, run_cells

    if not rows and (scale != 1 or seeds != 1 or methods != METHODS or policy_file):
        raise ValueError("nothing to run: give a table and --rows, e.g. table-3 --rows cifar10/wrn-28-10")
    paper.recipes()  # refused where there are none: what is called runnable would not run
    if table is None:
        if rows:
            raise ValueError(f"--rows needs a table, e.g. outspan reproduce table-3 --rows {rows}")
        for name, item in paper.PAPER.items():
            echo_lines(f"{name:>9}  {item.title}\n           {paper.status(item)}")
        return
    item = paper.find_item(table)
    if not rows:
        status = paper.status(item)
        echo_lines(f"{table}: {item.title}\n{status}" + ("" if item.command in status else f"\ncommand: {item.command}"))
        if item.cells:
            _show_paper(item)
        return
    if not item.cells:
        raise ValueError(f"{table} has no rows to run; use this command instead: {item.command}")
    check_scale(scale)
    requested = list(plan_cells(item, _names(rows), _names(methods), _files(policy_file or [])))
    folder = out / table / f"scale-{scale:g}"
    options = {"device": device(), "compile": compile, "skip_bad": skip_bad, "watch": partial(training_progress, reads=True)}
    cells = run_cells(requested, seeds=seeds, scale=scale, out=folder, **options)
    _show(table, cells, seeds, scale)
    if any(cell.accuracies for cell in cells):
        found = {"table": table, "scale": scale, **_setting(), "cells": record(item, cells, folder)}
        write_json(folder / f"{table}.json", found)
        echo(f"wrote {folder / f'{table}.json'}" + ("; copy it to results/ to list it as measured" if scale == 1 else ""))
    if any(cell.failed for cell in cells) or not any(cell.accuracies for cell in cells):
        raise typer.Exit(1)


def _show_paper(item: Any) -> None:
    """Print the paper's numbers, and of each row whether its data is here."""
    from rich.console import Console

    from outspan.config import read_recipe
    from outspan.reproduce.cells import ROWS
    from outspan.reproduce.paper import missing_data, recipes

    methods = list(dict.fromkeys(method for row in item.cells.values() for method in row))
    Console().print(_table(["row", *methods], [[row, *(item.cells[row].get(m, "-") for m in methods)] for row in item.cells]))
    for row in item.cells:
        absent = missing_data(read_recipe(recipes() / f"{ROWS[row]}.toml").data)
        echo(f"{row}: {f'needs {absent}' if absent else 'runnable'}, recipes/paper/{ROWS[row]}.toml")


def _show(table: str, cells: Sequence[Any], seeds: int, scale: float) -> None:
    from rich.console import Console

    mark = "" if scale == 1 else " *"
    lines = [[cell.row, cell.method, cell.said + (mark if cell.accuracies else ""), cell.paper] for cell in cells]
    Console().print(_table(["row", "method", "measured, %", "paper, %"], lines))
    for cell in cells:
        if cell.why_not:
            echo(f"{cell.row} {cell.method}: {cell.why_not}")
    several = "one seed" if seeds == 1 else f"mean ± std of {seeds} seeds"
    theirs = "best epoch over 4 seeds for its own method (except ImageNet), other methods as published"
    echo(f"{table}: test accuracy after the last epoch, {several}. Paper: {theirs}.")
    if scale != 1:
        least = "at least 1 epoch and 2 batches"
        echo(f"* scaled: {scale:g} of the epochs and images ({least}). Not comparable with the paper.")


def _table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> Any:
    from rich.table import Table

    table = Table(*titles, box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for line in lines:
        table.add_row(*line)
    return table


def _setting() -> dict[str, str]:
    """Return what decides how fast the runs were, and their last bits."""
    import torch

    import outspan
    from outspan.reproduce.paper import commit

    name = torch.cuda.get_device_name() if device() == "cuda" else "cpu"
    return {"outspan": outspan.__version__, "commit": commit(), "torch": torch.__version__, "device": name}


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


def _files(given: Sequence[str]) -> dict[str, str]:
    from outspan.reproduce.cells import FILES

    found = {}
    for text in given:
        method, equals, file = text.partition("=")
        if not equals or method not in FILES:
            raise ValueError(f"--policy-file must be METHOD=FILE, where METHOD is one of {', '.join(FILES)}, got {text!r}")
        found[method] = file
    return found
