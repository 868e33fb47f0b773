"""Commands of the larger studies: compose, core and mixup."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from outspan.cli.measure import (
    DataName,
    Jobs,
    ModelName,
    Out,
    Probability,
    RecipeFile,
    Seeds,
    Shared,
    base_recipe,
    names_in,
    probability_for,
    said_of_votes,
    write_found,
)
from outspan.cli.options import Set
from outspan.cli.output import echo
from outspan.cli.progress import device, training_progress
from outspan.files import write_json, write_whole

_FIVE = "rotate,random_crop,cutout,translate_x,translate_y"  # the paper's


def compose_command(
    out: Out,
    recipe: RecipeFile = None,
    data: DataName = None,
    model: ModelName = None,
    transforms: Annotated[str, typer.Option(help="Comma-separated transforms (at least 2), or all.")] = _FIVE,
    additive: Annotated[bool, typer.Option("--additive", help="Blend both outputs equally instead of chaining them.")] = False,
    seeds: Seeds = 9,
    probability: Probability = None,
    changes: Set = None,
    jobs: Jobs = 1,
    shared_batches: Shared = False,
) -> None:
    """Measure every pair of transforms, and draw the pairs where B after A reduces the error of A by more than 10 %.

    In a folder of `outspan measure` with the same settings, the baseline and the single transforms are not trained again.

    Example: outspan compose --data digits --transforms rotate,random_crop,cutout --seeds 9 -o runs/measured
    """
    from dataclasses import replace

    from rich.console import Console

    from outspan.figures.measure import graph_figure
    from outspan.measurement.compose import compositions, graph
    from outspan.measurement.study import BASELINE, OWN_KEYS

    given = base_recipe("compose", recipe, data, model, changes, OWN_KEYS)
    names = names_in(transforms, given)
    recipes = compositions(replace(given, probability=probability_for(given, probability)), names, additive=additive)
    measured = _study(recipes[BASELINE], seeds, out, shared_batches, jobs).run(recipes)
    found = graph(measured, names, additive=additive)
    Console().print(_pairs_table(found))
    for line in [*_edges(found), *said_of_votes(found)]:
        echo(line)
    name = "composition-additive" if additive else "composition"
    write_found(out, f"{name}.json", found, f"{name}.png", graph_figure(found))


def core_command(
    out: Out,
    recipe: RecipeFile = None,
    data: DataName = None,
    model: ModelName = None,
    transforms: Annotated[str, typer.Option(help="Comma-separated transforms, or all.")] = _FIVE,
    seeds: Seeds = 9,
    probability: Probability = None,
    changes: Set = None,
    jobs: Jobs = 1,
    shared_batches: Shared = False,
) -> None:
    """Find the smallest set of transforms within 10 % of the best error (greedy search), and write its recipe.

    The folder can be shared with measure and compose. To train the recipe: outspan train DIR/core.toml -o RUN

    Example: outspan core --data digits --transforms rotate,random_crop,cutout,translate_x --seeds 9 -o runs/measured
    """
    from outspan.config import write_recipe
    from outspan.measurement.core import core
    from outspan.measurement.study import BASELINE, OWN_KEYS, configurations

    given = base_recipe("core", recipe, data, model, changes, OWN_KEYS)
    names = names_in(transforms, given)
    baseline = configurations(given, names, probability_for(given, probability))[BASELINE]
    chosen = core(_study(baseline, seeds, out, shared_batches, jobs), names)
    found = chosen.found
    for entry in found["path"]:
        low, high = (100 * end for end in entry["interval"])
        line = f"{100 * entry['error']:5.2f} % ({low:.2f} to {high:.2f})  {' + '.join(entry['transforms']) or 'none'}"
        echo(line + ("  ← core" if entry["transforms"] == found["core"] else ""))
    cost = found["cost"]
    echo(
        f"Error of the majority vote of {seeds} seeds on {found['samples']:,} test {found['kind']}. "
        f"Number of models: {cost['models']}. Transforms per image in the core set: {cost['transforms_an_image']:g}."
    )
    biased = f"The core set was selected on these test {found['kind']}. Expect a slightly higher error on new data."
    for line in [biased, *said_of_votes(found)]:
        echo(line)
    error, best = (f"{100 * entry['error']:.2f} %" for entry in (found, found["best"]))
    comment = f"Error of the majority vote of {seeds} seeds: {error}. Best set: {best}."
    text = write_recipe(
        chosen.recipe,
        f"The core set found by `outspan core`: {' + '.join(found['core']) or 'none'}.",
        comment,
    )
    write_whole(out / "core.toml", lambda partial: partial.write_text(text, encoding="utf-8"))
    write_json(out / "core.json", found)
    echo(f"wrote core.json and core.toml in {out}. To train: outspan train {out / 'core.toml'} -o RUN")


def mixup_command(
    out: Out,
    recipe: RecipeFile = None,
    data: DataName = None,
    model: ModelName = None,
    l2: Annotated[
        str, typer.Option("--l2", help="Comma-separated weight decays. Several are compared on held-out training images (mlp).")
    ] = "1e-4,3e-4,1e-3,3e-3",
    shares: Annotated[str, typer.Option(help="Comma-separated fractions of same-class partners.")] = "0,0.25,0.5,0.75,1",
    seeds: Seeds = 9,
    changes: Set = None,
    jobs: Jobs = 1,
    shared_batches: Shared = False,
) -> None:
    """Study mixup: comparison with weight decay, fraction of same-class partners, margins of the corrected images.

    Example: outspan mixup --data digits --seeds 9 -o runs/mixup
    """
    from rich.console import Console

    from outspan.figures.measure import mixup_figure
    from outspan.measurement.mixup import baseline_of, check_asked, mixup_summary, study_mixup
    from outspan.measurement.study import OWN_KEYS

    baseline = baseline_of(base_recipe("mixup", recipe, data, model, changes, OWN_KEYS))
    decays, requested = _numbers("--l2", l2), _numbers("--shares", shares)
    check_asked(baseline, decays, requested)
    measured, tuned = study_mixup(_study(baseline, seeds, out, shared_batches, jobs), decays, requested)
    found = mixup_summary(measured, tuned, requested)
    Console().print(_mixup_table(found))
    for line in [*_mixup_remarks(found), *said_of_votes(found)]:
        echo(line)
    write_found(out, "mixup.json", found, "mixup.png", mixup_figure(found))


def _numbers(option: str, text: str) -> list[float]:
    try:
        return list(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise ValueError(f"{option} must be comma-separated numbers, got {text!r}") from None


def _study(baseline: Any, seeds: int, out: Path, shared_batches: bool, jobs: int) -> Any:
    from outspan.measurement.study import Study

    options = {"shared_batches": shared_batches, "device": device(), "jobs": jobs, "watch": training_progress}
    return Study(baseline, seeds=range(seeds), out=out, **options)


def _pairs_table(found: Mapping[str, Any]) -> Any:
    """Return the error of every pair: a row for the first, a column for the second, an edge in green."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("first", no_wrap=True)
    for title in ("alone", *(f"+ {name}" for name in found["transforms"])):
        table.add_column(title, justify="right")
    pairs = {(pair["first"], pair["second"]): pair for pair in found["pairs"]}
    for first, alone in found["transforms"].items():
        cells = []
        for second in found["transforms"]:
            pair = pairs.get((first, second))
            text = "" if pair is None else f"{100 * pair['error']:.2f}"
            cells.append(f"[green]{text}[/green]" if pair is not None and pair["edge"] else text)
        table.add_row(first, f"{100 * alone['error']:.2f}", *cells)
    return table


