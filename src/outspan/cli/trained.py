"""Commands that look at a run: evaluate, predict, compositions."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from outspan.cli.options import SkipBad
from outspan.cli.output import echo, echo_error, printable
from outspan.cli.progress import device
from outspan.files import write_whole

_AT_ONCE = 256  # files that predict reads before it says anything of them


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    data: Annotated[
        str,
        typer.Option(
            help="Other data with the same classes. Uses its test split. A table, or class folders alone, is used whole."
        ),
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: accuracy, balanced accuracy, accuracy per class and confusion matrix.")
    ] = False,
    skip_bad: SkipBad = 0,
) -> None:
    """Print the test accuracy of a run: overall, balanced and per class, with the confusion matrix.

    Example: outspan evaluate runs/first

    Example: outspan evaluate runs/first --data path/to/other/folder
    """
    import torch
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from outspan.training.logits import compute_logits
    from outspan.training.tested import load_tested

    tested = load_tested(run, data, skip_bad=skip_bad)
    trained, loaded = tested.run, tested.data
    test, classes = loaded.test, loaded.classes
    if trained.epochs < trained.recipe.epochs:
        echo(f"outspan: {run} is not finished: {trained.epochs} of {trained.recipe.epochs} epochs", err=True)
    terminal = Console(stderr=True)
    with Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task = bar.add_task("evaluating", total=len(test))

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done)

        found = compute_logits(trained.model.to(device()), test, trained.preprocess, device(), show).argmax(1)
    count = len(classes)
    confusion = torch.bincount(test.labels * count + found, minlength=count**2).view(count, count)
    right = confusion.diag().double() / confusion.sum(1).clamp(min=1)
    accuracy = float(confusion.diag().double().sum() / confusion.sum())
    balanced = float(right[confusion.any(1)].mean())
    if as_json:
        shares = [share if row.any() else None for share, row in zip(right.tolist(), confusion, strict=True)]
        by_class = dict(zip(classes, shares, strict=True))
        source = {"data": loaded.name, "part": tested.part.value, "count": len(test), "trained_on": tested.seen}
        scores = {"accuracy": accuracy, "balanced_accuracy": balanced, "classes": by_class}
        echo(json.dumps({"tested": source, **scores, "confusion": confusion.tolist()}))
        return
    echo(f"tested on {tested}")
    echo(f"accuracy {100 * accuracy:.2f} % of {len(test)} test {trained.noun}, balanced accuracy {100 * balanced:.2f} %")
    echo("rows: true class, columns: predicted class")
    console = Console()
    classes = [printable(name) for name in classes]
    whole = sum(len(name) + 2 for name in classes) + 30 <= console.width  # else the most frequent mistake alone
    shown = classes if whole else ["most often predicted as"]
    table = Table("class", "count", "accuracy, %", *shown, box=None, pad_edge=False)
    for name, share, row, i in zip(classes, right.tolist(), confusion, range(count), strict=True):
        wrong = row.index_fill(0, torch.tensor(i), 0)
        mistake = f"{classes[int(wrong.argmax())]} ({int(wrong.max())})" if wrong.any() else ""
        percent = f"{100 * share:.2f}" if row.any() else ""
        table.add_row(name, str(int(row.sum())), percent, *(map(str, row.tolist()) if whole else [mistake]))
    console.print(table, markup=False)


def predict_command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    paths: Annotated[
        list[Path], typer.Argument(help="Images, or folders, which are searched recursively. For a text model: .txt files.")
    ],
    top: Annotated[int, typer.Option(min=1, help="Number of top classes to print.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per file, with its class probabilities.")
    ] = False,
) -> None:
    """Print the most likely class of each image or text, with its probability. Unreadable files are reported and skipped.

    Example: outspan predict runs/first cat.png more/pets --top 3
    """
    from outspan.training.logits import compute_logits
    from outspan.training.trained import load

    trained = load(run)
    model, files = trained.model.to(device()), _listed(paths, textual=len(trained.shape) == 1)
    done = 0
    for start in range(0, len(files), _AT_ONCE):
        read, split = _read_readable(files[start : start + _AT_ONCE], trained)
        if not read:
            continue
        shares = compute_logits(model, split, trained.preprocess, device()).softmax(1).topk(min(top, len(trained.classes)))
        for path, values, labels in zip(read, shares.values.tolist(), shares.indices.tolist(), strict=True):
            named = {trained.classes[label]: value for label, value in zip(labels, values, strict=True)}
            line = "  ".join(f"{printable(name)}  {100 * value:.1f} %" for name, value in named.items())
            echo(json.dumps({"file": str(path), "classes": named}) if as_json else f"{printable(path)}  {line}")
        done += len(read)
    if done < len(files):
        raise typer.Exit(1 if done else 2)


def _listed(paths: list[Path], *, textual: bool) -> list[Path]:
    """Return the files, and those of folders in order of their names."""
    from outspan.data.folders import SUFFIXES, files_below
    from outspan.data.tables import is_table

    suffixes = {".txt"} if textual else SUFFIXES
    found = []
    for path in paths:
        if textual and path.is_file() and (is_table(path) or path.suffix.lower() == ".json"):
            how = f"write one text per file, or, if it has labels, run `outspan evaluate RUN --data {path}`"
            raise ValueError(f"{path}: a table, which predict does not support yet; {how}")
        below = sorted(filter(Path.is_file, files_below(path, suffixes))) if path.is_dir() else [path]
        if not below:
            raise ValueError(f"{path}: no supported files in this folder, expected {', '.join(sorted(suffixes))}")
        found += below
    return found


def _read_readable(paths: list[Path], trained: Any) -> tuple[list[Path], Any]:
    """Return the files that can be read, and what is in them as a split; the others are named in red."""
    import torch

    from outspan.data.decode import read_fitted
    from outspan.data.sets import as_read
    from outspan.data.splits import InMemory
    from outspan.data.tables import read_text
    from outspan.text.documents import Documents
    from outspan.transforms.color import grey

    read, items = [], []
    for path in paths:
        try:
            items.append(read_text(path) if len(trained.shape) == 1 else read_fitted(path, *trained.shape[1:]))
            read.append(path)
        except ValueError as error:
            echo_error(error)
    if not read:
        return [], None
    labels = torch.zeros(len(read), dtype=torch.int64)
    if len(trained.shape) == 1:
        return read, as_read(Documents(items, labels), trained.recipe)
    pixels = torch.stack(items)
    return read, InMemory(pixels if trained.shape[0] == 3 else grey(pixels), labels)


def compositions(
    run: Annotated[Path, typer.Argument(help="Folder of a run with the policy uncertain.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="PNG file to write.")],
    mark: Annotated[
        list[str] | None,
        typer.Option(help='Compositions to plot below, e.g. "rotate+shear_y,mixup+equalize". Can be repeated.'),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: the share of each composition in each fifth of training.")
    ] = False,
) -> None:
    """Plot how often each composition of transforms was chosen over the epochs, and print which rose and fell most.

    Example: outspan compositions runs/first -o chosen.png --mark rotate+shear_y
    """
    from outspan.figures.compositions import compositions_figure
    from outspan.training.compositions import fractions, mean_by_fifth, most_changed, read, with_marked

    if out.suffix.lower() != ".png":
        raise ValueError(f"{out}: must be a .png file, got {out.suffix!r}")
    requested = [name for some in mark or [] for name in some.split(",") if name.strip()]
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
