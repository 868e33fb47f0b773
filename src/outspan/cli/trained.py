"""Commands that use a run: evaluate, predict, compositions."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outspan.cli.options import Best, Device, SkipBad
from outspan.cli.output import echo, echo_error, printable
from outspan.files import output_folder, write_whole

if TYPE_CHECKING:
    from outspan.training.trained import Trained


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    data: Annotated[
        str,
        typer.Option(
            help="Other data with the same classes. Its test split is used. Data without splits, such as a table or a folder "
            "of class folders, is used completely."
        ),
    ] = "",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder for evaluation.json, reliability.png and confusion.png.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: all metrics with their intervals, scores per class, confusion matrix.")
    ] = False,
    best: Best = False,
    device: Device = None,
    skip_bad: SkipBad = 0,
) -> None:
    """Print how well a run classifies its test data.

    Prints accuracy, top-5 accuracy, balanced accuracy, F1, AUROC and calibration error, with 95 % bootstrap intervals over
    test samples. Then prints recall, precision and F1 of each class, those with the most errors first, and the confusions.

    Example: outspan evaluate runs/first -o runs/first/evaluation

    Example: outspan evaluate runs/first --data path/to/other/folder
    """
    from rich.console import Console
    from rich.progress import Progress

    from outspan.cli.evaluation import as_json_object, class_table, describe_classes, metrics_table, write_evaluation
    from outspan.training.evaluate import evaluate
    from outspan.training.trained import load

    trained, folder = load(run, best=best), None if out is None else output_folder(out)
    terminal = Console(stderr=True)
    with Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task = bar.add_task("evaluating", total=None)
        result = evaluate(
            trained,
            data,
            device=device,
            skip_bad=skip_bad,
            on_batch=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if not trained.is_finished and not best:
        echo(f"outspan: {run} is not finished: step {trained.step} of {trained.steps}", err=True)
    written = [] if folder is None else write_evaluation(folder, result)
    if as_json:
        echo(json.dumps(as_json_object(result)))
        return
    weights = f", with the weights of the best epoch by validation (step {trained.step})" if best else ""
    echo(f"tested on {result.tested}{weights}")
    console = Console()
    console.print(metrics_table(result))
    echo(describe_classes(result))
    console.print(class_table(result, console.width), markup=False)
    for path in written:
        echo(f"wrote {path}")


def predict_command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Image files. Folders are searched recursively. For a text model: .txt files, tables (.csv, .tsv, .jsonl), or "
            "- for a text per line of standard input."
        ),
    ] = None,
    text: Annotated[list[str] | None, typer.Option(help="Text to classify, for a text model. Can be repeated.")] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write all probabilities to this .csv or .jsonl file, and print nothing.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of top classes to print.")] = 1,
    threshold: Annotated[
        float,
        typer.Option(min=0, max=1, help="If the run has several labels per sample: print those with a higher probability."),
    ] = 0.5,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per file, with its class probabilities.")
    ] = False,
    best: Best = False,
    device: Device = None,
) -> None:
    """Print the most likely class of each image or text.

    Also prints its probability. If a sample can have several labels, prints all classes above --threshold. Unreadable files
    are reported and skipped.

    Example: outspan predict runs/first cat.png more/pets --top 3

    Example: outspan predict runs/reviews new.csv -o predicted.csv

    Example: outspan predict runs/reviews --text "What a film!"
    """
    from outspan.training.predict import Predicted, predict
    from outspan.training.trained import load

    if out is not None and out.suffix.lower() not in (".csv", ".jsonl"):
        raise ValueError(f"{out}: must be a .csv or .jsonl file, got {out.suffix!r}")
    errors, texts = [], [*(text or []), *_read_lines(paths or [])]

    def report(error: ValueError) -> None:
        errors.append(error)
        echo_error(error)

    def show(part: Predicted) -> None:
        shown_classes = part.labels(threshold) if part.multi_label else part.top(top)
        for name, row, classes in zip(part.files or texts, part.rows or [0] * len(texts), shown_classes, strict=True):
            line = "  ".join(f"{printable(name)}  {100 * value:.1f} %" for name, value in classes.items())
            line = line or f"no class above {100 * threshold:g} %"
            place = ({"file": str(name)} if part.files else {"text": name}) | ({"row": row} if row else {})
            shown = f"{printable(name)}, row {row}" if row else printable(name)
            echo(json.dumps({**place, "classes": classes}) if as_json else f"{shown}  {line}")

    inputs = _check_inputs(trained := load(run, best=best), texts, [path for path in paths or [] if str(path) != "-"])
    predicted = predict(trained, inputs, device=device, on_error=report, on_batch=show if out is None else lambda part: None)
    if out is not None and len(predicted):
        predicted.save(out, threshold=threshold)
        echo(f"wrote {out}: {len(predicted):,} predictions")
    if errors:
        raise typer.Exit(1 if len(predicted) else 2)


def _read_lines(paths: Sequence[Path]) -> list[str]:
    """Return the lines of standard input that are not empty, if one of the paths is "-"."""
    if Path("-") not in paths:
        return []
    try:
        return [line for line in sys.stdin.buffer.read().decode("utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input: not UTF-8 (byte {error.start}); convert it first") from None


def _check_inputs(run: Trained, texts: list[str], paths: list[Path]) -> list[str] | list[Path]:
    """Return the texts or the paths. Refuse both together, neither, and texts for a model of images."""
    if bool(texts) == bool(paths):
        raise ValueError(f"pass either files or texts (--text, or - for standard input), got {'both' if texts else 'neither'}")
    if texts and not {"images": False, "texts": True}[run.noun]:
        raise ValueError(f"--text and - are for text models, but {run.folder} classifies {run.noun}: pass files")
    return texts or paths


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
