"""The sections of a run: its result, curves, errors, recipe and cost."""

from dataclasses import asdict
from types import MappingProxyType

from outspan.config import write_recipe
from outspan.figures.charts import Axis, Series, bar_chart, line_chart
from outspan.figures.markup import Cell, Markup, element, join, table
from outspan.messages import show_seconds
from outspan.reporting.chosen import show_chosen
from outspan.reporting.page import charts, missing, paragraph, subsection
from outspan.reporting.runs import Detail, RunResult, find_comparison
from outspan.reporting.wrong import show_wrong
from outspan.shapes import describe_size
from outspan.training.evaluate import METRIC_NAMES, Evaluation, LabelEvaluation
from outspan.training.validation import BEST_METRICS, find_metric

_MATRIX = 30  # classes up to which the whole confusion matrix is shown
_LISTED = 60  # confusions that are listed otherwise


# What the keys of the environment of a run are called.
_SETTINGS = MappingProxyType(
    {
        "torch": "version of PyTorch",
        "compiled": "torch.compile",
        "graphs": "CUDA graphs",
        "world": "number of processes",
        "channels_last": "memory format channels_last",
    }
)


def describe_accuracy(run: RunResult) -> str:
    """Return the result of a run in one sentence."""
    accuracy = "No epoch is finished" if run.accuracy is None else f"{100 * run.accuracy:.2f} % test accuracy"
    return f"{accuracy} with policy {run.recipe.policy}, model {run.recipe.model} and data {run.recipe.data}."


def describe_run(run: RunResult) -> Markup:
    """Return what happened, and how to find out what to use."""
    recipe, rows = run.recipe, run.metrics.rows
    accuracy = "no epoch is finished" if run.accuracy is None else f"{100 * run.accuracy:.2f} % test accuracy"
    time = "" if run.seconds is None else f", {_duration(run.seconds)} of training"
    best = max((row["test_accuracy"] for row in rows), default=0.0)
    highest = f" The highest accuracy after an epoch was {100 * best:.2f} %." if best > (run.accuracy or 0.0) else ""
    progress = ""
    if run.trained is not None and not run.trained.is_finished:
        progress = f" Not finished: step {run.trained.step:,} of {run.trained.steps:,}."
    epochs = "1 epoch" if len(rows) == 1 else f"{len(rows)} epochs"
    sentence = f" after {epochs}{time}: policy {recipe.policy}, model {recipe.model}, data {recipe.data}."
    answer = paragraph(element("strong", accuracy), sentence, highest, progress, _describe_chance(run), kind="answer")
    if run.metrics.damaged and run.metadata is None:
        problem = (
            "Lines of the metrics are damaged and there is no checkpoint, so these may be the numbers of an earlier epoch."
        )
        answer = join([answer, paragraph(problem, kind="missing")])
    if isinstance(run.evaluation, LabelEvaluation):
        answer = join([answer, paragraph("Accuracy: the fraction of the samples whose labels are all right.", kind="muted")])
    if (compared := find_comparison(run.folder)) is not None:
        code = element("code", f"outspan report {run.folder.parent.parent if compared[1] else run.folder.parent}")
        return join(
            [answer, paragraph("This run is part of a comparison, which says which policy to use: ", code, kind="muted")]
        )
    names = dict.fromkeys(("none", "random", recipe.policy))
    compare = f"outspan compare {run.folder / 'recipe.toml'} --policies {','.join(names)} --equal time --seeds 3 -o FOLDER"
    hint = paragraph("One run does not tell which policy to use. To find out: ", element("code", compare), kind="muted")
    return join([answer, hint])


def _describe_chance(run: RunResult) -> str:
    """Return a sentence if always predicting the most frequent class, or set of labels, has the same accuracy or more."""
    if run.evaluation is None:
        return ""
    counts = run.evaluation.labels.unique(dim=0, return_counts=True)[1]
    chance = int(counts.max()) / int(counts.sum())
    return "" if run.evaluation.accuracy > chance else f" Not above the majority-class baseline ({100 * chance:.2f} %)."


