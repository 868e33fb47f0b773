"""The command measure, and the options and lines of output that compose, core and mixup share with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from outspan.cli.options import DATA_HELP, Address, Device, EngineName, GpusPerRun, Jobs, RecipeFile, StudySet, recipe_keys
from outspan.cli.output import echo
from outspan.cli.progress import training_progress
from outspan.cli.report import write_report
from outspan.files import write_whole

if TYPE_CHECKING:
    from rich.table import Table

    from outspan.measurement.effects import Measurement
    from outspan.measurement.info import StudyInfo
    from outspan.recipe_keys import StudyKeys

_STYLES = {"better": "green", "worse": "red"}


Out = Annotated[Path, typer.Option("-o", "--out", help="Output folder. Finished models in it are not trained again.")]
DataName = Annotated[str | None, typer.Option("--data", help=DATA_HELP)]
ModelName = Annotated[
    str | None, typer.Option("--model", help="Model: mlp, convnet, … Default: the model of the recipe, or mlp as in the paper.")
]
Seeds = Annotated[int, typer.Option("--seeds", help="Number of models with each transform (seeds 0, 1, …), at least 2.")]
Probability = Annotated[
    float | None,
    typer.Option("--probability", help="Probability of applying a transform to a sample. Default: 0.5 for images, 1 for text."),
]
Shared = Annotated[
    bool, typer.Option("--shared-batches", help="Train all seeds on the same batches. Faster, but it changes the results.")
]


def measure_command(
    out: Out,
    recipe: RecipeFile = None,
    data: DataName = None,
    model: ModelName = None,
    transforms: Annotated[str, typer.Option(help="Comma-separated transforms, or all.")] = "all",
    seeds: Seeds = 9,
    probability: Probability = None,
    changes: StudySet = None,
    jobs: Jobs = 1,
    engine: EngineName = "local",
    address: Address = None,
    gpus_per_run: GpusPerRun = None,
    device: Device = None,
    shared_batches: Shared = False,
) -> None:
    """Measure the effect of each transform.

    Trains several seeds with each transform alone. Prints the error of their majority vote, and how much the seeds disagree.

    Ctrl-C stops. Run the same command again to resume.

    Example: outspan measure --data digits --transforms rotate,shear_x,invert --seeds 9 -o runs/measured
    """
    from rich.console import Console

    from outspan.measurement.measure import measure

    result = measure(
        recipe,
        transforms=transforms,
        seeds=seeds,
        out=out,
        probability=probability,
        shared_batches=shared_batches,
        jobs=jobs,
        engine=engine,
        address=address,
        gpus_per_run=gpus_per_run,
        device=device,
        watch=training_progress,
        **study_keys("measure", data, model, changes),
    )
    Console().print(_table(result))
    for line in [*_remarks(result), *vote_remarks(result.info)]:
        echo(line)
    write_figure(out, "measure.png", result.figure(), "scores.json", "predictions.npz")


def study_keys(study: str, data: str | None, model: str | None, changes: Sequence[str] | None) -> "StudyKeys":
    """Return the recipe keys of a command line. Keys that the study sets itself are refused."""
    from outspan.measurement.recipes import check_keys

    keys = recipe_keys(changes, data=data, model=model)
    check_keys(study, keys)
    return cast("StudyKeys", keys)


def write_figure(out: Path, name: str, figure: Any, *others: str) -> None:
    """Write the figure of a study and its report into its folder, and print the names of all its files."""
    write_whole(out / name, lambda partial: figure.savefig(partial, format="png"))
    echo(f"wrote {', '.join(others)} and {name} in {out}")
    write_report(out)


def _table(result: "Measurement") -> "Table":
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))  # within 80 columns
    table.add_column("transform", no_wrap=True)
    for title in ("accuracy", "error", "vs. baseline", "instability", "corrected", "broken"):
        table.add_column(title, justify="right")
    scored = {"baseline": result.baseline} | {name: one.scores for name, one in result.transforms.items()}
    for name, scores in sorted(scored.items(), key=lambda item: (item[1].error.value, item[0])):
        accuracy = f"{100 * scores.accuracy.value:.2f} ± {100 * scores.accuracy_std:.2f}"
        error, instability = f"{100 * scores.error.value:.2f}", f"{100 * scores.instability.value:.2f}"
        if name not in result.transforms:
            table.add_row(name, accuracy, error, "", instability, "", "", style="bold")
            continue
        effect = result.transforms[name].effect
        low, high = (round(100 * end, 2) + 0.0 for end in effect.error.interval)  # + 0.0 turns -0.0 into 0.0
        cells = [f"{low:+.2f} to {high:+.2f}", instability, str(effect.corrected), str(effect.broken)]
        table.add_row(name, accuracy, error, *cells, style=_STYLES.get(effect.verdict, ""))
    return table


def _remarks(result: "Measurement") -> list[str]:
    """Return how to read the table."""
    noun = result.info.noun
    lines = [f"Values in %, {result.info.test_set}. 95 % intervals over test {noun}, for these trained models."]
    for verdict in ("better", "worse"):
        names = ", ".join(result.by_verdict(verdict))
        significant = f"Significantly {verdict} than the baseline: {names}."
        lines.append(significant if names else f"No transform is significantly {verdict} than the baseline.")
    if result.earlier:
        lines.append(f"Measured earlier in the same folder: {', '.join(result.earlier)}.")
    if result.unfinished:
        count = len(result.info.seeds)
        lines.append(f"Not shown, measured earlier with fewer than {count} seeds: {', '.join(result.unfinished)}.")
    return lines


def vote_remarks(info: "StudyInfo") -> list[str]:
    """Return the caveats of a study: tied votes, shared batches, and models that learned nothing."""
    lines = []
    if info.ties:
        even = " Ties are common with an even number of seeds." if len(info.seeds) % 2 == 0 else ""
        lines.append(f"{info.ties:,} of {info.votes:,} votes were tied and were decided at random.{even}")
    if info.note:
        lines.append(f"Shared batches: {info.note}.")
    if not info.learned:
        lines.append(
            f"The model without transforms is not above the majority-class baseline ({100 * info.largest_class:.2f} %), so "
            "these results say nothing about the transforms. Train longer with --set epochs=…, or use another --model."
        )
    return lines
