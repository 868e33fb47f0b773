"""The sections of the studies compose, core and mixup."""

from pathlib import Path

from outspan.figures.charts import Axis, Series, bar_chart, graph_chart, line_chart
from outspan.figures.markup import Cell, Markup, element, join, table
from outspan.measurement.recipes import BASELINE
from outspan.reporting.page import charts, paragraph, subsection
from outspan.reporting.stored import Stored, caveats, describe_change, interval, percent, show_recipe

_GAIN = 0.5  # the reduction of the error that has the strongest tint


def show_compositions(stored: Stored) -> tuple[str, Markup]:
    """Return the headline and the sections of composition.json."""
    order = "blended equally" if stored["composition"] == "additive" else "one after the other"
    edges = [pair for pair in stored["pairs"] if pair["edge"]]
    best = max(edges, key=lambda pair: pair["cut"], default=None)
    headline = "No second transform reduces the error of the first by more than 10 %."
    if best is not None:
        headline = f"{len(edges)} pairs reduce the error of their first transform by more than 10 %, most of all "
        headline += f"{best['first']} then {best['second']}, by {100 * best['cut']:.0f} %."
    errors = {name: f"{100 * one['error']:.2f} %" for name, one in stored["transforms"].items()}
    arrows = []
    for pair in edges:
        is_significant = pair["difference"]["interval"][1] < 0
        arrows.append((pair["first"], pair["second"], f"-{100 * pair['cut']:.0f} %", is_significant))
    note = "An arrow from A to B: B after A reduces the error of A by more than 10 %. Dashed: not significant."
    graph = graph_chart(errors, arrows, title=f"Graph of compositions, {order}", note=note)
    parts = [paragraph(headline, kind="answer"), *caveats(stored), subsection("Graph", charts(graph)), _heatmap(stored)]
    return headline, join([*parts, show_recipe(stored)])


def _heatmap(stored: Stored) -> Markup:
    """Return the errors of all pairs, tinted by how much the second transform reduces the error of the first."""
    names = list(stored["transforms"])
    pairs = {(pair["first"], pair["second"]): pair for pair in stored["pairs"]}
    rows = []
    for first in names:
        row: list[object] = [first, percent(stored["transforms"][first]["error"])]
        for second in names:
            pair = pairs.get((first, second))
            if pair is None:
                row.append("")
                continue
            title = f"{first}, then {second}: {interval(pair['difference']['interval'])} points"
            row.append(Cell(f"{100 * pair['error']:.2f}", pair["error"], max(pair["cut"], 0) / _GAIN, True, title))
        rows.append(row)
    caption = f"Error in %. Without transforms: {100 * stored[BASELINE]['error']:.2f}. Tint: reduction of the first's error"
    return subsection("Pairs", table(["first", "alone", *(f"then {name}" for name in names)], rows, caption=caption))


def show_core(stored: Stored, folder: Path) -> tuple[str, Markup]:
    """Return the headline and the sections of core.json."""
    headline, cost = _describe_core(stored), stored["cost"]
    rows = []
    for step in stored["path"]:
        is_core = step["transforms"] == stored["core"]
        name = " + ".join(map(str, step["transforms"])) or "none"
        low, high = (f"{100 * end:.2f}" for end in step["interval"])
        cells = [percent(step["error"]), f"{low} to {high}", percent(step["accuracy"]), percent(step["instability"])]
        rows.append([element("strong", f"{name} (core)") if is_core else name, *cells])
    columns = ["set", "error, %", "95 % interval", "accuracy, %", "instability, %"]
    path = table(columns, rows, caption="The path of the greedy search")
    tried = [[" + ".join(map(str, step["transforms"])) or "none", name, percent(error)]
             for step in stored["path"] for name, error in step.get("then", {}).items()]  # fmt: skip
    others = table(["set", "plus", "error, %"], tried, caption="All sets that were tried") if tried else None
    try:
        recipe = element("pre", (folder / "core.toml").read_text(encoding="utf-8"), class_="recipe")
    except (OSError, ValueError):
        recipe = paragraph("core.toml is missing: run the same `outspan core` again to write it.", kind="missing")
    parts = [
        paragraph(headline, kind="answer"),
        *caveats(stored),
        subsection(
            "Recipe of the core set",
            paragraph("Train it: ", element("code", f"outspan train {folder / 'core.toml'} -o RUN")),
            recipe,
        ),
        subsection(
            "Search", path, element("details", element("summary", "All sets that were tried"), others) if tried else None
        ),
        paragraph(
            f"{cost['models']:,} models were trained. {cost['transforms_an_image']:g} transforms per sample.", kind="muted"
        ),
        paragraph("The set was selected on these test samples. Expect a slightly higher error on new data.", kind="muted"),
    ]
    return headline, join(parts)


