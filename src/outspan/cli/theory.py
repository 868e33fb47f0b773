"""The commands of `outspan theory`."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outspan.cli.output import echo, echo_lines
from outspan.files import write_json, write_whole

if TYPE_CHECKING:
    from outspan.theory import Ranking
    from outspan.theory.counterexample import CounterexampleReport
    from outspan.theory.verification import Row

app = typer.Typer(
    help="Check the paper's linear theory, and rank transforms.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@app.callback()
def theory() -> None:
    """Check the paper's linear theory, and rank transforms."""
    # There are thousands of small systems, for which several threads are slower. numpy reads this when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@app.command("verify")
def verify_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    draws: Annotated[int, typer.Option(min=2, help="Number of noise draws per row.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Random seed for the data and the noise.")] = 0,
) -> None:
    """Check every result of the paper: as printed, repaired, exact and simulated.

    Example: outspan theory verify --json
    """
    from dataclasses import asdict

    from outspan.theory import verification

    rows = verification.verify(draws=draws, seed=seed)
    if as_json:
        echo_lines(json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False))
    else:
        _print_verification(rows)


def _print_verification(rows: Sequence["Row"]) -> None:
    from textwrap import fill

    for row in rows:
        echo(f"{row.result}: {row.case}".ljust(60) + row.verdict)
        simulated = "" if row.simulated is None else f", simulated {_number(row.simulated)} ± {row.standard_error:.0e}"
        echo(f"  printed {row.claim} {_number(row.printed)}, exact {_number(row.exact)}{simulated}")
        conditions = ", ".join(name if met else f"{name} (not met)" for name, met in row.conditions.items())
        repaired = f"  repaired {_number(row.repaired)}" + (f"; if {conditions}" if conditions else "")
        echo_lines(fill(repaired, 80, subsequent_indent="    ", break_on_hyphens=False))
    echo("A positive value is a decrease of the error. → is a limit: the deviation at 4n")
    echo("must be at least 40 % smaller than at n.")


def _number(value: float) -> str:
    return "0" if abs(value) < 1e-14 else f"{value:.3g}"  # smaller values are rounding errors


@app.command("counterexample")
def counterexample_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show the smallest case where Theorem 1 fails as printed, and a case where a correctly labelled sample hurts.

    Example: outspan theory counterexample
    """
    from dataclasses import asdict

    from outspan.theory import counterexamples

    cases = counterexamples()
    if as_json:
        echo_lines(json.dumps(asdict(cases), indent=2))
    else:
        _print_counterexamples(cases)


def _print_counterexamples(cases: "CounterexampleReport") -> None:
    smallest = cases.smallest
    echo_lines(
        f"""Theorem 1, equation 1, in the smallest possible case:
  one sample in two dimensions, X = (1, 0), beta = (1, 1), F swaps the two
  entries, lam = 1/2, no noise. So z = (0, 1), with the label 1.
  printed: the error decreases by at least {smallest.printed:.4f}
  exact:   it decreases by {smallest.grown:.4f} with the penalty (n + 1) lam,
           and by {smallest.fixed:.4f} with the fixed penalty n lam

Equation 2. Every sample has the entry 1 along beta. The new sample has an entry
0.2 of beta that no other sample has. Its label is correct and has no noise.
The table shows n times the gain of adding it."""
    )
    echo(f"  {'n':>6} {'p':>6} {'printed':>10} {'(n + 1) lam':>12} {'n lam fixed':>12}")
    for case in cases.spike:
        values = (case.n * value for value in (case.printed, case.grown, case.fixed))
        echo("  {:6} {:6} {:10.4f} {:12.4f} {:12.4f}".format(case.n, case.p, *values))
    echo("The larger penalty loses more than the new sample adds.")
    echo("Keep n lam fixed when you augment.")


@app.command("plot")
def plot_command(out: Annotated[Path, typer.Option("-o", "--out", help="Output folder for the plots.")]) -> None:
    """Plot the gain of a sample against n, |z|^2 and lam, and against the number of candidates if chosen by loss.

    Example: outspan theory plot -o plots
    """
    from outspan.figures.theory import theory_figures
    from outspan.theory import theory_curves

    out.mkdir(parents=True, exist_ok=True)
    for name, figure in theory_figures(theory_curves()).items():
        write_whole(out / f"{name}.png", lambda partial, figure=figure: figure.savefig(partial, format="png"))
        echo(f"wrote {out / name}.png")


@app.command("rank")
def rank_command(
    out: Annotated[Path, typer.Option("-o", "--out", help="JSON file to write.")],
    data: Annotated[str, typer.Option(help="Data set name (digits, mnist, cifar10, …), image folder or .npz file.")],
    transforms: Annotated[str, typer.Option(help="Comma-separated transforms, or all.")] = "all",
    measured: Annotated[Path | None, typer.Option(help='JSON file of error scores by transform: {"rotate": 1.08, …}.')] = None,
    figure: Annotated[Path | None, typer.Option(help="PNG file for a plot of predicted against measured.")] = None,
    samples: Annotated[
        int | None, typer.Option(help="Number of training images, less than the dimension. Default: 400, if available.")
    ] = None,
    features: Annotated[int, typer.Option(help="Number of random features. 0 uses the pixels.")] = 0,
    size: Annotated[int, typer.Option(min=1, help="Image size for an image folder.")] = 224,
    draws: Annotated[int, typer.Option(help="Number of levels per transform.")] = 8,
    seed: Annotated[int, typer.Option(help="Random seed for images, levels and features.")] = 0,
) -> None:
    """Rank transforms by the gain that the theory predicts on your images.

    Example: outspan theory rank --data digits --transforms rotate,shear_x,invert -o rank.json
    """
    from dataclasses import asdict

    from outspan.theory.ranking import rank, rankable, read_scores

    names = rankable() if transforms == "all" else tuple(dict.fromkeys(name.strip() for name in transforms.split(",")))
    scores = None if measured is None else read_scores(measured)
    if figure is not None and scores is None:
        raise ValueError("--figure needs measured scores: pass them with --measured")
    if figure is not None and len((scores or {}).keys() & set(names)) < 3:
        raise ValueError(f"{measured}: --figure needs scores for at least three of the transforms")
    for path in (out, figure):
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"{path}: folder {path.parent} does not exist")
    ranking = rank(data, names, samples=samples, features=features, size=size, draws=draws, seed=seed, measured=scores)
    _print_ranking(ranking)
    write_json(out, asdict(ranking))
    echo(f"wrote {out}")
    if figure is not None:
        from outspan.figures.theory import rank_figure

        write_whole(figure, lambda partial: rank_figure(ranking).savefig(partial, format="png"))
        echo(f"wrote {figure}")


def _print_ranking(ranking: "Ranking") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("transform", "linear", "|z|²", "<z,β>²", "gain", "moved", "net", "measured", box=None, pad_edge=False)
    for row in ranking.rows:
        values = [f"{value:.1e}" for value in (row.energy, row.along, row.gain, row.moved, row.net)]
        table.add_row(row.name, "yes" if row.linear else "", *values, "" if row.measured is None else f"{row.measured:g}")
    Console().print(table)
    for key, value in ranking.spearman.items():
        echo(f"Spearman correlation of {key:>6} with the measured error score: {value:+.2f}")
