"""The command that measures what transforms do to a model, and what the other studies share with it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from outspan.cli.options import DATA_HELP, RECIPE_HELP, Jobs, Set, as_changes
from outspan.cli.output import echo
from outspan.cli.progress import device, training_progress
from outspan.files import write_json, write_whole

_STYLES = {"better": "green", "worse": "red", "not told apart": ""}


Out = Annotated[Path, typer.Option("-o", "--out", help="Output folder. Finished models in it are not trained again.")]
RecipeFile = Annotated[Path | None, typer.Argument(help=RECIPE_HELP)]
DataName = Annotated[str | None, typer.Option("--data", help=DATA_HELP)]
ModelName = Annotated[
    str | None, typer.Option("--model", help="Model: mlp, convnet, … Default: that of the recipe, or mlp as in the paper.")
]
Seeds = Annotated[int, typer.Option("--seeds", help="Number of models per configuration (seeds 0, 1, …), at least 2.")]
Probability = Annotated[
    float | None,
    typer.Option(
        "--probability", help="Probability of applying a transform to an image or a text.", show_default="0.5; text: 1"
    ),
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
    changes: Set = None,
    jobs: Jobs = 1,
    shared_batches: Shared = False,
) -> None:
    """Measure the effect of each transform: the error of the majority vote over seeds, and how much the seeds disagree.

    Ctrl-C stops. Run the same command again to resume.

    Example: outspan measure --data digits --transforms rotate,shear_x,invert --seeds 9 -o runs/measured
    """
    from rich.console import Console

    from outspan.figures.measure import measure_figure
    from outspan.measurement.study import OWN_KEYS, measure
    from outspan.measurement.summary import save_predictions, summarise

    given = base_recipe("measure", recipe, data, model, changes, OWN_KEYS)
    names = names_in(transforms, given)
    measured = measure(
        given,
        names,
        seeds=range(seeds),
        out=out,
        probability=probability_for(given, probability),
        shared_batches=shared_batches,
        device=device(),
        jobs=jobs,
        watch=training_progress,
    )
    found = summarise(measured)
    Console().print(_table(found))
    for line in _remarks(found, [name for name in found["transforms"] if name not in names], measured.unfinished):
        echo(line)
    write_whole(out / "predictions.npz", lambda partial: save_predictions(partial, measured))
    write_found(out, "scores.json", found, "measure.png", measure_figure(found), "predictions.npz")


def base_recipe(
    command: str, path: Path | None, data: str | None, model: str | None, changes: list[str] | None, own: Sequence[str]
) -> Any:
    """Return the recipe that all configurations begin with; a study refuses its own keys, and says where a file has them."""
    from outspan.config import make_recipe, read_changes, read_values
    from outspan.data.sets import is_textual, noun_of
    from outspan.training.loop import found_from_anywhere

    requested = read_changes(changes or [])
    for key in requested:
        if key in own:
            raise ValueError(f"{command} sets {key} itself, so --set {key} is not allowed; see outspan {command} --help")
    stored = {} if path is None else read_values(path)
    if unused := [key for key, value in stored.items() if key in own and value != "none"]:  # the baseline has none of it, too
        echo(f"outspan: {command} sets these keys itself and ignores their values in {path}: {', '.join(unused)}", err=True)
    textual = is_textual(requested.get("data") or data or str(stored.get("data", "")))
    given = as_changes(data=data, model=model or (None if textual or "model" in stored else "mlp"))
    return found_from_anywhere(make_recipe(path, [*given, *(changes or [])], noun_of))


def probability_for(recipe: Any, requested: float | None) -> float:
    """Return the probability of a transform in a study. Its default is that of the paper: 0.5 for images, 1 for text."""
    from outspan.data.sets import is_textual

    return requested if requested is not None else 1.0 if is_textual(recipe.data) else 0.5


def names_in(text: str, recipe: Any) -> tuple[str, ...]:
    """Return transforms given with commas, each once; "all", or of a named set those, that can be measured on the data."""
    from outspan.measurement.study import measurable
    from outspan.policies.table import TRANSFORM_SETS

    if text.strip() in ("all", *TRANSFORM_SETS):
        requested = TRANSFORM_SETS.get(text.strip())
        return tuple(name for name in measurable(recipe.data, recipe.cache) if requested is None or name in requested)
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def write_found(out: Path, numbers: str, found: Mapping[str, Any], picture: str, figure: Any, *others: str) -> None:
    """Write the numbers and the figure of a study, and print their names."""
    write_json(out / numbers, found)
    write_whole(out / picture, lambda partial: figure.savefig(partial, format="png"))
    echo(f"wrote {', '.join([numbers, *others])} and {picture} in {out}")


def _table(found: Mapping[str, Any]) -> Any:
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))  # within 80 columns
    table.add_column("transform", no_wrap=True)
    for title in ("accuracy", "error", "vs. baseline", "instability", "corrected", "broken"):
        table.add_column(title, justify="right")
    entries = {"baseline": found["baseline"], **found["transforms"]}
    for name, entry in sorted(entries.items(), key=lambda item: (item[1]["error"]["value"], item[0])):
        accuracy, difference = entry["accuracy"], entry.get("difference")
        cells = [f"{100 * accuracy['value']:.2f} ± {100 * accuracy['std']:.2f}", f"{100 * entry['error']['value']:.2f}"]
        instability = f"{100 * entry['instability']['value']:.2f}"
        if difference is None:
            table.add_row(name, *cells, "", instability, "", "", style="bold")
            continue
        low, high = (round(100 * end, 2) + 0.0 for end in difference["error"]["interval"])  # no -0.00
        cells += [f"{low:+.2f} to {high:+.2f}", instability, str(entry["corrected"]["count"]), str(entry["broken"]["count"])]
        table.add_row(name, *cells, style=_STYLES[difference["verdict"]])
    return table


def _remarks(found: Mapping[str, Any], earlier: Sequence[str], unfinished: Sequence[str]) -> list[str]:
    """Say how to read the table, and what a reader must not overlook."""
    seeds, samples, kind, entries = len(found["seeds"]), found["samples"], found["kind"], found["transforms"]
    lines = [f"Values in %, {seeds} seeds, {samples:,} test {kind}. 95 % intervals over test {kind}, for these trained models."]
    for verdict in ("better", "worse"):
        names = [name for name, entry in entries.items() if entry["difference"]["verdict"] == verdict]
        lines.append(f"Significantly {verdict} than the baseline: {', '.join(names) or 'none'}.")
    if earlier:
        lines.append(f"Measured earlier in the same folder: {', '.join(earlier)}.")
    if unfinished:
        lines.append(f"Not shown, measured earlier with fewer than {seeds} seeds: {', '.join(unfinished)}.")
    return lines + said_of_votes(found)


def said_of_votes(found: Mapping[str, Any]) -> list[str]:
    """Say what a reader must know before the numbers: votes without a majority, shared batches, models that learnt nothing."""
    even = " Ties are common with an even number of seeds." if len(found["seeds"]) % 2 == 0 else ""
    tied = f"{found['ties']:,} of {found['votes']:,} votes were tied and were decided at random.{even}"
    chance = (
        f"The model without transforms is not above the majority-class baseline ({100 * found['largest_class']:.2f} %), so "
        "these results say nothing about the transforms. Train longer with --set epochs=…, or use another --model."
    )
    lines = ([tied] if found["ties"] else []) + ([f"Shared batches: {found['note']}."] if "note" in found else [])
    return lines if found["learnt"] else [*lines, chance]
