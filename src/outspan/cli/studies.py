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
from outspan.cli.output import echo
from outspan.cli.training import Set, device, training_progress
from outspan.files import write_json, write_whole

_FIVE = "rotate,random_crop,cutout,translate_x,translate_y"  # the paper's


def compose_command(
    out: Out,
    recipe: RecipeFile = None,
    data: DataName = None,
    model: ModelName = None,
    transforms: Annotated[str, typer.Option(help="Names with commas, at least 2, or all.")] = _FIVE,
    additive: Annotated[bool, typer.Option("--additive", help="Blend the two evenly instead of one after the other.")] = False,
    seeds: Seeds = 9,
    probability: Probability = None,
    changes: Set = None,
    jobs: Jobs = 1,
    shared_batches: Shared = False,
) -> None:
    """Measure every pair of some transforms, and draw which help which: B after A cuts the error of A by over 10 %.

    In the folder of a measure of the same settings the baseline and the transforms alone are not trained again.

    Example: outspan compose --data digits --transforms rotate,random_crop,cutout --seeds 9 -o runs/measured
    """
    from dataclasses import replace

    from rich.console import Console

    from outspan.measure.compose import compositions, graph
    from outspan.measure.study import BASELINE, OWN_KEYS
    from outspan.report.measure import graph_figure

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
    transforms: Annotated[str, typer.Option(help="Names with commas, or all.")] = _FIVE,
    seeds: Seeds = 9,
    probability: Probability = None,
    changes: Set = None,
    jobs: Jobs = 1,
    shared_batches: Shared = False,
) -> None:
    """Find the smallest set of transforms within 10 % of the best error score, greedily, and write its recipe.

    Shares its folder with measure and compose. The recipe trains: outspan train DIR/core.toml -o RUN

    Example: outspan core --data digits --transforms rotate,random_crop,cutout,translate_x --seeds 9 -o runs/measured
    """
    from outspan.config import write_recipe
    from outspan.measure.core import core
    from outspan.measure.study import BASELINE, OWN_KEYS, configurations

    given = base_recipe("core", recipe, data, model, changes, OWN_KEYS)
    names = names_in(transforms, given)
    baseline = configurations(given, names, probability_for(given, probability))[BASELINE]
    chosen = core(_study(baseline, seeds, out, shared_batches, jobs), names)
    found = chosen.found
    for entry in found["path"]:
        low, high = (100 * end for end in entry["interval"])
        said = f"{100 * entry['error']:5.2f} % ({low:.2f} to {high:.2f})  {' + '.join(entry['transforms']) or 'none'}"
        echo(said + ("  ← core" if entry["transforms"] == found["core"] else ""))
    cost = found["cost"]
    echo(
        f"Error of a vote of {seeds} seeds on {found['samples']:,} test {found['kind']}; {cost['models']} models in all. "
        f"The core comes to {cost['transforms_an_image']:g} transforms an image."
    )
    for line in [f"Chosen by these test {found['kind']}: expect a little more error on others.", *said_of_votes(found)]:
        echo(line)
    error, best = (f"{100 * entry['error']:.2f} %" for entry in (found, found["best"]))
    said = f"Error of a vote of {seeds} seeds: {error}; of the best set found: {best}."
    text = write_recipe(
        chosen.recipe,
        f"The core set that `outspan core` found: {' + '.join(found['core']) or 'none'}.",
        said,
    )
    write_whole(out / "core.toml", lambda partial: partial.write_text(text, encoding="utf-8"))
    write_json(out / "core.json", found)
    echo(f"wrote core.json and core.toml in {out}; train with it: outspan train {out / 'core.toml'} -o RUN")


