"""Commands that train several recipes: compare and grid."""

import itertools
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from outspan.cli.options import DATA_HELP, MODEL_HELP, RECIPE_HELP, Jobs, Set, SkipBad, as_changes
from outspan.cli.output import echo
from outspan.cli.progress import device, training_progress
from outspan.files import write_json, write_whole


def compare(
    out: Annotated[Path, typer.Option("-o", "--out", help="Output folder for the runs, the plot and the results.")],
    recipe: Annotated[Path | None, typer.Argument(help=RECIPE_HELP)] = None,
    data: Annotated[str | None, typer.Option(help=DATA_HELP)] = None,
    model: Annotated[str | None, typer.Option(help=MODEL_HELP)] = None,
    policies: Annotated[str, typer.Option(help="Comma-separated policies.")] = "none,random,uncertain",
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs per policy (seeds 0, 1, …).")] = 3,
    changes: Set = None,
    jobs: Jobs = 1,
    skip_bad: SkipBad = 0,
) -> None:
    """Train several policies with several seeds each, and print a table. Finished runs are not repeated.

    Example: outspan compare --policies none,random,uncertain --seeds 3 --set transforms=geometric -o runs/compared
    """
    from dataclasses import replace

    from rich.console import Console
    from rich.table import Table

    from outspan.config import make_recipe
    from outspan.data.sets import noun_of
    from outspan.figures.compare import compare_figure, numbers, read_honestly, said_of_chance
    from outspan.policies.table import check_for, check_recipe, find_policy, has_baseline
    from outspan.training.loop import train
    from outspan.training.pool import named, run_all

    given = make_recipe(recipe, [*as_changes(data=data, model=model), *(changes or [])], noun_of)
    for key in ("policy", "seed"):
        if any(change.partition("=")[0].strip() == key for change in changes or []):
            raise ValueError(f"compare sets {key} itself, so --set {key} is not allowed: use --policies and --seeds")
    names = list(dict.fromkeys(name.strip() for name in policies.split(",")))
    recipes = {}
    for name in names:
        policy_file = given.policy_file if find_policy(name).needs_file else ""
        recipes[name] = replace(given, policy=name, policy_file=policy_file)
        check_recipe(recipes[name])
        check_for(recipes[name], noun_of(given.data))
    if "baseline" in names and len(names) > 1 and given.defaults == "none" and has_baseline(given.data):
        fair = "For a fair comparison add `--set defaults=flip` or `--set defaults=cifar-cutout`."
        echo(f"outspan: only `baseline` crops and flips. {fair}", err=True)
    tasks = {}
    # The most expensive first, so that none of them is left alone at the end.
    for policy, seed in sorted(itertools.product(names, range(seeds)), key=lambda task: not find_policy(task[0]).asks_model):
        own, folder, title = replace(recipes[policy], seed=seed), out / f"{policy}-{seed}", f"{policy}, seed {seed}"
        run = partial(train, own, out=folder, device=device(), skip_bad=skip_bad)
        tasks[policy, seed] = title, partial(named, title, run)
    done = run_all(list(tasks.values()), jobs=jobs, watch=partial(training_progress, reads=jobs == 1))
    found_by = dict(zip(tasks, done, strict=True))
    runs = {policy: [found_by[policy, seed] for seed in range(seeds)] for policy in names}
    table = Table("policy", "test accuracy, %", "seconds per run", box=None, header_style="bold", pad_edge=False)
    found = numbers(given, runs)
    for policy, entry in found["policies"].items():
        noise = f" ± {100 * entry['std']:.2f}" if seeds > 1 else ""
        table.add_row(policy, f"{100 * entry['mean']:.2f}{noise}", f"{entry['seconds']:.1f}")
    Console().print(table)
    echo(read_honestly(runs))
    if message := said_of_chance(runs):
        echo(message)
    write_json(out / "comparison.json", found)
    write_whole(out / "accuracy.png", lambda partial: compare_figure(runs).savefig(partial, format="png"))
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
    """Train every point of a grid, select the best on the validation set, and retrain it on all training data.

    Example: outspan grid recipes/imdb-bert-large-grid.toml -o runs/grid
    """
    from outspan.config import read_changes
    from outspan.training.grid import read_grid, run_grid

    watch = partial(training_progress, reads=jobs == 1)
    found = run_grid(*read_grid(recipe, read_changes(changes or [])), out=out, device=device(), jobs=jobs, watch=watch)
    for name, accuracy in sorted(found["points"].items(), key=lambda item: -(item[1] or 0)):
        score = "diverged" if accuracy is None else f"{100 * accuracy:6.2f} % validation accuracy"
        echo(f"{score:28}  {name}")
    echo(f"test accuracy {100 * found['test_accuracy']:.2f} % for {found['chosen']}, trained on all training data, in {out}")
