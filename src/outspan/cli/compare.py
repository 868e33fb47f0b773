"""Commands that train several recipes: compare and grid."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outspan.cli.options import (
    DATA_HELP,
    MODEL_HELP,
    Address,
    Device,
    EngineName,
    GpusPerRun,
    Jobs,
    RecipeFile,
    Set,
    SkipBad,
    recipe_keys,
)
from outspan.cli.output import echo
from outspan.cli.progress import training_progress
from outspan.cli.report import write_report
from outspan.files import write_whole
from outspan.messages import show_seconds

if TYPE_CHECKING:
    from rich.table import Table

    from outspan.comparison.result import PolicyResult


def compare_command(
    out: Annotated[Path, typer.Option("-o", "--out", help="Output folder for the runs, the plot and the results.")],
    recipe: RecipeFile = None,
    data: Annotated[str | None, typer.Option(help=DATA_HELP)] = None,
    model: Annotated[str | None, typer.Option(help=MODEL_HELP)] = None,
    policies: Annotated[str, typer.Option(help="Comma-separated policies.")] = "none,random,auto",
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of runs per policy (seeds 0, 1, …). Default: 3.")] = None,
    folds: Annotated[
        str | None,
        typer.Option(metavar="K", help="Cross-validation: one run per fold of the train samples, with the seed of its number."),
    ] = None,
    equal: Annotated[
        str, typer.Option(help="What all policies get: the same number of `epochs`, or the same `time`.")
    ] = "epochs",
    minutes: Annotated[float | None, typer.Option(help="With --equal time: minutes of training of each run.")] = None,
    budgets: Annotated[str, typer.Option(help="With --equal time: multiples of the time, e.g. 1,2,4.")] = "1",
    metric: Annotated[
        str,
        typer.Option(
            help="Test metric of the table: accuracy, top5, balanced_accuracy, macro_f1, weighted_f1 or auroc; with several "
            "labels per sample accuracy, map, micro_f1, macro_f1 or label_accuracy."
        ),
    ] = "accuracy",
    changes: Set = None,
    jobs: Jobs = 1,
    engine: EngineName = "local",
    address: Address = None,
    gpus_per_run: GpusPerRun = None,
    device: Device = None,
    skip_bad: SkipBad = 0,
) -> None:
    """Compare policies: train each with several seeds, or on the folds of a cross-validation.

    Prints a table of test accuracies, which policies lead and trail, and whether the differences are significant.
    With --equal time, the time of a step is measured first. Then all policies train for as long as the fastest one
    needs for the epochs of the recipe. Finished runs are not repeated.

    Example: outspan compare --policies none,random,auto --seeds 3 --equal time -o runs/compared
    """
    from rich.console import Console

    from outspan.comparison.policies import compare

    result = compare(
        recipe,
        policies=policies,
        seeds=seeds,
        out=out,
        equal=equal,
        minutes=minutes,
        budgets=_parse_budgets(budgets),
        metric=metric,
        jobs=jobs,
        engine=engine,
        address=address,
        gpus_per_run=gpus_per_run,
        device=device,
        skip_bad=skip_bad,
        watch=partial(training_progress, reads=jobs == 1 and engine == "local"),
        **recipe_keys(changes, data=data, model=model, folds=folds),
    )
    for multiple, entries in sorted(result.budgets.items()):
        if len(result.budgets) > 1:
            echo(f"budget {multiple:g}")
        Console().print(_table(entries, metric))
    for sentence in (*result.warnings, *result.verdicts):
        echo(sentence)
    if any(one.p is not None for one in result.differences):
        corrected = ", with Nadeau and Bengio's correction" if result.recipe.folds else ""
        echo(f"± after a difference: half the width of its 95 % confidence interval, paired by {result.unit}{corrected}.")
        echo("Significance: 5 % for all pairs of policies together (Holm's correction).")
    figures = {"accuracy.png": result.figure()} | ({"frontier.png": result.frontier()} if len(result.budgets) > 1 else {})
    for name, figure in figures.items():
        write_whole(out / name, lambda partial, figure=figure: figure.savefig(partial, format="png"))
        echo(f"wrote {out / name}")
    write_report(out)


def _parse_budgets(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--budgets must be numbers separated by commas, e.g. 1,2,4, got {text!r}") from None


def _table(entries: Mapping[str, PolicyResult], metric: str) -> Table:
    """Return the table of the policies of one budget."""
    from rich.table import Table

    columns = ("policy", f"test {metric}, %", "epochs", "steps", "seconds per run")
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for policy, entry in entries.items():
        std = f" ± {100 * entry.std:.2f}" if len(entry.accuracies) > 1 else ""
        numbers = f"{100 * entry.mean:.2f}{std}", f"{entry.epochs:.4g}", f"{entry.steps:,}", show_seconds(entry.seconds)
        table.add_row(policy, *numbers)
    return table


def grid_command(
    recipe: Annotated[
        Path,
        typer.Argument(
            help="Recipe in which some keys have a list of values. It must set validation, or the data must have a val split."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Output folder for the runs. Finished runs are not repeated.")],
    changes: Set = None,
    jobs: Jobs = 1,
    engine: EngineName = "local",
    address: Address = None,
    gpus_per_run: GpusPerRun = None,
    device: Device = None,
) -> None:
    """Grid search: train all points and choose the best.

    The best point has the highest validation accuracy, or `best_metric`. It is trained again on all training data.

    Example: outspan grid recipes/imdb-bert-large-grid.toml -o runs/grid
    """
    from outspan.comparison.grid import grid_search
    from outspan.training.validation import BEST_METRICS

    watch = partial(training_progress, reads=jobs == 1 and engine == "local")
    pool = {"jobs": jobs, "engine": engine, "address": address, "gpus_per_run": gpus_per_run, "device": device}
    result = grid_search(recipe, out=out, **pool, watch=watch, **recipe_keys(changes))
    for name, value in sorted(result.points.items(), key=lambda item: -(item[1] or 0)):
        score = "diverged" if value is None else f"{100 * value:6.2f} % validation {BEST_METRICS[result.metric]}"
        echo(f"{score:28}  {name}")
    echo(f"test accuracy {100 * result.test_accuracy:.2f} % for {result.chosen}, trained on all training data, in {out}")
