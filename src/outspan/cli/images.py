"""Commands that look at transforms: list them, apply them to a file, draw them all."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outspan.cli.output import echo, echo_lines
from outspan.files import write_whole

if TYPE_CHECKING:
    from outspan.shapes import Images


def transforms(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """List all image and text transforms with their units, ranges and limits.

    Example: outspan transforms --json
    """
    from outspan.transforms.table import ALL, PAPER_16, TEXT_TRANSFORMS

    entries = [
        {
            "name": name,
            "of": "texts" if name in TEXT_TRANSFORMS else "images",
            "unit": t.unit,
            "at_level_0": t.rest if t.graded else None,
            "at_level_1": t.rest + t.span if t.graded else None,
            "at_level_minus_1": t.rest - t.span if t.graded and t.signed else None,
            "levels": list(t.levels) if t.graded else None,
            "needs": [need for need, is_needed in (("place", t.placed), ("partner", t.mixes), ("fill", t.fills)) if is_needed],
            "in_paper": name in PAPER_16 or name in TEXT_TRANSFORMS,
            "description": (t.function.__doc__ or "").splitlines()[0],
        }
        for name, t in ALL.items()
    ]
    if as_json:
        echo_lines(json.dumps(entries, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    columns = ["transform", "input", "level 0 → ±1", "unit", "levels", "description"]
    columns = columns if console.width >= 150 else columns[:-1]  # a sentence does not fit beside the rest
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for entry in entries:
        ends = [entry["at_level_1"], entry["at_level_minus_1"]]
        reach = ", ".join(f"{end:g}" for end in ends if end is not None)
        cells = [
            entry["name"],
            entry["of"],
            f"{entry['at_level_0']:g} → {reach}" if reach else "",
            entry["unit"],
            "{:g} … {:g}".format(*entry["levels"]) if entry["levels"] else "",
            entry["description"],
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
    import torch

    from outspan import rng
    from outspan.plan import Plan
    from outspan.transforms.apply import apply
    from outspan.transforms.table import find

    names, levels = parse_ops(ops)
    pixels = read_image(image)
    images = [pixels]
    if partner is not None:
        images.append(_fit(read_image(partner), pixels, partner))
    for name in names:
        if find(name).mixes and partner is None:
            raise ValueError(f"{name!r} mixes two images: pass the second with --partner")
    places = rng.generator(seed, "apply").random((len(names), 4)).tolist()
    plan = Plan.of(
        [names, []][: len(images)],
        levels=[levels, []][: len(images)],
        places=[places, []][: len(images)],
        partners=[[len(images) - 1 if find(name).mixes else -1 for name in names], []][: len(images)],
        out=[0],
    )
    write_image(apply(torch.cat(images), plan), out)


def gallery(
    out: Annotated[Path, typer.Option("-o", "--out", help="PNG file to write.")],
    image: Annotated[Path | None, typer.Argument(help="Image to show. Default: an included photograph.")] = None,
) -> None:
    """Draw every transform at several levels.

    Example: outspan gallery my.jpg -o gallery.png
    """
    from outspan.data import example_image
    from outspan.figures.gallery import gallery as draw

    if out.suffix.lower() != ".png":
        raise ValueError(f"{out}: must be a .png file, got {out.suffix!r}")
    figure = draw(example_image() if image is None else read_image(image))
    write_whole(out, lambda partial: figure.savefig(partial, format="png"))
    echo(f"wrote {out}")


def parse_ops(text: str) -> tuple[list[str], list[float]]:
    """Read "rotate:0.5,invert" as names and levels; a graded transform needs its level."""
    from outspan.transforms.table import find

    names, levels = [], []
    for part in text.split(","):
        name, _, level = part.strip().partition(":")
        if not name:
            raise ValueError(f"empty transform name in {text!r}")
        transform = find(name)
        if transform.graded and not level:
            raise ValueError(f"{name!r} needs a level, e.g. {name}:0.5")
        if not transform.graded and level:
            raise ValueError(f"{name!r} takes no level, got {level!r}")
        try:
            levels.append(float(level or 0))
        except ValueError:
            raise ValueError(f"level of {name!r} must be a number, got {level!r}") from None
        names.append(name)
    return names, levels


def _fit(other: "Images", like: "Images", path: Path) -> "Images":
    if other.shape[-2:] != like.shape[-2:]:
        wanted, got = list(like.shape[-2:]), list(other.shape[-2:])
        raise ValueError(f"{path}: the partner must have the image's height and width {wanted}, got {got}")
    if other.shape[1] == like.shape[1]:
        return other
    if like.shape[1] == 3:
        return other.expand(-1, 3, -1, -1)
    from outspan.transforms.color import grey

    return grey(other)


def read_image(path: Path) -> "Images":
    """Return an image file as [1, C, H, W] bytes: grey files stay grey, all others become RGB."""
    import numpy as np
    import torch

    from outspan.data.readers import opened

    with opened(path) as file:
        array = np.array(file.convert("L" if file.mode in ("1", "L", "LA") else "RGB"))
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy()).unsqueeze(0)


def write_image(images: "Images", path: Path) -> None:
    """Write the first of a batch in the format that the file's name asks for."""
    from PIL import Image

    Image.init()
    form = Image.EXTENSION.get(path.suffix.lower())
    if form not in Image.SAVE:
        raise ValueError(f"{path}: unknown image format {path.suffix!r}, use .png, .jpg, .webp, …")
    array = images[0].permute(1, 2, 0).numpy()
    picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    write_whole(path, lambda partial: picture.save(partial, format=form))