def run_sections(run: RunResult, detail: Detail) -> Markup:
    """Return all sections of a run, below headings of level 3."""
    parts: list[Markup] = [describe_run(run), _curves(run)]
    if run.evaluation is None:
        parts.append(missing("Accuracy by class, confusion, calibration, wrong predictions", run.no_data, run.remedy))
    elif isinstance(run.evaluation, LabelEvaluation):
        parts += [_scores(run.evaluation, run), show_wrong(run.evaluation, detail.wrong)]
    else:
        parts += [_scores(run.evaluation, run), _confusion(run.evaluation), _calibration(run.evaluation)]
        parts.append(show_wrong(run.evaluation, detail.wrong))
    parts += [show_chosen(run, detail), _cost(run), _recipe(run)]
    return join(parts)


def _duration(seconds: float) -> str:
    """Return a time in words.

    >>> _duration(0.01234), _duration(3.14), _duration(150), _duration(9000)
    ('0.0123 seconds', '3.1 seconds', '2.5 minutes', '2.5 hours')
    """
    unit, name = (1, "seconds") if seconds < 120 else (60, "minutes") if seconds < 7200 else (3600, "hours")
    return f"{show_seconds(seconds / unit)} {name}"


def _curves(run: RunResult) -> Markup:
    rows, epoch = run.metrics.rows, Axis("epoch", "whole")
    parts: list[Markup] = []
    if run.metrics.damaged:
        lines = element("ul", [element("li", element("code", line)) for line in run.metrics.damaged])
        instead = "which are not drawn" if run.metadata is None else "the charts show those of the checkpoint instead"
        parts.append(paragraph(f"Damaged lines of the metrics, {instead}:", kind="missing"))
        parts.append(lines)
    if not rows:
        return subsection("Curves", parts, paragraph("No epoch is finished."))

    def series(name: str, key: str, factor: float = 1.0) -> Series:
        kept = [row for row in rows if key in row]
        return Series(name, [row["epoch"] + 1 for row in kept], [factor * row[key] for row in kept])

    accuracies = [series("test", "test_accuracy", 100)]
    if "validation_accuracy" in rows[0]:
        accuracies.append(series("validation", "validation_accuracy", 100))
    if (metric := find_metric(rows[0])) not in (None, "accuracy"):
        accuracies.append(series(f"validation, {BEST_METRICS[metric]}", f"validation_{metric}", 100))
    drawn = [line_chart(accuracies, epoch, Axis("accuracy, %", "accuracy"), title="Accuracy after each epoch")]
    for key, title in (("train_loss", "Training loss"), ("lr", "Learning rate")):
        if key in rows[0]:
            drawn.append(line_chart([series(title, key)], epoch, Axis(title.lower()), title=title))
    return subsection("Curves", parts, charts(drawn))


def _scores(evaluation: Evaluation | LabelEvaluation, run: RunResult) -> Markup:
    names = [(METRIC_NAMES[name], value) for name, value in asdict(evaluation.metrics).items() if value is not None]
    metrics = table(["metric", "%"], [[name, f"{100 * value:.2f}"] for name, value in names], caption="Metrics", tools=False)
    by_class = _class_table(evaluation)
    many = len(evaluation.labels) < (len(run.tested.data.test) if run.tested else 0)
    note = f" Of them, {len(evaluation.labels):,} evenly spaced ones were evaluated." if many else ""
    tested = paragraph(f"Tested on {run.tested}.", note)
    return subsection("Accuracy by class", tested, element("div", metrics, by_class, class_="charts"))


def _class_table(evaluation: Evaluation | LabelEvaluation) -> Markup:
    columns = {"recall": "recall, %", "precision": "precision, %", "f1": "F1, %"}
    if isinstance(evaluation, LabelEvaluation):
        columns = {"average_precision": "average precision, %", **columns}
    rows = []
    for name, scores in evaluation.scores.items():
        cells = [_percent(getattr(scores, column)) for column in columns]
        rows.append([name, Cell(f"{scores.support:,}", scores.support), *cells])
    return table(["class", "samples", *columns.values()], rows, caption="Classes, the worst first")