def mixup_command(
    out: Out,
    recipe: RecipeFile = None,
    data: DataName = None,
    model: ModelName = None,
    l2: Annotated[
        str, typer.Option("--l2", help="Weight decays with commas; several are tried on train images held out (mlp).")
    ] = "1e-4,3e-4,1e-3,3e-3",
    shares: Annotated[str, typer.Option(help="Shares of partners that are of an image's own class.")] = "0,0.25,0.5,0.75,1",
    seeds: Seeds = 9,
    changes: Set = None,
    jobs: Jobs = 1,
    shared_batches: Shared = False,
) -> None:
    """Study mixup: beside weight decay, by the share of same-class partners, and the margins of what it corrects.

    Example: outspan mixup --data digits --seeds 9 -o runs/mixup
    """
    from rich.console import Console

    from outspan.measure.mixup import baseline_of, check_asked, mixup_summary, study_mixup
    from outspan.measure.study import OWN_KEYS
    from outspan.report.measure import mixup_figure

    baseline = baseline_of(base_recipe("mixup", recipe, data, model, changes, OWN_KEYS))
    decays, asked = _numbers("--l2", l2), _numbers("--shares", shares)
    check_asked(baseline, decays, asked)
    measured, tuned = study_mixup(_study(baseline, seeds, out, shared_batches, jobs), decays, asked)
    found = mixup_summary(measured, tuned, asked)
    Console().print(_mixup_table(found))
    for line in [*_mixup_remarks(found), *said_of_votes(found)]:
        echo(line)
    write_found(out, "mixup.json", found, "mixup.png", mixup_figure(found))


def _numbers(option: str, text: str) -> list[float]:
    try:
        return list(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise ValueError(f"{option} must be numbers with commas, got {text!r}") from None


def _study(baseline: Any, seeds: int, out: Path, shared_batches: bool, jobs: int) -> Any:
    from outspan.measure.study import Study

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
    way = "blended evenly" if found["composition"] == "additive" else "one after the other"
    said = [
        f"Error in %, of {len(found['seeds'])} seeds on {found['samples']:,} test {found['kind']}, {way}; "
        f"the baseline's is {100 * found['baseline']['error']:.2f}."
    ]
    for pair in sorted((pair for pair in found["pairs"] if pair["edge"]), key=lambda pair: -pair["cut"]):
        low, high = (100 * end for end in pair["difference"]["interval"])
        sure = "" if high < 0 else ", not told apart from 0"
        cut = f"cuts it by {100 * pair['cut']:.0f} % to {100 * pair['error']:.2f} ({low:+.2f} to {high:+.2f}{sure})"
        said.append(f"{pair['first']} → {pair['second']}: {cut}")
    return said if len(said) > 1 else [*said, "No second transform cuts the error of a first by more than 10 %."]


def _mixup_table(found: Mapping[str, Any]) -> Any:
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for title in ("accuracy", "error", "instability"):
        table.add_column(title, justify="right")
    decay = f"{found['weight_decay']['chosen']:g}"
    own = f"baseline, weight decay {found['settings']['weight_decay']:g}"
    titles = {"baseline": own, "l2": f"weight decay {decay}", "mixup": "and mixup"}
    rows = [(titles[name], found["scores"][name]) for name in titles]
    rows += [(f"and mixup, {100 * entry['share']:g} % same class", entry) for entry in found["same_class"]]
    for title, entry in rows:
        accuracy = f"{100 * entry['accuracy']:.2f} ± {100 * entry['std']:.2f}"
        table.add_row(title, accuracy, f"{100 * entry['error']:.2f}", f"{100 * entry['instability']:.2f}")
    return table


def _mixup_remarks(found: Mapping[str, Any]) -> list[str]:
    said = [f"In %, of {len(found['seeds'])} seeds on {found['samples']:,} test images."]
    decay = found["weight_decay"]
    if decay["accuracy"]:
        tried = ", ".join(f"{value} {100 * accuracy:.2f}" for value, accuracy in decay["accuracy"].items())
        said.append(f"Weight decay by the accuracy on {decay['held_out']:,} train images held out: {tried}.")
        if decay["chosen"] in (min(map(float, decay["accuracy"])), max(map(float, decay["accuracy"]))):
            said.append("The best lies at the end of those tried: ask for more with --l2.")
    corrected = [entry for entry in found["margins"]["corrected"] if entry["count"]]
    for entry in corrected:
        own = f"the baseline's mean margin there is {entry['mean_margin']:.2f}"
        said.append(
            f"Mixup, {100 * entry['share']:g} % same class, corrects {entry['count']} and breaks {entry['broken']}; {own}."
        )
    wrong = found["margins"]["mean_margin_of_wrong"]
    return [*said, f"Over all that it gets wrong it is {wrong:.2f}."] if corrected else said
