"""The sections of a comparison: the verdict, the table, the curves, the pairs of policies, and the recipes."""

import statistics
from pathlib import Path

from outspan.comparison.result import Comparison, run_folder
from outspan.config import write_recipe
from outspan.figures.charts import Axis, Series, line_chart
from outspan.figures.markup import Cell, Markup, element, join, table
from outspan.messages import show_seconds
from outspan.policies.table import POLICIES
from outspan.reporting.page import charts, paragraph, subsection, with_code


def comparison_sections(comparison: Comparison, folder: Path) -> Markup:
    """Return all sections of a comparison, below headings of level 3. The order of the policies is the same in all."""
    shown = [_verdict(comparison), _results(comparison), _curves(comparison)]
    if len(comparison.policies) > 1:
        shown.append(_pairs(comparison))
    return join([*shown, _cost(comparison), _recipes(comparison, folder)])


def recommended(comparison: Comparison) -> list[str]:
    """Return the sentences that say which policy to use. There are none with one seed."""
    return [line for line in comparison.verdicts if line.startswith("Use ")]


def _verdict(comparison: Comparison) -> Markup:
    """Return the answer, which policy to use, then what it follows from, and apart from it the warnings."""
    use = recommended(comparison)
    reasons = [line for line in comparison.verdicts if line not in use]
    answer = [element("p", element("strong", with_code(line))) for line in use] + [
        element("p", with_code(line)) for line in reasons
    ]
    warnings = [paragraph(with_code(line), kind="missing") for line in comparison.warnings]
    return join([element("div", answer, class_="answer"), *warnings])


def _results(comparison: Comparison) -> Markup:
    several, parts = len(comparison.budgets) > 1, []
    columns = ["policy", f"test {comparison.metric}, %", "std", f"{comparison.unit}s", "epochs", "seconds per run"]
    for multiple, results in sorted(comparison.budgets.items(), reverse=True):
        rows = []
        for name, one in results.items():
            value, std = Cell(f"{100 * one.mean:.2f}", one.mean), Cell(f"± {100 * one.std:.2f}", one.std)
            row = [value, std if len(one.values) > 1 else "", len(one.values), f"{one.epochs:.4g}", show_seconds(one.seconds)]
            rows.append([name, *row])
        caption = f"Mean over {comparison.unit}s" + (f", budget {multiple:g}" if several else "")
        parts.append(table(columns, rows, caption=caption))
    if comparison.chance:
        parts.append(paragraph(f"Always predicting the largest class: {100 * comparison.chance:.2f} %.", kind="muted"))
    return subsection("Results", parts)


def _curves(comparison: Comparison) -> Markup:
    accuracy, drawn = Axis("test accuracy, %", "accuracy"), []
    by_epoch, by_second, without = [], [], []
    for name, one in comparison.policies.items():
        if not one.curves:
            without.append(name)
            continue
        columns = [[100 * value for value in column] for column in zip(*one.curves, strict=True)]
        means = [statistics.fmean(column) for column in columns]
        low, high = ([end(column) for column in columns] for end in (min, max))
        parts = [step / one.steps for step in one.evaluated]
        for target, total in ((by_epoch, one.epochs), (by_second, one.seconds)):
            target.append(Series(name, [total * part for part in parts], means, low, high))
    is_one, unit = len(next(iter(comparison.policies.values())).values) == 1, comparison.unit
    note = "" if is_one else f"Mean over {unit}s. Band: lowest to highest {unit}."
    if by_epoch:
        drawn.append(line_chart(by_epoch, Axis("epoch", "whole"), accuracy, title="Accuracy against epochs", note=note))
        seconds = Axis("seconds of training")
        drawn.append(line_chart(by_second, seconds, accuracy, title="Accuracy against seconds", note=note))
    if len(comparison.budgets) > 1:
        drawn.append(_frontier(comparison))
    gone = f"No curves: the metrics of the runs of {', '.join(without)} are missing or damaged." if without else ""
    return subsection("Accuracy against epochs and seconds", charts(drawn), paragraph(gone, kind="missing") if gone else None)