def _describe_core(stored: Stored) -> str:
    """Return which set to use, if the results show that it is better than no transforms."""
    error = f"an error of {100 * stored['error']:.2f} %, within 10 % of the best set found."
    if not stored["core"]:
        return f"Use no transform: {error}"
    change, verdict = describe_change(stored.get("difference"))
    names = " + ".join(map(str, stored["core"]))
    headline = f"Use {names}: {error}" if verdict == "better" else f"The core set is {names}: {error}"
    if change:
        headline += f" Compared with no transforms: {change}."
        headline += "" if verdict == "better" else " So these results do not show that it is better than no transforms."
    return headline


def show_mixup(stored: Stored) -> tuple[str, Markup]:
    """Return the headline and the sections of mixup.json."""
    scores, margins = stored["scores"], stored["margins"]
    change, verdict = describe_change(stored.get("difference"))
    change = change or f"{100 * (scores['mixup']['error'] - scores['l2']['error']):+.2f} points"
    advice = {"better": "Use mixup.", "worse": "Do not use mixup.", "": "These results do not show whether mixup helps."}
    headline = f"{advice[verdict]} It changes the error of the majority vote by {change}, compared with weight decay alone."
    names = {BASELINE: "baseline", "l2": f"weight decay {stored['weight_decay']['chosen']:g}", "mixup": "+ mixup"}
    rows = [[title, *_scores(scores[key])] for key, title in names.items()]
    rows += [[f"+ mixup, {100 * one['share']:g} % same class", *_scores(one)] for one in stored["same_class"]]
    listed = table(["", "accuracy, %", "error, %", "instability, %"], rows, caption="Scores")
    fractions = [100 * one["share"] for one in stored["same_class"]]
    low, high = [[100 * one["instability_interval"][i] for one in stored["same_class"]] for i in (0, 1)]
    curve = [Series("mixup", fractions, [100 * one["instability"] for one in stored["same_class"]], low, high, bars=True)]
    for key in (BASELINE, "l2"):
        level = [100 * scores[key]["instability"]] * len(fractions)
        curve.append(Series("baseline" if key == BASELINE else "weight decay", fractions, level))
    drawn = [line_chart(curve, Axis("same-class partners, %"), Axis("instability, %"), title="Instability of mixup")]
    bins = [f"{i / 10:.1f}" for i in range(10)]
    margin = Axis("margin, lower end of the bin")
    for key, title in (("right", "Images that the baseline gets right"), ("wrong", "Images that the baseline gets wrong")):
        note = "Margin: largest probability minus the second largest, of each model."
        drawn.append(bar_chart(margins[key], bins, margin, Axis("images"), title=title, note=note))
    corrected = {f"{100 * one['share']:g} % same class": one["histogram"] for one in margins["corrected"] if one["count"]}
    if corrected:
        title, note = "Images that mixup corrects", "Margin of the baseline."
        drawn.append(bar_chart(corrected, bins, margin, Axis("images"), title=title, note=note))
    parts = [paragraph(headline, kind="answer"), *_remarks(stored), *caveats(stored), subsection("Scores", listed)]
    return headline, join([*parts, subsection("Instability and margins", charts(drawn)), show_recipe(stored)])


def _remarks(stored: Stored) -> list[Markup]:
    """Return what the search of the weight decay lacks, and how many images mixup corrects and breaks."""
    tuning, parts = stored["weight_decay"], []
    tried = [float(value) for value in tuning["accuracy"]]
    if tried and tuning["chosen"] in (min(tried), max(tried)):
        problem = f"The best weight decay, {tuning['chosen']:g}, is at the end of the range. Try more values with --l2."
        parts.append(paragraph(problem, kind="missing"))
    for one in stored["margins"]["corrected"]:
        changed = f"corrects {one['count']:,} images and breaks {one['broken']:,}, compared with the baseline"
        parts.append(paragraph(f"Mixup with {100 * one['share']:g} % same class {changed}."))
    return parts


def _scores(one: Stored) -> list[object]:
    accuracy = Cell(f"{100 * one['accuracy']:.2f} ± {100 * one['std']:.2f}", one["accuracy"])
    return [accuracy, percent(one["error"]), percent(one["instability"])]
