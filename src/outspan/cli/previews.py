"""What transforms do to texts, in the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from outspan.cli.output import echo, printable
from outspan.files import write_whole

if TYPE_CHECKING:
    from rich.text import Text

_GALLERY_LEVELS = (0.5, 1.0)
_OLD, _NEW = "red strike", "bold green"


def apply_to_texts(path: Path, out: Path | None, ops: str, *, column: str, model: str, rows: int, seed: int) -> None:
    """Print the first texts of a file after some transforms, with the differences. With `out`, write all, one per line."""
    from rich.console import Console

    from outspan.data.inputs import read_texts
    from outspan.text.preview import transform_texts
    from outspan.transforms.by_name import parse_ops

    names, levels = parse_ops(ops)
    texts = read_texts(path, column)
    shown = texts if out is not None else texts[:rows]
    changed = transform_texts(shown, names, levels, model=model, seed=seed)
    if out is not None:
        lines = "".join(f"{' '.join(text.split())}\n" for text in changed)
        write_whole(out, lambda partial: partial.write_text(lines, encoding="utf-8"))
    console = Console(highlight=False)
    for old, new in list(zip(shown, changed, strict=True))[:rows]:
        console.print(highlighted(old, new))
    if out is not None:
        echo(f"wrote {out}: {len(changed):,} texts")


def gallery_of_texts(path: Path, *, column: str, model: str) -> None:
    """Print what every transform does to the first text of a file, at two levels."""
    from rich.console import Console
    from rich.table import Table

    from outspan.data.inputs import read_texts
    from outspan.text.preview import transform_texts
    from outspan.transforms.table import TEXT_TRANSFORMS

    text = read_texts(path, column)[0]
    table = Table("transform", "level", "text", box=None, header_style="bold", pad_edge=False)
    for name, transform in TEXT_TRANSFORMS.items():
        for level in _GALLERY_LEVELS if transform.needs not in ("cache", "proposals") else ():
            try:
                (changed,) = transform_texts([text], [name], [level], model=model)
            except ValueError as error:  # WordNet is not installed, or the tokenizer ignores case
                table.add_row(name, "", printable(error))
                break
            table.add_row(name, f"{level:g}", highlighted(text, changed))
    Console(highlight=False).print(table)


def highlighted(old: str, new: str) -> "Text":
    """Return the new text with the differences: what is removed is struck through, what is added is bold."""
    from rich.text import Text

    from outspan.text.preview import differences

    pieces: Sequence[tuple[str, str, str]] = differences(old, new)
    text = Text()
    for tag, before, after in pieces:
        if tag == "equal":
            text.append(printable(after, keep="\n\t"))
            continue
        text.append(printable(before, keep="\n\t"), _OLD)
        text.append(printable(after, keep="\n\t"), _NEW)
    return text