def _frontier(comparison: Comparison) -> Markup:
    series = []
    for name in comparison.policies:
        results = [results[name] for _, results in sorted(comparison.budgets.items()) if name in results]
        means = [100 * statistics.fmean(one.accuracies) for one in results]
        stds = [100 * statistics.stdev(one.accuracies) if len(one.accuracies) > 1 else 0.0 for one in results]
        low = [mean - std for mean, std in zip(means, stds, strict=True)]
        high = [min(mean + std, 100.0) for mean, std in zip(means, stds, strict=True)]
        series.append(Series(name, [one.seconds for one in results], means, low, high, bars=True))
    note = f"Error bars: standard deviation over {comparison.unit}s."
    x, y = Axis("seconds of training", "log"), Axis("test accuracy, %", "accuracy")
    return line_chart(series, x, y, title="Frontier: accuracy after the last step against training time", note=note)


def _pairs(comparison: Comparison) -> Markup:
    """Return by how much the policy of each row leads that of each column, and whether the difference is significant."""
    names, cells = list(comparison.policies), {}
    for one in comparison.differences:
        margin = f" ± {100 * one.margin:.2f}" if one.margin else ""
        told = "significant" if one.significant else "not significant"
        if one.p is None:
            told = "unknown with one seed" if one.margin is None else f"the same for every {comparison.unit}"
        kind = "good" if one.significant else None
        for first, second, sign in ((one.better, one.worse, 1), (one.worse, one.better, -1)):
            lead = f"{sign * 100 * one.mean:+.2f}{margin}"
            style = kind if sign > 0 or kind is None else "bad"
            content = [element("span", lead, class_=style), element("br"), element("span", told, class_="muted")]
            cells[first, second] = Cell(content, sign * one.mean)
    rows = [[first, *(cells.get((first, second), "") for second in names)] for first in names]
    caption = "By how many points the row leads the column. ±: half of the 95 % interval of this pair alone"
    note = f"Significant: at 5 % for all pairs together (paired by {comparison.unit}, Holm's correction)."
    return subsection("Every two policies", table(["", *names], rows, caption=caption), paragraph(note, kind="muted"))


def _cost(comparison: Comparison) -> Markup:
    cheapest = min((one.seconds / one.steps for one in comparison.policies.values() if one.steps), default=0.0)
    rows = []
    for name, one in comparison.policies.items():
        step = one.seconds / max(one.steps, 1)
        ratio = step / cheapest if cheapest else 1.0
        total = one.seconds * len(one.values)
        numbers = [Cell(f"{1000 * step:.3g}", step), Cell(f"{ratio:.2f}", ratio, min(ratio / 8, 1.0)), f"{one.steps:,}"]
        rows.append([name, *numbers, show_seconds(total)])
    columns = ["policy", "milliseconds per step", "of the cheapest", "steps per run", f"seconds, all {comparison.unit}s"]
    return subsection("Cost", table(columns, rows, caption="Training time, without evaluation"))


def _recipes(comparison: Comparison, folder: Path) -> Markup:
    """Return the recipe that all runs share, and what the policies differ in."""
    rows = []
    for name, one in comparison.policies.items():
        keys = ", ".join(POLICIES[name].keys) if name in POLICIES else ""
        rows.append(
            [name, keys or "none", f"{one.steps:,}", f"outspan report {run_folder(folder, max(comparison.budgets), name, 0)}"]
        )
    columns = ["policy", "recipe keys that it reads", "steps", "the report of one of its runs"]
    differences = table(columns, rows, caption="What the runs of the policies differ in", numeric=False)
    same = "the same number of epochs" if comparison.equal == "epochs" else "the same training time"
    text = write_recipe(
        comparison.recipe, f"All runs share this recipe, and have {same}. They differ in policy and {comparison.unit}."
    )
    lines = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("policy ="))
    return subsection("Recipes", differences, element("pre", lines, class_="recipe"))
