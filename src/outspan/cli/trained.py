"""Commands that look at a run: evaluate, predict, compositions."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from outspan.cli.output import echo, echo_error, printable
from outspan.cli.training import SkipBad, device
from outspan.files import write_whole

_AT_ONCE = 256  # files that predict reads before it says anything of them


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    data: Annotated[
        str,
        typer.Option(
            help="Other data with the same classes: its test split, or all of a table or of class folders without splits."
        ),
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: accuracy, its mean over classes, per class, and the confusion matrix.")
    ] = False,
    skip_bad: SkipBad = 0,
) -> None:
    """Print a run's test accuracy, overall, as a mean over classes and by class, and what was taken for what.

    Example: outspan evaluate runs/first

    Example: outspan evaluate runs/first --data path/to/other/folder
    """
    import torch
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from outspan.train.trained import load_tested, predict

    tested = load_tested(run, data, skip_bad=skip_bad)
    trained, loaded = tested.run, tested.data
    test, classes = loaded.test, loaded.classes
    if trained.epochs < trained.recipe.epochs:
        echo(f"outspan: {run} has ended {trained.epochs} of its {trained.recipe.epochs} epochs", err=True)
    terminal = Console(stderr=True)
    with Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task = bar.add_task("evaluating", total=len(test))

        def show(done: int) -> None:
            bar.update(task, completed=done)

        found = predict(trained.model.to(device()), test, trained.last, device(), show).argmax(1)
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
    echo(f"accuracy {100 * accuracy:.2f} % of {len(test)} test {trained.noun}, {100 * balanced:.2f} % the mean over classes")
    echo("rows: what they are, columns: taken for")
    console = Console()
    classes = [printable(name) for name in classes]
    whole = sum(len(name) + 2 for name in classes) + 24 <= console.width  # else the most frequent mistake alone
    table = Table("class", "of", "right, %", *(classes if whole else ["most often taken for"]), box=None, pad_edge=False)
    for name, share, row, i in zip(classes, right.tolist(), confusion, range(count), strict=True):
        wrong = row.index_fill(0, torch.tensor(i), 0)
        mistake = f"{classes[int(wrong.argmax())]} ({int(wrong.max())})" if wrong.any() else ""
        said = f"{100 * share:.2f}" if row.any() else ""
        table.add_row(name, str(int(row.sum())), said, *(map(str, row.tolist()) if whole else [mistake]))
    console.print(table, markup=False)


def predict_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    paths: Annotated[
        list[Path], typer.Argument(help="Images, and folders of them at any depth; for a model of text, .txt files.")
    ],
    top: Annotated[int, typer.Option(min=1, help="So many of the likeliest classes.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON each: the file, and its classes' shares.")
    ] = False,
) -> None:
    """Print the likeliest class of each image or text, with its probability; a file that cannot be read is named, and left out.

    Example: outspan predict runs/first cat.png more/pets --top 3
    """
    from outspan.train.trained import load_model, predict

    trained = load_model(run)
    model, files = trained.model.to(device()), _listed(paths, textual=len(trained.shape) == 1)
    done = 0
    for start in range(0, len(files), _AT_ONCE):
        read, split = _read_readable(files[start : start + _AT_ONCE], trained)
        if not read:
            continue
        shares = predict(model, split, trained.last, device()).softmax(1).topk(min(top, len(trained.classes)))
        for path, values, labels in zip(read, shares.values.tolist(), shares.indices.tolist(), strict=True):
            named = {trained.classes[label]: value for label, value in zip(labels, values, strict=True)}
            said = "  ".join(f"{printable(name)}  {100 * value:.1f} %" for name, value in named.items())
            echo(json.dumps({"file": str(path), "classes": named}) if as_json else f"{printable(path)}  {said}")
        done += len(read)
    if done < len(files):
        raise typer.Exit(1 if done else 2)


def _listed(paths: list[Path], *, textual: bool) -> list[Path]:
    """Return the files, and those of folders in order of their names."""
    from outspan.data.readers import SUFFIXES, files_below
    from outspan.text.documents import is_table

    suffixes = {".txt"} if textual else SUFFIXES
    found = []
    for path in paths:
        if textual and path.is_file() and (is_table(path) or path.suffix.lower() == ".json"):
            how = f"write one text per file, or, if it has labels, run `outspan evaluate RUN --data {path}`"
            raise ValueError(f"{path}: a table, which predict does not support yet; {how}")
        below = sorted(filter(Path.is_file, files_below(path, suffixes))) if path.is_dir() else [path]
        if not below:
            raise ValueError(f"{path}: a folder without files of {', '.join(sorted(suffixes))}")
        found += below
    return found


def _read_readable(paths: list[Path], trained: Any) -> tuple[list[Path], Any]:
    """Return the files that can be read, and what is in them as a split; the others are named in red."""
    import torch

    from outspan.data.readers import read_fitted
    from outspan.data.sets import as_read
    from outspan.data.splits import InMemory
    from outspan.text.documents import Documents, read_text
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
    run: Annotated[Path, typer.Argument(help="The folder of a run of the policy uncertain.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The PNG to write.")],
    mark: Annotated[
        list[str] | None, typer.Option(help='Compositions to draw below, e.g. "rotate+shear_y,mixup+equalize"; repeatable.')
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every composition's share of each fifth, in JSON.")] = False,
) -> None:
    """Draw how often each composition of transforms was chosen over the epochs, and print what rose and fell.

    Example: outspan compositions runs/first -o chosen.png --mark rotate+shear_y
    """
    from outspan.report.compositions import compositions_figure, fifths, rising, with_marked
    from outspan.train.compositions import read, shares

    if out.suffix.lower() != ".png":
        raise ValueError(f"{out}: the plot is a .png file, got {out.suffix!r}")
    asked = [name for some in mark or [] for name in some.split(",") if name.strip()]
    found, marked = with_marked(shares(read(run)), asked)
    parts = fifths(found)
    figure = compositions_figure(found, marked)
    write_whole(out, lambda partial: figure.savefig(partial, format="png"))
    if as_json:
        echo(json.dumps(parts))
        return
    for name in dict.fromkeys([*rising(found), *marked]):
        echo(f"{100 * parts[name][0]:6.2f} % → {100 * parts[name][-1]:6.2f} %  {name}")
    echo(f"wrote {out}")
