"""The command report, and the report that other commands write at their end."""

from pathlib import Path
from typing import Annotated

import typer

from outspan.cli.output import echo
from outspan.files import write_whole


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


def candidates_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run on images with the policy uncertain.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="PNG file to write.")],
    count: Annotated[int, typer.Option(min=1, max=100, help="Number of training images.")] = 8,
) -> None:
    """Draw candidates, their losses and the choice.

    Shows what the policy of a trained run does with some training images: the candidates that it draws for each of them,
    their losses, and which of them it trains on.

    Example: outspan candidates runs/first -o candidates.png
    """
    from outspan.figures.candidates import candidates_figure
    from outspan.reporting.chosen import candidate_rows
    from outspan.training.evaluation_data import load_evaluation_data
    from outspan.training.trained import load

    if out.suffix.lower() != ".png":
        raise ValueError(f"{out}: must be a .png file, got {out.suffix!r}")
    trained = load(run)
    figure = candidates_figure(candidate_rows(trained, load_evaluation_data(trained).data, count))
    write_whole(out, lambda partial: figure.savefig(partial, format="png"))
    echo(f"wrote {out}")


def write_report(folder: Path) -> None:
    """Write the report about the folder of a command that has ended, and print its name."""
    from outspan.reporting.report import report

    echo(f"wrote {report(folder)}")
