"""The command report, and the report that other commands write at their end."""

from pathlib import Path
from typing import Annotated

import typer

from outspan.cli.output import echo


def report_command(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder of a run, of compare, measure, compose, core or mixup, or a folder with several of them."),
    ],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="HTML file to write. Default: FOLDER/report.html.")] = None,
    data: Annotated[
        str | None, typer.Option(help="Test data, instead of the data of the runs, e.g. if it was moved. Name or path.")
    ] = None,
) -> None:
    """Write one HTML page about results.

    The page shows what happened and what to use: curves, errors, verdicts, and example images before and after
    augmentation. It is a single file that needs no network, for a browser, a phone or a printer.

    Example: outspan report runs/compared -o report.html
    """
    from outspan.reporting.report import report

    echo(f"wrote {report(folder, out=out, data=data)}")


def write_report(folder: Path) -> None:
    """Write the report about the folder of a command that has ended, and print its name."""
    from outspan.reporting.report import report

    echo(f"wrote {report(folder)}")
