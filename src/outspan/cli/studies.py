"""The commands compose, core and mixup."""

from typing import TYPE_CHECKING, Annotated

import typer

from outspan.cli.measure import (
    DataName,
    ModelName,
    Out,
    Probability,
    Seeds,
    Shared,
    study_keys,
    vote_remarks,
    write_figure,
)
from outspan.cli.options import Address, Device, EngineName, GpusPerRun, Jobs, RecipeFile, StudySet
from outspan.cli.output import echo
from outspan.cli.progress import training_progress
from outspan.cli.report import write_report

if TYPE_CHECKING:
    from rich.table import Table

    from outspan.measurement.compose import CompositionGraph
    from outspan.measurement.core import CoreSet
    from outspan.measurement.effects import Estimate
    from outspan.measurement.mixup import MixupStudy

_FIVE = "rotate,random_crop,cutout,translate_x,translate_y"  # the paper's


def compose_command(
    out: Out,
    recipe: RecipeFile = None,
    data: DataName = None,
    model: ModelName = None,
    transforms: Annotated[str, typer.Option(help="Comma-separated transforms (at least 2), or all.")] = _FIVE,
    additive: Annotated[
        bool, typer.Option("--additive", help="Blend both outputs equally, instead of applying B after A.")
    ] = False,
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
    """Measure the effect of every pair of transforms.

    Draws an arrow from A to B if B after A reduces the error of A by more than 10 %.

    In a folder of `outspan measure` with the same settings, the baseline and the single transforms are not trained again.

    Example: outspan compose --data digits --transforms rotate,random_crop,cutout --seeds 9 -o runs/measured
    """
    from rich.console import Console

    from outspan.measurement.compose import compose

    keys = study_keys("compose", data, model, changes)
    options = {"probability": probability, "shared_batches": shared_batches, "watch": training_progress}
    pool = {"jobs": jobs, "engine": engine, "address": address, "gpus_per_run": gpus_per_run, "device": device}
    result = compose(recipe, transforms=transforms, additive=additive, seeds=seeds, out=out, **options, **pool, **keys)
    Console().print(_pairs_table(result))
    for line in [*_edge_lines(result), *vote_remarks(result.info)]:
        echo(line)
    write_figure(out, f"{result.name}.png", result.figure(), f"{result.name}.json")


def core_command(
    out: Out,
    recipe: RecipeFile = None,
    data: DataName = None,
    model: ModelName = None,
    transforms: Annotated[str, typer.Option(help="Comma-separated transforms, or all.")] = _FIVE,
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
    """Find a small set of transforms with a low error.

    This is a greedy search for the smallest set whose error is within 10 % of the best. Its recipe is written to core.toml.

    The folder can be shared with measure and compose. To train the recipe: outspan train FOLDER/core.toml -o RUN

    Example: outspan core --data digits --transforms rotate,random_crop,cutout,translate_x --seeds 9 -o runs/measured
    """
    from outspan.measurement.core import find_core_set

    keys = study_keys("core", data, model, changes)
    options = {"probability": probability, "shared_batches": shared_batches, "watch": training_progress}
    pool = {"jobs": jobs, "engine": engine, "address": address, "gpus_per_run": gpus_per_run, "device": device}
    result = find_core_set(recipe, transforms=transforms, seeds=seeds, out=out, **options, **pool, **keys)
    for line in [*_core_lines(result), *vote_remarks(result.info)]:
        echo(line)
    echo(f"wrote core.json and core.toml in {out}. To train: outspan train {out / 'core.toml'} -o RUN")
    write_report(out)


def mixup_command(
    out: Out,
    recipe: RecipeFile = None,
    data: DataName = None,
    model: ModelName = None,
    l2: Annotated[
        str,
        typer.Option("--l2", help="Comma-separated weight decays. Several need an mlp: held-out images decide which is best."),
    ] = "1e-4,3e-4,1e-3,3e-3",
    fractions: Annotated[
        str, typer.Option("--fractions", "--shares", help="Comma-separated fractions of same-class partners.")
    ] = "0,0.25,0.5,0.75,1",
    seeds: Seeds = 9,
    changes: StudySet = None,
    jobs: Jobs = 1,
    engine: EngineName = "local",
    address: Address = None,
    gpus_per_run: GpusPerRun = None,
    device: Device = None,
    shared_batches: Shared = False,
) -> None:
    """Study the effect of mixup.

    Compares it with weight decay, varies the fraction of same-class partners, and shows margins of the corrected images.

    Example: outspan mixup --data digits --seeds 9 -o runs/mixup
    """
    from rich.console import Console

    from outspan.measurement.mixup import study_mixup

    keys = study_keys("mixup", data, model, changes)
    values = {"weight_decays": _numbers("--l2", l2), "fractions": _numbers("--fractions", fractions)}
    options = {"shared_batches": shared_batches, "watch": training_progress}
    pool = {"jobs": jobs, "engine": engine, "address": address, "gpus_per_run": gpus_per_run, "device": device}
    result = study_mixup(recipe, seeds=seeds, out=out, **values, **options, **pool, **keys)
    Console().print(_mixup_table(result))
    for line in [*_mixup_remarks(result), *vote_remarks(result.info)]:
        echo(line)
    write_figure(out, "mixup.png", result.figure(), "mixup.json")


def _numbers(option: str, text: str) -> list[float]:
    try:
        return list(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise ValueError(f"{option} must be comma-separated numbers, got {text!r}") from None


def _pairs_table(graph: "CompositionGraph") -> "Table":
    """Return the error of every pair: a row for the first transform, a column for the second, edges in green."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("first", no_wrap=True)
    for title in ("alone", *(f"+ {name}" for name in graph.transforms)):
        table.add_column(title, justify="right")
    pairs = {(pair.first, pair.second): pair for pair in graph.pairs}
    for first, alone in graph.transforms.items():
        cells = []
        for second in graph.transforms:
            pair = pairs.get((first, second))
            text = "" if pair is None else f"{100 * pair.scores.error:.2f}"
            cells.append(f"[green]{text}[/green]" if pair is not None and pair.is_edge else text)
        table.add_row(first, f"{100 * alone.error:.2f}", *cells)
    return table


def _edge_lines(graph: "CompositionGraph") -> list[str]:
    """Return one line per edge, and whether it is significant."""
    order = "blended equally" if graph.additive else "one after the other"
    lines = [f"Error in %, {graph.info.test_set}, transforms {order}. Error of the baseline: {100 * graph.baseline.error:.2f}."]
    for pair in sorted(graph.edges, key=lambda pair: -pair.reduction):
        low, high = (100 * end for end in pair.difference.interval)
        unsure = "" if pair.is_significant else ", not significant"
        change = f"by {100 * pair.reduction:.0f} % to {100 * pair.scores.error:.2f} ({low:+.2f} to {high:+.2f}{unsure})"
        lines.append(f"{pair.first} → {pair.second}: reduces the error {change}")
    return lines if len(lines) > 1 else [*lines, "No second transform reduces the error of the first by more than 10 %."]


def _core_lines(core: "CoreSet") -> list[str]:
    """Return one line per step of the search, its cost, and its bias."""
    lines = []
    for step in core.path:
        low, high = (100 * end for end in step.interval)
        mark = "  ← core" if step.transforms == core.transforms else ""
        transforms = " + ".join(step.transforms) or "none"
        lines.append(f"{100 * step.scores.error:5.2f} % ({low:.2f} to {high:.2f})  {transforms}{mark}")
    info = core.info
    lines.append(f"Error of the core set, compared with no transforms: {_change(core.difference)}.")
    lines.append(
        f"Error of the majority vote of {len(info.seeds)} seeds on {info.samples:,} test {info.noun}. "
        f"Number of models: {core.models}. Transforms per sample in the core set: {core.transforms_per_sample:g}."
    )
    return [*lines, f"The core set was selected on these test {info.noun}. Expect a slightly higher error on new data."]


def _change(difference: "Estimate") -> str:
    """Return a difference of two errors, its 95 % interval, and whether it is significant."""
    value, low, high = (100 * number for number in (difference.value, *difference.interval))
    told = "significant" if difference.is_significant else "not significant"
    return f"{value:+.2f} points ({low:+.2f} to {high:+.2f}, {told})"


def _mixup_table(study: "MixupStudy") -> "Table":
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for title in ("accuracy", "error", "instability"):
        table.add_column(title, justify="right")
    rows = [
        (f"baseline, weight decay {study.info.settings.recipe.weight_decay:g}", study.baseline),
        (f"weight decay {study.tuning.weight_decay:g}", study.weight_decay),
        ("+ mixup", study.mixup),
        *((f"+ mixup, {100 * one.fraction:g} % same class", one.scores) for one in study.same_class),
    ]
    for title, scores in rows:
        accuracy = f"{100 * scores.accuracy:.2f} ± {100 * scores.std:.2f}"
        table.add_row(title, accuracy, f"{100 * scores.error:.2f}", f"{100 * scores.instability:.2f}")
    return table


def _mixup_remarks(study: "MixupStudy") -> list[str]:
    lines, tuning = [f"Values in %, {study.info.test_set}."], study.tuning
    if tuning.accuracies:
        tried = ", ".join(f"{value!r} {100 * accuracy:.2f}" for value, accuracy in tuning.accuracies.items())
        lines.append(f"Weight decays and their accuracy on {tuning.held_out:,} held-out training images: {tried}.")
        if tuning.weight_decay in (min(tuning.accuracies), max(tuning.accuracies)):
            lines.append("The best value is at the end of the range. Try more values with --l2.")
    lines.append(f"Error with mixup, compared with weight decay alone: {_change(study.difference)}.")
    corrected = [one for one in study.margins.corrected if one.count]
    for one in corrected:
        margin = f"Mean margin of the baseline on the corrected images: {one.mean_margin:.2f}."
        changed = f"corrects {one.count} images and breaks {one.broken}"
        lines.append(f"Mixup with {100 * one.fraction:g} % same class {changed}. {margin}")
    if corrected:
        wrong = f"{study.margins.mean_of_wrong:.2f}"
        lines.append(f"Mean margin of the baseline on all images that it gets wrong: {wrong}.")
    return lines
