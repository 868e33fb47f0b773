"""Commands that use a run: evaluate, predict, compositions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outspan.cli.options import SkipBad
from outspan.cli.output import echo, echo_error, printable
from outspan.files import write_whole

if TYPE_CHECKING:
    from rich.table import Table

    from outspan.training.evaluate import Evaluation


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    data: Annotated[
        str,
        typer.Option(
            help="Other data with the same classes. Its test split is used. Data without splits, such as a table or a folder "
            "of class folders, is used completely."
        ),
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: accuracy, balanced accuracy, accuracy per class and confusion matrix.")
    ] = False,
    skip_bad: SkipBad = 0,
) -> None:
    """Print the accuracy of a run on its test data.

    Also prints the balanced accuracy, the accuracy per class and the confusion matrix.

    Example: outspan evaluate runs/first

    Example: outspan evaluate runs/first --data path/to/other/folder
    """
    from rich.console import Console
    from rich.progress import Progress

    from outspan.training.evaluate import evaluate
    from outspan.training.trained import load

    trained = load(run)
    terminal = Console(stderr=True)
    with Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task = bar.add_task("evaluating", total=None)
        result = evaluate(
            trained, data, skip_bad=skip_bad, on_batch=lambda done, total: bar.update(task, completed=done, total=total)
        )
    if not trained.is_finished:
        echo(f"outspan: {run} is not finished: step {trained.step} of {trained.steps}", err=True)
    if as_json:
        echo(json.dumps(_as_json(result)))
        return
    count, noun = len(result.tested.data.test), trained.noun
    echo(f"tested on {result.tested}")
    echo(
        f"accuracy {100 * result.accuracy:.2f} % of {count} test {noun}, "
        f"balanced accuracy {100 * result.balanced_accuracy:.2f} %"
    )
    echo("rows: true class, columns: predicted class")
    console = Console()
    console.print(_confusion_table(result, console.width), markup=False)


def _as_json(result: Evaluation) -> dict[str, object]:
    tested = result.tested
    return {
        "tested": {
            "data": tested.data.name,
            "part": tested.part.value,
            "count": len(tested.data.test),
            "trained_on": tested.trained_on,
        },
        "accuracy": result.accuracy,
        "balanced_accuracy": result.balanced_accuracy,
        "classes": dict(result.by_class),
        "confusion": result.confusion.tolist(),
    }


def _confusion_table(result: Evaluation, width: int) -> Table:
    """Return the confusion matrix; if it is wider than the terminal, the most frequent mistake per class instead."""
    from rich.table import Table

    classes = [printable(name) for name in result.by_class]
    is_whole = sum(len(name) + 2 for name in classes) + 30 <= width
    columns = classes if is_whole else ["most often predicted as"]
    table = Table("class", "count", "accuracy, %", *columns, box=None, pad_edge=False)
    rows = zip(classes, result.by_class.values(), result.confusion.tolist(), strict=True)
    for i, (name, accuracy, counts) in enumerate(rows):
        mistakes = [0 if j == i else count for j, count in enumerate(counts)]
        worst = max(range(len(counts)), key=mistakes.__getitem__)
        mistake = f"{classes[worst]} ({mistakes[worst]})" if any(mistakes) else ""
        percent = "" if accuracy is None else f"{100 * accuracy:.2f}"
        table.add_row(name, str(sum(counts)), percent, *(map(str, counts) if is_whole else [mistake]))
    return table


def predict_command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    paths: Annotated[
        list[Path], typer.Argument(help="Image files. Folders are searched recursively. For a text model: .txt files.")
    ],
    top: Annotated[int, typer.Option(min=1, help="Number of top classes to print.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per file, with its class probabilities.")
    ] = False,
) -> None:
    """Print the most likely class of each image or text.

    Also prints its probability. Unreadable files are reported and skipped.

    Example: outspan predict runs/first cat.png more/pets --top 3
    """
    from outspan.training.predict import Predicted, predict

    errors = []

    def report(error: ValueError) -> None:
        errors.append(error)
        echo_error(error)

    def show(part: Predicted) -> None:
        for path, classes in zip(part.files, part.top(top), strict=True):
            line = "  ".join(f"{printable(name)}  {100 * value:.1f} %" for name, value in classes.items())
            echo(json.dumps({"file": str(path), "classes": classes}) if as_json else f"{printable(path)}  {line}")

    predicted = predict(run, paths, on_error=report, on_batch=show)
    if errors:
        raise typer.Exit(1 if len(predicted) else 2)


def compositions(
    run: Annotated[Path, typer.Argument(help="Folder of a run with the policy uncertain.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="PNG file to write.")],
    mark: Annotated[
        list[str] | None,
        typer.Option(help='Compositions to plot below, e.g. "rotate+shear_y,mixup+equalize". Can be repeated.'),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: the fraction of each composition in each fifth of training.")
    ] = False,
) -> None:
    """Plot which compositions of transforms were chosen.

    Shows how often each composition was chosen over the epochs, and prints which rose and fell most.

    Example: outspan compositions runs/first -o chosen.png --mark rotate+shear_y
    """
    from outspan.figures.compositions import compositions_figure
    from outspan.training.compositions import fractions, mean_by_fifth, most_changed, read, with_marked

    if out.suffix.lower() != ".png":
        raise ValueError(f"{out}: must be a .png file, got {out.suffix!r}")
    requested = [name for names in mark or [] for name in names.split(",") if name.strip()]
    curves, marked = with_marked(fractions(read(run)), requested)
    parts, changed = mean_by_fifth(curves), most_changed(curves)
    figure = compositions_figure(curves, changed, marked)
    write_whole(out, lambda partial: figure.savefig(partial, format="png"))
    if as_json:
        echo(json.dumps(parts))
        return
    for name in dict.fromkeys([*changed, *marked]):
        echo(f"{100 * parts[name][0]:6.2f} % → {100 * parts[name][-1]:6.2f} %  {name}")
    echo(f"wrote {out}")
