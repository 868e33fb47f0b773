"""Commands that train several recipes: compare and grid."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from outspan.cli.options import DATA_HELP, MODEL_HELP, Jobs, RecipeFile, Set, SkipBad, recipe_keys
from outspan.cli.output import echo
from outspan.cli.progress import training_progress
from outspan.files import write_whole


def compare_command(
    out: Annotated[Path, typer.Option("-o", "--out", help="Output folder for the runs, the plot and the results.")],
    recipe: RecipeFile = None,
    data: Annotated[str | None, typer.Option(help=DATA_HELP)] = None,
    model: Annotated[str | None, typer.Option(help=MODEL_HELP)] = None,
    policies: Annotated[str, typer.Option(help="Comma-separated policies.")] = "none,random,uncertain",
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs per policy (seeds 0, 1, …).")] = 3,
    changes: Set = None,
    jobs: Jobs = 1,
    skip_bad: SkipBad = 0,
) -> None:
    """Compare policies: train each with several seeds.

    Prints a table of test accuracies, and whether the best policy is significantly better. Finished runs are not repeated.

    Example: outspan compare --policies none,random,uncertain --seeds 3 --set transforms=geometric -o runs/compared
    """
    from rich.console import Console
    from rich.table import Table

    from outspan.comparison.policies import compare

    result = compare(
        recipe,
        policies=policies,
        seeds=seeds,
        out=out,
        jobs=jobs,
        skip_bad=skip_bad,
        watch=partial(training_progress, reads=jobs == 1),
        **recipe_keys(changes, data=data, model=model),
    )
    table = Table("policy", "test accuracy, %", "seconds per run", box=None, header_style="bold", pad_edge=False)
    for policy, entry in result.policies.items():
        std = f" ± {100 * entry.std:.2f}" if seeds > 1 else ""
        table.add_row(policy, f"{100 * entry.mean:.2f}{std}", f"{entry.seconds:.1f}")
    Console().print(table)
    for sentence in result.verdicts:
        echo(sentence)
    figure = result.figure()
    write_whole(out / "accuracy.png", lambda partial: figure.savefig(partial, format="png"))
    echo(f"wrote {out / 'accuracy.png'}")


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
) -> None:
    """Grid search: train all points and choose the best.

    The best point has the highest validation accuracy. It is trained again on all training data.

    Example: outspan grid recipes/imdb-bert-large-grid.toml -o runs/grid
    """
    from outspan.comparison.grid import grid_search

    watch = partial(training_progress, reads=jobs == 1)
    result = grid_search(recipe, out=out, jobs=jobs, watch=watch, **recipe_keys(changes))
    for name, accuracy in sorted(result.points.items(), key=lambda item: -(item[1] or 0)):
        score = "diverged" if accuracy is None else f"{100 * accuracy:6.2f} % validation accuracy"
        echo(f"{score:28}  {name}")
    echo(f"test accuracy {100 * result.test_accuracy:.2f} % for {result.chosen}, trained on all training data, in {out}")
