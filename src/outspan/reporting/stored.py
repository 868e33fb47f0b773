"""The JSON files of studies: reading them, and what all of them have in common."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from outspan.config import KEYS, Recipe, stored_recipe, write_recipe
from outspan.figures.markup import Cell, Markup, element
from outspan.messages import first_line
from outspan.reporting.page import paragraph, subsection

Stored: TypeAlias = Mapping[str, Any]  # a JSON file of a study


def show_file(path: Path, show: Callable[[Stored], tuple[str, Markup]]) -> tuple[str, Markup]:
    """Return the headline and the sections that `show` makes of a JSON file. A damaged file is a ValueError."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(stored, dict):
            raise ValueError("it is not an object")
        return show(stored)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        how = "run the command that wrote it again: finished models are not trained again"
        raise ValueError(f"{path}: damaged ({type(error).__name__}: {first_line(error)}); {how}") from None


def recipe_of(stored: Stored) -> Recipe:
    """Return the recipe of the baseline of a study."""
    return stored_recipe({key: value for key, value in stored["settings"].items() if key in KEYS})


def caveats(stored: Stored) -> list[Markup]:
    """Return what to consider when reading the scores of a study."""
    seeds, noun = stored["seeds"], stored.get("kind", "images")
    lines = [f"{len(seeds)} seeds, {stored['samples']:,} test {noun}. Intervals are 95 %, over test {noun}."]
    if stored.get("ties"):
        lines.append(f"{stored['ties']:,} of {stored['votes']:,} votes were tied and were decided at random.")
    if stored.get("note"):
        lines.append(f"Shared batches: {stored['note']}.")
    parts = [paragraph(" ".join(lines), kind="muted")]
    if not stored.get("learnt", True):
        chance = f"{100 * stored['largest_class']:.2f} %"
        problem = f"The model without transforms is not above the majority-class baseline ({chance})"
        parts.append(paragraph(f"{problem}, so these results say nothing about the transforms.", kind="missing"))
    return parts


def show_recipe(stored: Stored) -> Markup:
    """Return the recipe of the baseline, to copy, and the settings of a study."""
    settings = stored["settings"]
    text = write_recipe(recipe_of(stored), "The baseline of this study, without transforms.")
    train, test = (re.sub(r"^\d+", lambda count: f"{int(count[0]):,}", str(settings.get(key))) for key in ("train", "test"))
    rest = f"Trained on {settings.get('device')}. Training data: {train}. Test data: {test}."
    return subsection("Recipe of the baseline", element("pre", text, class_="recipe"), paragraph(rest, kind="muted"))


def percent(value: float, digits: int = 2) -> Cell:
    """Return a fraction as a cell in %."""
    return Cell(f"{100 * value:.{digits}f}", float(value))


def describe_change(difference: Stored | None) -> tuple[str, str]:
    """Return the difference of two errors with its interval and significance, and "better", "worse" or "" for its verdict.

    Files of earlier versions have no difference: both are "".
    """
    if difference is None:
        return "", ""
    value, (low, high) = 100 * float(difference["value"]), difference["interval"]
    verdict = "better" if high < 0 else "worse" if low > 0 else ""
    told = "significant" if verdict else "not significant"
    return f"{value + 0.0:+.2f} points (95 % interval {interval((low, high))}, {told})", verdict


def interval(ends: Sequence[float]) -> str:
    """Return an interval of fractions in points."""
    low, high = (round(100 * float(end), 2) + 0.0 for end in ends)
    return f"{low:+.2f} to {high:+.2f}"
