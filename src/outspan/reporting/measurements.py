"""The sections of a measurement: the plane of error and instability, the table, and the samples that change."""

from dataclasses import replace
from pathlib import Path

import torch

from outspan.data.sets import load_for
from outspan.data.splits import fingerprint
from outspan.figures.charts import Axis, Mark, plane_chart
from outspan.figures.markup import Cell, Markup, element, join, table
from outspan.measurement.predictions import Predictions, load_predictions
from outspan.measurement.recipes import BASELINE
from outspan.measurement.scores import corrected_and_broken, find_majority
from outspan.messages import first_line
from outspan.reporting.page import charts, missing, paragraph, subsection
from outspan.reporting.samples import TILES, name_of, show_samples
from outspan.reporting.stored import Stored, caveats, interval, percent, recipe_of, show_recipe

_MOST = 6  # samples that are shown for each transform and direction
_STYLES = {"better": "better", "worse": "worse"}
_KINDS = {"better": "good", "worse": "bad"}


def show_measurement(stored: Stored, folder: Path, data: str) -> tuple[str, Markup]:
    """Return the headline and the sections of scores.json."""
    transforms, verdicts = stored["transforms"], {}
    for name, one in transforms.items():
        verdicts.setdefault(str(one["difference"]["verdict"]), []).append(name)
    sentences = []
    for verdict in _STYLES:
        names = ", ".join(verdicts.get(verdict, []))
        none = f"No transform is significantly {verdict} than no augmentation."
        sentences.append(f"Significantly {verdict} than no augmentation: {names}." if names else none)
    answer = element("div", [element("p", sentence) for sentence in sentences], class_="answer")
    parts = [answer, *caveats(stored), subsection("Error and instability", charts(_plane(stored)), _table(stored))]
    parts += [_changes(stored, folder, data), show_recipe(stored)]
    return " ".join(sentences), join(parts)


def _plane(stored: Stored) -> Markup:
    marks = {BASELINE: _mark(stored[BASELINE], "baseline")}
    for name, one in stored["transforms"].items():
        marks[name] = _mark(one, _STYLES.get(one["difference"]["verdict"], "same"))
    note = "Left and down is better. Lines: 95 % intervals. Large: the baseline, without transforms."
    x, y = Axis("instability, %"), Axis("error of the majority vote, %")
    return plane_chart(marks, x, y, title="Error against instability", note=note)


def _mark(scores: Stored, style: str) -> Mark:
    (x, xs), (y, ys) = ((scores[key]["value"], scores[key]["interval"]) for key in ("instability", "error"))
    return Mark(100 * x, 100 * y, (100 * xs[0], 100 * xs[1]), (100 * ys[0], 100 * ys[1]), style)


def _table(stored: Stored) -> Markup:
    rows = []
    scored = {BASELINE: stored[BASELINE], **stored["transforms"]}
    for name, one in sorted(scored.items(), key=lambda item: item[1]["error"]["value"]):
        accuracy = Cell(f"{100 * one['accuracy']['value']:.2f} ± {100 * one['accuracy']['std']:.2f}", one["accuracy"]["value"])
        row = [name, accuracy, percent(one["error"]["value"])]
        if name == BASELINE:
            rows.append([*row, "", "", percent(one["instability"]["value"]), "", ""])
            continue
        error, verdict = one["difference"]["error"], str(one["difference"]["verdict"])
        told = element(
            "span", "no significant difference" if verdict == "not told apart" else verdict, class_=_KINDS.get(verdict)
        )
        rest = [percent(one["instability"]["value"]), one["corrected"]["count"], one["broken"]["count"]]
        rows.append([*row, Cell(interval(error["interval"]), error["value"]), told, *rest])
    columns = [
        "transform",
        "accuracy, %",
        "error, %",
        "error vs. baseline",
        "verdict",
        "instability, %",
        "corrected",
        "spoiled",
    ]
    return table(columns, rows, caption="Transforms, those with the lowest error first")


def _changes(stored: Stored, folder: Path, data: str) -> Markup:
    """Return the test samples that each transform corrects and spoils."""
    title = "What each transform corrected and spoiled"
    try:
        predictions = load_predictions(folder / "predictions.npz")
        recipe = recipe_of(stored)
        loaded = load_for(replace(recipe, data=data) if data else recipe)
        if fingerprint(loaded.test) != stored["settings"]["test"]:
            raise ValueError(f"the test data of {loaded.name} is not that of the measurement")
    except ValueError as error:
        how = f"Run `outspan report {folder} --data PATH` with the path of the data."
        return missing(title, first_line(error), how)
    test, classes, parts = loaded.test, loaded.classes, []
    baseline = predictions[BASELINE]
    votes = {name: find_majority(one).classes for name, one in predictions.items()}
    for name in stored["transforms"]:
        if name not in predictions:
            continue
        changes = corrected_and_broken(predictions[name], baseline)
        parts.append(element("h4", name))
        for heading, rows in (("corrected", changes.corrected), ("spoiled", changes.broken)):
            shown = _by_agreement(rows, predictions[name], baseline)[:_MOST]
            labels = [classes[int(test.labels[row])] for row in shown]
            guesses = [(classes[int(votes[BASELINE][row])], classes[int(votes[name][row])]) for row in shown]
            alts = [f"{name_of(test, row)}: {label}" for row, label in zip(shown, labels, strict=True)]
            tiles = []
            for sample, label, (before, after) in zip(show_samples(test, shown, alts), labels, guesses, strict=True):
                tiles.append(element("li", sample, f"true {label}; without: {before}, with {name}: {after}"))
            parts.append(paragraph(f"{len(rows):,} {heading}" + (", the clearest ones:" if tiles else "")))
            parts.append(element("ul", tiles, class_=TILES[test.noun]) if tiles else None)
    return subsection(
        title, paragraph("By the majority vote of all seeds, compared with the models without transforms."), parts
    )


def _by_agreement(rows: torch.Tensor, one: Predictions, baseline: Predictions) -> list[int]:
    """Return rows, those first on which the models with and without a transform differ most."""
    right = [(models.classes == models.labels).double().mean(0)[rows] for models in (one, baseline)]
    return rows[(right[1] - right[0]).abs().argsort(descending=True, stable=True)].tolist()