def _percent(value: float | None) -> Cell:
    return Cell("", -1.0) if value is None else Cell(f"{100 * value:.2f}", value, value)


def _confusion(evaluation: Evaluation) -> Markup:
    counts, classes = evaluation.confusion.tolist(), evaluation.run.classes
    if len(classes) <= _MATRIX:
        rows = []
        for i, name in enumerate(classes):
            total = max(sum(counts[i]), 1)
            titles = [f"{name} predicted as {other}: {count}" for other, count in zip(classes, counts[i], strict=True)]
            cells = zip(counts[i], titles, strict=True)
            rows.append([name, *(Cell(count, count, count / total, is_tinted=True, title=title) for count, title in cells)])
        caption = "Rows: true class. Columns: predicted class. Tint: fraction of the true class"
        return subsection("Confusion", table(["", *classes], rows, caption=caption))
    pairs = [
        (count, i, j) for i, row in enumerate(counts) for j, count in enumerate(row) if i != j and count
    ]  # fmt: skip
    rows = [[classes[i], classes[j], Cell(f"{count:,}", count)] for count, i, j in sorted(pairs, reverse=True)[:_LISTED]]
    caption = f"The {len(rows)} most frequent confusions, of {len(classes):,} classes"
    return subsection("Confusion", table(["true class", "predicted as", "count"], rows, caption=caption))


def _calibration(evaluation: Evaluation) -> Markup:
    bins = [one for one in evaluation.calibration if one.samples]
    names = [f"{100 * one.confidence:.0f}" for one in bins if one.confidence is not None]
    groups = {
        "confidence": [100 * (one.confidence or 0) for one in bins],
        "accuracy": [100 * (one.accuracy or 0) for one in bins],
    }
    note = f"Calibration error (ECE) {100 * evaluation.metrics.ece:.2f} %. Calibrated: both bars are equally high."
    x, y = Axis("mean confidence of the bin, %"), Axis("%")
    chart = bar_chart(groups, names, x, y, title="Confidence and accuracy", note=note)
    counts = {"samples": [one.samples for one in bins]}
    return subsection("Calibration", charts(chart, bar_chart(counts, names, x, Axis("samples"), title="Samples per bin")))


def _cost(run: RunResult) -> Markup:
    """Return the time of the training and the size of the model."""
    rows: list[tuple[str, object]] = []
    if run.metadata is not None:
        seconds, steps = run.metadata["seconds"], run.metadata["step"]
        samples = steps * run.recipe.batch
        rows += [("training time, without evaluation", _duration(seconds)), ("steps", f"{steps:,}")]
        rows += [("batch", run.recipe.batch), ("time per epoch", _duration(seconds / max(len(run.metrics.rows), 1)))]
        rows += [("samples per second", f"{samples / seconds:,.0f}")] if seconds else []
    if run.trained is not None:
        parameters = sum(parameter.numel() for parameter in run.trained.model.parameters())
        rows.append(("parameters of the model", f"{parameters:,}"))
    if not rows:
        return subsection("Time and cost", paragraph("Not in this report: they are stored with the weights.", kind="missing"))
    return subsection("Time and cost", table(["", ""], rows, caption="Time and cost", tools=False))


def _recipe(run: RunResult) -> Markup:
    """Return the recipe, to copy, and what identifies the run."""
    text = write_recipe(run.recipe, "Train again: outspan train RECIPE.toml -o RUN")
    parts = [element("pre", text, class_="recipe")]
    if run.metadata is not None:
        data, setting = run.metadata["data"], run.metadata["setting"]
        rows = [
            ("folder", run.folder),
            ("training samples", f"{data['train']:,}"),
            ("size of a sample", describe_size(data["shape"])),
            ("classes", f"{len(data['classes']):,}"),
            ("SHA-256 of the training data", data.get("train_digest", "")),
            ("SHA-256 of the test data", data.get("test_digest", "")),
            *((_SETTINGS.get(key, key), value) for key, value in setting.items()),
        ]
        parts.append(table(["", ""], rows, caption="Data and environment", tools=False, numeric=False))
    return subsection("Recipe and provenance", parts)
