"""Commands for transforms: list them, apply them to a file, show all of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outspan.cli.output import echo, echo_lines
from outspan.cli.previews import Source, apply_to_texts, gallery_of_texts
from outspan.files import write_whole

if TYPE_CHECKING:
    from outspan.transforms.listing import TransformInfo


def transforms_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List all image and text transforms.

    Shows their units, ranges and limits.

    Example: outspan transforms --json
    """
    from dataclasses import asdict

    from outspan.transforms.listing import list_transforms

    entries = list_transforms()
    if as_json:
        echo_lines(json.dumps([asdict(entry) for entry in entries], indent=2))
    else:
        _print_transforms(entries)


def _print_transforms(entries: Sequence["TransformInfo"]) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    console = Console()
    columns = ["transform", "input", "level 0 → ±1", "unit", "levels", "description"]
    columns = columns if console.width >= 150 else columns[:-1]  # there is no space for the description
    table = Table(Column(columns[0], no_wrap=True), *columns[1:], box=None, header_style="bold", pad_edge=False)
    for entry in entries:
        ends = (entry.at_level_1, entry.at_level_minus_1)
        values = ", ".join(f"{end:g}" for end in ends if end is not None)
        cells = [
            entry.name,
            entry.of,
            f"{entry.at_level_0:g} → {values}" if values else "",
            entry.unit,
            "{:g} … {:g}".format(*entry.levels) if entry.levels else "",
            entry.description,
        ]
        table.add_row(*cells[: len(columns)])
    console.print(table)


_Column = Annotated[str, typer.Option(help="Name of the text column in a table.")]
_Labels = Annotated[str, typer.Option("--label-column", help="Name of the label column in a table, for protected_replacement.")]
_Cache = Annotated[Path | None, typer.Option(help="Cache file of texts, for back_translation and masked_replacement.")]
_Model = Annotated[str, typer.Option(help="Model whose tokenizer is used for texts. Default: one made from the texts.")]


def apply_command(
    file: Annotated[
        Path,
        typer.Argument(help="Input image, .txt file, table of texts (.csv, .tsv, .jsonl, .parquet), or folder with tables."),
    ],
    ops: Annotated[
        str, typer.Option(help='Comma-separated transforms with levels, applied in order, e.g. "rotate:0.5,invert".')
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="Output image. For texts, which need none: a table with the other columns (.csv, .tsv, .jsonl), "
            "or a text per line (.txt).",
        ),
    ] = None,
    partner: Annotated[Path | None, typer.Option(help="Second image for mixup and cutmix.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed for the position of cutout, cutmix and crops, and for texts.")] = 0,
    rows: Annotated[int, typer.Option(min=1, help="Number of texts to print.")] = 5,
    text_column: _Column = "text",
    label_column: _Labels = "label",
    cache: _Cache = None,
    model: _Model = "",
) -> None:
    """Apply transforms to one image, or print texts with what transforms change in them.

    The result of an image is the same as with Pillow. In output that has no colours, removed words are [-between these-] and
    added words {+between these+}.

    Example: outspan apply cat.png -o out.png --ops "rotate:0.5,cutout:0.8"

    Example: outspan apply reviews.csv --ops "word_swap:0.5,keyboard_typos:0.5"
    """
    from outspan.data.inputs import noun_of_file
    from outspan.transforms.by_name import parse_ops

    parse_ops(ops)  # a wrong name is refused before files are read
    source = Source(file, text_column, label_column, model, cache)
    commands = {
        "images": lambda: _apply_to_image(file, out, ops, partner, seed),
        "texts": lambda: apply_to_texts(source, out, ops, rows=rows, seed=seed),
    }
    commands[noun_of_file(file)]()


def _apply_to_image(image: Path, out: Path | None, ops: str, partner: Path | None, seed: int) -> None:
    from outspan.data.image import read_image, write_image
    from outspan.transforms.by_name import apply_ops

    if out is None:
        raise ValueError("-o is missing: pass the output image, e.g. -o out.png")
    first, second = read_image(image), None if partner is None else read_image(partner)
    write_image(apply_ops(first, ops, partner=second, seed=seed), out)


def gallery_command(
    file: Annotated[
        Path | None,
        typer.Argument(help="Image, .txt file or table whose first text is shown. Default: an included photograph."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="PNG file to write, for images. For texts: an .html file.")
    ] = None,
    text_column: _Column = "text",
    label_column: _Labels = "label",
    cache: _Cache = None,
    model: _Model = "",
) -> None:
    """Draw every transform of images at several levels, or show what every transform does to a text.

    For texts, protected_replacement needs the label column, and the transforms that read a cache need --cache. Words are drawn
    from the first 1,000 texts.

    Example: outspan gallery my.jpg -o gallery.png

    Example: outspan gallery reviews.csv --label-column stars -o gallery.html
    """
    from outspan.data.inputs import noun_of_file

    noun = "images" if file is None else noun_of_file(file)
    commands = {
        "images": lambda: _draw_gallery(file, out),
        "texts": lambda: gallery_of_texts(Source(file or Path(), text_column, label_column, model, cache), out),
    }
    commands[noun]()


def _draw_gallery(image: Path | None, out: Path | None) -> None:
    from outspan.data.image import example_image, read_image
    from outspan.figures.gallery import gallery

    if out is None:
        raise ValueError("-o is missing: pass the PNG file to write, e.g. -o gallery.png")
    if out.suffix.lower() != ".png":
        raise ValueError(f"{out}: must be a .png file, got {out.suffix!r}")
    figure = gallery(example_image() if image is None else read_image(image))
    write_whole(out, lambda partial: figure.savefig(partial, format="png"))
    echo(f"wrote {out}")
