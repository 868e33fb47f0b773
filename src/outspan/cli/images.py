"""Commands for image transforms: list them, apply them to a file, draw all of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outspan.cli.output import echo, echo_lines
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
    from rich.table import Table

    console = Console()
    columns = ["transform", "input", "level 0 → ±1", "unit", "levels", "description"]
    columns = columns if console.width >= 150 else columns[:-1]  # there is no space for the description
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
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


def apply_command(
    image: Annotated[Path, typer.Argument(help="Input image.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Output image.")],
    ops: Annotated[
        str, typer.Option(help='Comma-separated transforms with levels, applied in order, e.g. "rotate:0.5,invert".')
    ],
    partner: Annotated[Path | None, typer.Option(help="Second image for mixup and cutmix.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed for the position of cutout, cutmix and crops.")] = 0,
) -> None:
    """Apply transforms to one image. The result is the same as with Pillow.

    Example: outspan apply cat.png -o out.png --ops "rotate:0.5,cutout:0.8"
    """
    from outspan.data.image import read_image, write_image
    from outspan.transforms.by_name import apply_ops, parse_ops

    parse_ops(ops)  # a wrong name is refused before files are read
    first, second = read_image(image), None if partner is None else read_image(partner)
    write_image(apply_ops(first, ops, partner=second, seed=seed), out)


def gallery_command(
    out: Annotated[Path, typer.Option("-o", "--out", help="PNG file to write.")],
    image: Annotated[Path | None, typer.Argument(help="Image to show. Default: an included photograph.")] = None,
) -> None:
    """Draw every transform at several levels.

    Example: outspan gallery my.jpg -o gallery.png
    """
    from outspan.data.image import example_image, read_image
    from outspan.figures.gallery import gallery

    if out.suffix.lower() != ".png":
        raise ValueError(f"{out}: must be a .png file, got {out.suffix!r}")
    figure = gallery(example_image() if image is None else read_image(image))
    write_whole(out, lambda partial: figure.savefig(partial, format="png"))
    echo(f"wrote {out}")
