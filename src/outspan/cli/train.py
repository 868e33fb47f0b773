"""The command train."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outspan.children import launched_rank
from outspan.cli.options import DATA_HELP, MODEL_HELP, Device, RecipeFile, Set, SkipBad, as_changes
from outspan.cli.output import echo, wait_for_first_process
from outspan.cli.progress import describe_seconds, training_progress

if TYPE_CHECKING:
    from outspan.config import Recipe
    from outspan.training.validation import Best


def train_command(
    out: Annotated[Path, typer.Option("-o", "--out", help="Run folder. Resumes if it contains a run of the same recipe.")],
    recipe: RecipeFile = None,
    data: Annotated[str | None, typer.Option(help=DATA_HELP)] = None,
    model: Annotated[str | None, typer.Option(help=MODEL_HELP)] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Augmentation policy: auto (the default), none, baseline, random, randaugment, uncertain, …"),
    ] = None,
    policy_file: Annotated[
        str | None,
        typer.Option(help="Published policy file for fastautoaugment or pba. FILE#FUNCTION reads a list from Python code."),
    ] = None,
    changes: Set = None,
    scale: Annotated[float, typer.Option(help="Fraction of the epochs and images to use, for a quick test of a recipe.")] = 1.0,
    skip_bad: SkipBad = 0,
    device: Device = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Number of processes that read image files. Default: one per core, at most 8.")
    ] = None,
    channels_last: Annotated[
        bool | None,
        typer.Option(
            "--channels-last/--no-channels-last",
            help="Memory format of images and convolutions; on CPUs often faster for large images. Default: on a GPU only.",
        ),
    ] = None,
    compile: Annotated[bool, typer.Option("--compile", help="Compile the model with torch.compile.")] = False,
    graphs: Annotated[bool, typer.Option(help="Capture training steps as CUDA graphs (GPU only).")] = True,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Make GPU results bit-identical between runs (slower).")
    ] = False,
    track: Annotated[
        str,
        typer.Option(
            help="Also log metrics and example images to tensorboard or wandb (Weights & Biases); separate both by a comma."
        ),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be trained and how long it would take. Writes no run.")
    ] = False,
) -> None:
    """Train a classifier, or resume the run in the output folder.

    Ctrl-C saves a checkpoint and stops; a second Ctrl-C, after more than a second, stops at once without saving. Run the same
    command again to resume. To train in several processes, start it with torchrun (docs/distributed.md).

    Example: outspan train --data digits --model convnet --set epochs=10 -o runs/first

    Example: outspan train --data reviews.csv --set text_column=review --set label_column=stars -o runs/text
    """
    from outspan.config import build_recipe, read_changes, scaled
    from outspan.data.sets import noun_of
    from outspan.policies.table import check_recipe, warn_ignored_keys
    from outspan.training.train import train

    options = as_changes(data=data, model=model, policy=policy, policy_file=policy_file)
    try:
        built = build_recipe(recipe, read_changes([*options, *(changes or [])]), noun_of)
        check_recipe(built)
    except ValueError:
        wait_for_first_process()
        raise
    if not launched_rank():
        warn_ignored_keys(read_changes(changes or []), built, [built.policy])
    machine = {"device": device, "workers": workers, "channels_last": channels_last, "skip_bad": skip_bad}
    if dry_run:
        _print_dry_run(scaled(built, scale), out, **machine)
        return
    with training_progress(reads=True) as on_step:
        summary = train(
            scaled(built, scale),
            out=out,
            compile=compile,
            graphs=graphs,
            deterministic=deterministic,
            track=track,
            **machine,
            on_begin=on_step.begin,
            on_step=on_step,
        )
    if launched_rank():
        return  # rank 0 reports
    before = "" if on_step.has_begun else "already finished: "
    last = f"epoch {len(summary.metrics)}, where it stopped early" if summary.stopped_early else "the last epoch"
    echo(f"{before}test accuracy {100 * summary.accuracy:.2f} % after {last} ({summary.seconds:.0f} s), saved in {out}")
    if (best := summary.best) is not None:
        where = f"{best.epoch + 1} ({_describe_scores(best)})"
        echo(f"best epoch by validation: {where}; evaluate and predict use its weights with --best")
    if summary.accuracy <= summary.chance:
        echo(f"Not above the majority-class baseline ({100 * summary.chance:.2f} %).")


def _describe_scores(best: "Best") -> str:
    from outspan.training.validation import BEST_METRICS

    accuracies = f"validation {100 * best.validation_accuracy:.2f} %, test {100 * best.accuracy:.2f} %"
    if best.metric == "accuracy":
        return accuracies
    return f"validation {BEST_METRICS[best.metric]} {100 * best.score:.2f} %, accuracy: {accuracies}"


def _print_dry_run(recipe: "Recipe", out: Path, **machine: Any) -> None:
    from outspan.comparison.dry_run import dry_run
    from outspan.config import build_recipe, changed_keys, write_recipe
    from outspan.data.sets import noun_of

    with training_progress("timing a few steps", reads=True) as on_step:
        result = dry_run(recipe, out=out, on_step=on_step, **machine)
    step, policy = result.step_seconds[recipe.policy], result.recipe.policy
    for line in result.description.split("\n"):
        echo(line)
    named = {key: getattr(result.recipe, key) for key in ("data", "model", "optimizer", "policy")}  # others depend on them
    shown = {*named, *changed_keys(build_recipe(None, named, noun_of), result.recipe)}
    echo("recipe; all other keys have the defaults for this data and model:")
    for line in write_recipe(result.recipe).splitlines():
        if line.partition(" ")[0] in shown:
            echo(line)
    echo(f"{result.steps:,} steps, {result.steps / result.epoch_steps:g} epochs of {result.epoch_steps:,} steps")
    epoch, whole = describe_seconds(step * result.epoch_steps), describe_seconds(result.seconds)
    echo(f"about {epoch} per epoch, {whole} in all, without evaluation (a few steps were timed: {1000 * step:.3g} ms per step)")
    if policy != "none":
        echo(f"a step with policy {policy} takes {result.cost:.2f} times as long as one without augmentation")
    where = f"; {out} contains a run, which would be resumed if its recipe and data are the same" if result.has_begun else ""
    echo(f"nothing was written{where}")
