"""Commands that use a run: evaluate, predict, compositions."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
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
            help="Image files. Folders are searched recursively. For a text model: .txt files, tables (.csv, .tsv, .jsonl, "
            ".parquet), or - for a text per line of standard input."
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
        bool, typer.Option("--json", help="Print one JSON object per input, with the keys of the .jsonl file.")
    ] = False,
    best: Best = False,
    device: Device = None,
    skip_bad: Annotated[int, typer.Option(min=0, help="Leave out up to N rows of a table that have no text.")] = 0,
) -> None:
    """Print the most likely class of each image or text.

    Also prints its probability. If a sample can have several labels, prints all classes above --threshold. Unreadable files
    are reported and skipped. Lines of standard input are counted from 1, with the empty ones, which are skipped.

    Example: outspan predict runs/first cat.png more/pets --top 3

    Example: outspan predict runs/reviews new.csv -o predicted.csv

    Example: outspan predict runs/reviews --text "What a film!"
    """
    from outspan.training.predict import Predicted, predict
    from outspan.training.trained import load

    if out is not None and out.suffix.lower() not in (".csv", ".jsonl"):
        raise ValueError(f"{out}: must be a .csv or .jsonl file, got {out.suffix!r}")
    files = [path for path in paths or [] if str(path) != "-"]
    lines = _read_lines() if len(files) < len(paths or []) else {}
    trained, errors = load(run, best=best), []
    inputs = _one_of(trained, files, text or [], [*lines.values()])

    def report(error: ValueError) -> None:
        errors.append(error)
        echo_error(error)

    def with_lines(part: Predicted) -> Predicted:
        return replace(part, files=(Path("-"),) * len(lines), rows=tuple(lines)) if lines else part

    def show(part: Predicted) -> None:
        for record in with_lines(part).records(top=top, threshold=threshold):
            likely = "  ".join(f"{printable(name)}  {100 * value:.1f} %" for name, value in record["probabilities"].items())
            row = f", row {record['row']}" if record["row"] and "text" not in record else ""
            place = f"{printable(record.get('text', record['file']))}{row}"
            echo(json.dumps(record) if as_json else f"{place}  {likely or f'no class above {100 * threshold:g} %'}")

    options = {"device": device, "skip_bad": skip_bad, "on_error": report}
    predicted = predict(trained, inputs, **options, on_batch=show if out is None else lambda part: None)
    if out is not None and len(predicted):
        with_lines(predicted).save(out, threshold=threshold)
        echo(f"wrote {out}: {len(predicted):,} prediction{'s' * (len(predicted) != 1)}")
    if errors:
        raise typer.Exit(1 if len(predicted) else 2)


def _read_lines() -> dict[int, str]:
    """Return the lines of standard input that are not empty, by their number from 1."""
    try:
        lines = sys.stdin.buffer.read().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input: not UTF-8 (byte {error.start}); convert it first") from None
    texts = {number: line for number, line in enumerate(lines, 1) if line.strip()}
    if not texts:
        raise ValueError("standard input is empty: write a text per line to it")
    return texts


def _one_of(run: Trained, files: list[Path], texts: list[str], lines: list[str]) -> list[str] | list[Path]:
    """Return the inputs. Refuse several sources or none, and texts for a model of images."""
    sources = [source for source in (files, texts, lines) if source]
    if len(sources) != 1:
        got = "several of them" if sources else "none of them"
        raise ValueError(f"pass either files, texts (--text), or - for standard input, got {got}")
    if not files and not {"images": False, "texts": True}[run.noun]:
        raise ValueError(f"--text and - are for text models, but {run.folder} classifies {run.noun}: pass files")
    return sources[0]


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
