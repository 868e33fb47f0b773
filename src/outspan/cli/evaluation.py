"""What the command evaluate prints and writes."""

from dataclasses import asdict
from pathlib import Path

from matplotlib.figure import Figure
from rich.table import Table

from outspan.cli.output import printable
from outspan.figures.evaluation import confusion_figure
from outspan.files import Json, write_json, write_whole
from outspan.training.evaluate import METRIC_NAMES, Evaluation, LabelEvaluation


def write_evaluation(folder: Path, result: Evaluation | LabelEvaluation) -> list[Path]:
    """Write an evaluation as JSON, and its figures: two for one label per sample. Return the paths."""
    figures = _draw(result) if isinstance(result, Evaluation) else {}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "evaluation.json", as_json_object(result))
    for name, figure in figures.items():
        write_whole(folder / name, lambda partial, figure=figure: figure.savefig(partial, format="png"))
    return [folder / name for name in ("evaluation.json", *figures)]


def _draw(result: Evaluation) -> dict[str, Figure]:
    return {
        "reliability.png": result.figure(),
        "confusion.png": confusion_figure(result.confusion.tolist(), [printable(name) for name in result.run.classes]),
    }


def as_json_object(result: Evaluation | LabelEvaluation) -> Json:
    """Return what the option --json prints."""
    tested, of_single = result.tested, {}
    if isinstance(result, Evaluation):
        of_single["confusion"] = result.confusion.tolist()
        of_single["calibration"] = [one._asdict() for one in result.calibration]
    return {
        "tested": {
            "data": tested.data.name,
            "part": tested.part.value,
            "count": len(tested.data.test),
            "trained_on": tested.trained_on,
        },
        **asdict(result.metrics),
        "intervals": {name: list(ends) for name, ends in result.intervals.items()},
        "classes": {name: scores._asdict() for name, scores in result.scores.items()},
        **of_single,
    }


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"


def metrics_table(result: Evaluation | LabelEvaluation) -> Table:
    """Return the metrics that are defined, with their intervals."""
    table = Table("", "%", "95 % interval", box=None, pad_edge=False)
    for name, value in asdict(result.metrics).items():
        if value is not None:
            interval = " to ".join(map(_percent, result.intervals.get(name, ())))
            table.add_row(METRIC_NAMES[name], _percent(value), interval)
    return table


def describe_classes(result: Evaluation | LabelEvaluation) -> str:
    """Return a line above the table of classes."""
    is_single = isinstance(result, Evaluation)
    return (
        "rows: true class, columns: predicted class" if is_single else "a class is predicted if its probability is above 50 %"
    )


def class_table(result: Evaluation | LabelEvaluation, width: int) -> Table:
    """Return the scores of each class, those with the most errors first."""
    return _confusion_table(result, width) if isinstance(result, Evaluation) else _label_table(result)


def _label_table(result: LabelEvaluation) -> Table:
    columns = ("class", "count", "average precision, %", "recall, %", "precision, %", "F1, %")
    table = Table(*columns, box=None, pad_edge=False)
    for name, scores in result.scores.items():
        percents = map(_percent, (scores.average_precision, scores.recall, scores.precision, scores.f1))
        table.add_row(printable(name), str(scores.support), *percents)
    return table


def _confusion_table(result: Evaluation, width: int) -> Table:
    """Return the scores of each class and its confusions; only the most frequent one if all are wider than the terminal."""
    classes = [printable(name) for name in result.run.classes]
    is_whole = sum(len(name) + 2 for name in classes) + 50 <= width
    columns = classes if is_whole else ["most often predicted as"]
    table = Table("class", "count", "recall, %", "precision, %", "F1, %", *columns, box=None, pad_edge=False)
    places, confusion = {name: i for i, name in enumerate(result.run.classes)}, result.confusion.tolist()
    for name, scores in result.scores.items():
        counts = confusion[place := places[name]]
        mistakes = [0 if i == place else count for i, count in enumerate(counts)]
        worst = max(range(len(counts)), key=mistakes.__getitem__)
        mistake = f"{classes[worst]} ({mistakes[worst]})" if any(mistakes) else ""
        percents = map(_percent, (scores.recall, scores.precision, scores.f1))
        table.add_row(classes[place], str(scores.support), *percents, *(map(str, counts) if is_whole else [mistake]))
    return table