def _edges(found: Mapping[str, Any]) -> list[str]:
    """Say what the edges are, and which of them the images tell."""
    way = "blended equally" if found["composition"] == "additive" else "one after the other"
    lines = [
        f"Error in %, {len(found['seeds'])} seeds, {found['samples']:,} test {found['kind']}, transforms {way}. "
        f"Error of the baseline: {100 * found['baseline']['error']:.2f}."
    ]
    for pair in sorted((pair for pair in found["pairs"] if pair["edge"]), key=lambda pair: -pair["cut"]):
        low, high = (100 * end for end in pair["difference"]["interval"])
        sure = "" if high < 0 else ", not significant"
        cut = f"reduces the error by {100 * pair['cut']:.0f} % to {100 * pair['error']:.2f} ({low:+.2f} to {high:+.2f}{sure})"
        lines.append(f"{pair['first']} → {pair['second']}: {cut}")
    return lines if len(lines) > 1 else [*lines, "No second transform reduces the error of the first by more than 10 %."]


def _mixup_table(found: Mapping[str, Any]) -> Any:
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for title in ("accuracy", "error", "instability"):
        table.add_column(title, justify="right")
    decay = f"{found['weight_decay']['chosen']:g}"
    own = f"baseline, weight decay {found['settings']['weight_decay']:g}"
    titles = {"baseline": own, "l2": f"weight decay {decay}", "mixup": "+ mixup"}
    rows = [(titles[name], found["scores"][name]) for name in titles]
    rows += [(f"+ mixup, {100 * entry['share']:g} % same class", entry) for entry in found["same_class"]]
    for title, entry in rows:
        accuracy = f"{100 * entry['accuracy']:.2f} ± {100 * entry['std']:.2f}"
        table.add_row(title, accuracy, f"{100 * entry['error']:.2f}", f"{100 * entry['instability']:.2f}")
    return table


def _mixup_remarks(found: Mapping[str, Any]) -> list[str]:
    lines = [f"Values in %, {len(found['seeds'])} seeds, {found['samples']:,} test images."]
    decay = found["weight_decay"]
    if decay["accuracy"]:
        tried = ", ".join(f"{value} {100 * accuracy:.2f}" for value, accuracy in decay["accuracy"].items())
        lines.append(f"Weight decays and their accuracy on {decay['held_out']:,} held-out training images: {tried}.")
        if decay["chosen"] in (min(map(float, decay["accuracy"])), max(map(float, decay["accuracy"]))):
            lines.append("The best value is at the end of the range. Try more values with --l2.")
    corrected = [entry for entry in found["margins"]["corrected"] if entry["count"]]
    for entry in corrected:
        own = f"Mean margin of the baseline on the corrected images: {entry['mean_margin']:.2f}."
        changed = f"corrects {entry['count']} images and breaks {entry['broken']}"
        lines.append(f"Mixup with {100 * entry['share']:g} % same class {changed}. {own}")
    wrong = found["margins"]["mean_margin_of_wrong"]
    return [*lines, f"Mean margin of the baseline on all images that it gets wrong: {wrong:.2f}."] if corrected else lines
