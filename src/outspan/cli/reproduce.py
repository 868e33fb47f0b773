"""The command `reproduce`: list the tables and figures of the paper, and run their cells."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outspan.cli.options import Address, Device, EngineName, GpusPerRun, Jobs, SkipBad
from outspan.cli.output import echo, echo_lines
from outspan.cli.progress import training_progress

if TYPE_CHECKING:
    from rich.table import Table

    from outspan.reproduce import ItemStatus, Reproduction

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
    jobs: Jobs = 1,
    engine: EngineName = "local",
    address: Address = None,
    gpus_per_run: GpusPerRun = None,
    device: Device = None,
    skip_bad: SkipBad = 0,
) -> None:
    """List the tables and figures of the paper, or run one.

    Shows the status of each. With a table and --rows, it runs these cells and prints them next to the paper's numbers.

    Example: outspan reproduce table-3 --rows cifar10/wrn-28-10 --methods baseline,ra,ta,uncertain --seeds 2 --scale 0.05
    """
    from outspan.reproduce import describe, list_paper, run_table

    if not rows and (scale != 1 or seeds != 1 or methods != METHODS or policy_file):
        raise ValueError("nothing to run: give a table and --rows, e.g. table-3 --rows cifar10/wrn-28-10")
    if table is None:
        if rows:
            raise ValueError(f"--rows needs a table, e.g. outspan reproduce table-3 --rows {rows}")
        for entry in list_paper():
            echo_lines(f"{entry.name:>9}  {entry.item.title}\n           {entry.status}")
        return
    if not rows:
        _print_item(describe(table))
        return
    result = run_table(
        table,
        rows=_split(rows),
        methods=_split(methods),
        seeds=seeds,
        scale=scale,
        policy_files=_parse_policy_files(policy_file or []),
        out=out,
        compile=compile,
        jobs=jobs,
        engine=engine,
        address=address,
        gpus_per_run=gpus_per_run,
        device=device,
        skip_bad=skip_bad,
        watch=partial(training_progress, reads=jobs == 1 and engine == "local"),
    )
    _print_result(result)
    if not result.succeeded:
        raise typer.Exit(1)


def _print_item(entry: "ItemStatus") -> None:
    """Print the paper's numbers, and whether each row can be run."""
    from rich.console import Console

    command, cells = entry.item.command, entry.item.cells
    echo_lines(
        f"{entry.name}: {entry.item.title}\n{entry.status}" + ("" if command in entry.status else f"\ncommand: {command}")
    )
    if not cells:
        return
    methods = list(dict.fromkeys(method for numbers in cells.values() for method in numbers))
    lines = [[row, *(numbers.get(method, "-") for method in methods)] for row, numbers in cells.items()]
    Console().print(_table(["row", *methods], lines))
    for row in entry.rows:
        echo(f"{row.row}: {f'needs {row.missing}' if row.missing else 'runnable'}, {row.recipe}")


def _print_result(result: "Reproduction") -> None:
    """Print the cells beside the paper's numbers, the reasons for missing ones, and the file."""
    from rich.console import Console

    mark = "" if result.scale == 1 else " *"
    lines = [[cell.row, cell.method, cell.percent + (mark if cell.accuracies else ""), cell.paper] for cell in result.cells]
    Console().print(_table(["row", "method", "measured, %", "paper, %"], lines))
    for cell in result.cells:
        if cell.why_not:
            echo(f"{cell.row} {cell.method}: {cell.why_not}")
    ours = "one seed" if result.seeds == 1 else f"mean ± std of {result.seeds} seeds"
    theirs = "best epoch over 4 seeds for its own method (except ImageNet), other methods as published"
    echo(f"{result.table}: test accuracy after the last epoch, {ours}. Paper: {theirs}.")
    if result.scale != 1:
        minimum = "at least 1 epoch and 2 batches"
        echo(f"* scaled: {result.scale:g} of the epochs and images ({minimum}). Not comparable with the paper.")
    if result.file is not None:
        echo(f"wrote {result.file}" + ("; copy it to results/ to list it as measured" if result.scale == 1 else ""))


def _table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> "Table":
    from rich.table import Table

    table = Table(*titles, box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for line in lines:
        table.add_row(*line)
    return table


def _split(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


def _parse_policy_files(texts: Sequence[str]) -> dict[str, str]:
    """Return the files by method of texts METHOD=FILE."""
    from outspan.reproduce.methods import POLICY_FILES

    files = {}
    for text in texts:
        method, equals, file = text.partition("=")
        if not equals or method not in POLICY_FILES:
            methods = ", ".join(POLICY_FILES)
            raise ValueError(f"--policy-file must be METHOD=FILE, where METHOD is one of {methods}, got {text!r}")
        files[method] = file
    return files
