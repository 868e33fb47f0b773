"""Commands that train: train, compare, grid."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from outspan.cli.output import echo
from outspan.files import write_json, write_whole

RECIPE_HELP = "Recipe file (TOML). Without it the defaults are used. Options override its values."
DATA_HELP = (
    "Data set name (digits, mnist, cifar10, …), image folder or .npz file. For text: imdb, a .csv, .tsv or .jsonl file, "
    "or a folder."
)
MODEL_HELP = "Model: mlp, convnet, wide_resnet-28-2, … or timm:NAME. For text: a Hugging Face Hub name or a local folder."
Set = Annotated[list[str] | None, typer.Option("--set", help="Override a recipe key, e.g. --set lr=0.2. Can be repeated.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Number of parallel training processes, one thread each.")]
_PAUSE = 30.0  # seconds between two lines of a command without a terminal
_told = time.perf_counter()  # when it said the last one, or began
SkipBad = Annotated[int, typer.Option(min=0, help="Tolerate up to N unreadable files in an image folder.")]


def train_command(
    out: Annotated[Path, typer.Option("-o", "--out", help="Run folder. Resumes if it contains a run of the same recipe.")],
    recipe: Annotated[Path | None, typer.Argument(help=RECIPE_HELP)] = None,
    data: Annotated[str | None, typer.Option(help=DATA_HELP)] = None,
    model: Annotated[str | None, typer.Option(help=MODEL_HELP)] = None,
    policy: Annotated[
        str | None, typer.Option(help="Augmentation policy: none, baseline, random, uncertain, randaugment, …")
    ] = None,
    policy_file: Annotated[
        str | None,
        typer.Option(help="Published policy file for fastautoaugment or pba. FILE#FUNCTION reads a list from Python code."),
    ] = None,
    changes: Set = None,
    scale: Annotated[float, typer.Option(help="Fraction of the epochs and images to use, for a quick test of a recipe.")] = 1.0,
    skip_bad: SkipBad = 0,
    compile: Annotated[bool, typer.Option("--compile", help="Compile the model with torch.compile.")] = False,
    graphs: Annotated[bool, typer.Option(help="Capture training steps as CUDA graphs (GPU only).")] = True,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Make GPU results bit-identical between runs (slower).")
    ] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events.")] = False,
) -> None:
    """Train a classifier, or resume the run in the output folder.

    Ctrl-C saves a checkpoint and stops. Run the same command again to resume.

    Example: outspan train --data digits --model convnet --policy uncertain --set epochs=10 -o runs/first

    Example: outspan train --data reviews.csv --set text_column=review --set label_column=stars -o runs/text
    """
    from outspan.config import make_recipe, read_changes, scaled
    from outspan.data.sets import is_textual
    from outspan.policies.named import check_recipe, without_effect
    from outspan.training.loop import train

    options = given_options(data=data, model=model, policy=policy, policy_file=policy_file)
    given = make_recipe(recipe, [*options, *(changes or [])], is_textual)
    check_recipe(given)
    if unused := without_effect(read_changes(changes or []), given.policy):
        echo(f"outspan: policy {given.policy} ignores these keys: {', '.join(unused)}", err=True)
    with training_progress(reads=True) as on_step:
        summary = train(
            scaled(given, scale),
            out=out,
            device=device(),
            compile=compile,
            graphs=graphs,
            deterministic=deterministic,
            tensorboard=tensorboard,
            skip_bad=skip_bad,
            on_begin=partial(echo, err=True),
            on_step=on_step,
        )
    echo(f"test accuracy {100 * summary.accuracy:.2f} % after the last epoch ({summary.seconds:.0f} s), saved in {out}")
    if summary.accuracy <= summary.chance:
        echo(f"Not above the majority-class baseline ({100 * summary.chance:.2f} %).")


def given_options(**options: str | None) -> list[str]:
    """Return the options that are given as changes of a recipe."""
    return [f"{key}={value}" for key, value in options.items() if value is not None]


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
    from outspan.data.sets import is_textual
    from outspan.figures.compare import compare_figure, numbers, read_honestly, said_of_chance
    from outspan.policies.named import check_for, check_recipe, find_policy, has_baseline
    from outspan.training.loop import train
    from outspan.training.workers import named, run_all

    given = make_recipe(recipe, [*given_options(data=data, model=model), *(changes or [])], is_textual)
    for key in ("policy", "seed"):
        if any(change.partition("=")[0].strip() == key for change in changes or []):
            raise ValueError(f"compare sets {key} itself, so --set {key} is not allowed: use --policies and --seeds")
    names = list(dict.fromkeys(name.strip() for name in policies.split(",")))
    recipes = {}
    for name in names:
        policy_file = given.policy_file if find_policy(name).needs_file else ""
        recipes[name] = replace(given, policy=name, policy_file=policy_file)
        check_recipe(recipes[name])
        check_for(recipes[name], "texts" if is_textual(given.data) else "images")
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


@contextmanager
def training_progress(title: str = "", *, reads: bool = False) -> Iterator[Callable[[dict[str, Any]], bool]]:
    """Show a bar on a terminal, elsewhere a line every half minute; Ctrl-C, SIGTERM and SIGHUP ask the run to save and stop.

    Where the run `reads` its data first, which can take minutes, there is nothing to save before the first step: they end it.
    """
    import signal

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from outspan.training import Stopped

    requested: list[int] = []
    reading = reads

    def answer(number: int, _: Any) -> None:
        if requested or reading:  # a second time: at once
            raise KeyboardInterrupt
        requested.append(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it: so do we
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, answer) for number in numbers}
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn())
    try:
        console = Console(stderr=True)
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task(title, said="loading data" if reads else "")

            began, images = time.perf_counter(), 0

            def on_step(state: dict[str, Any]) -> bool:
                global _told
                nonlocal images, reading
                reading = False
                images += state["images"]
                speed = images / (time.perf_counter() - began)
                message = state.get("said") or _said(state, speed)
                bar.update(task, completed=state["step"], total=state["steps"], said=message)
                if bar.disable and time.perf_counter() - _told > _PAUSE:
                    _told = time.perf_counter()
                    echo(f"{title}  {state['step'] / state['steps']:.0%}  {message}".strip(), err=True)
                return bool(requested)

            yield on_step
        if requested:  # between two steps of nothing: the run is over, what was to follow is not begun
            raise Stopped("stopped; run the same command again to resume")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _said(state: dict[str, Any], speed: float) -> str:
    message = f"epoch {state['epoch'] + 1}/{state['epochs']}  loss {state['loss']:.3f}  {speed:,.0f} samples/s"
    return message + (f"  test {100 * state['metrics'][-1]['test_accuracy']:.2f} %" if state["metrics"] else "")


def device() -> str:
    """Return the device that commands train on: a GPU where there is one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
