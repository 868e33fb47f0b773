"""What transforms do to texts, in the terminal and as an HTML page."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outspan.cli.output import echo, printable
from outspan.files import write_whole

if TYPE_CHECKING:
    from rich.text import Text

    from outspan.data.text_rows import TextRows
    from outspan.text.preview import Prepared

GALLERY_LEVELS = (0.5, 1.0)
_OLD, _NEW = "red strike", "bold green"
_CORPUS = 1_000  # texts from which words are drawn, unless all are changed


@dataclass(frozen=True)
class Source:
    """A file of texts, and how it is read and tokenized."""

    path: Path
    text_column: str
    label_column: str
    model: str
    cache: Path | None

    def read(self) -> "TextRows":
        """Return the texts of the file and their rows."""
        from outspan.data.text_rows import read_rows_with_texts

        return read_rows_with_texts(self.path, self.text_column)

    def prepare(self, file: "TextRows", names: list[str], count: int | None = _CORPUS) -> "Prepared":
        """Return the first texts, tokenized for these transforms."""
        from outspan.text.preview import prepare_texts

        labels = file.labels(self.label_column)
        options: dict[str, Any] = {"labels": None if labels is None else labels[:count], "cache": self.cache}
        return prepare_texts(file.texts[:count], names, model=self.model, **options)


def apply_to_texts(source: Source, out: Path | None, ops: str, *, rows: int, seed: int) -> None:
    """Print the first texts of a file after some transforms, with the differences. With `out`, write all."""
    from outspan.data.text_rows import check_written
    from outspan.transforms.by_name import parse_ops

    names, levels = parse_ops(ops)
    if out is not None:
        check_written(out)
    file = source.read()
    texts = source.prepare(file, names, _CORPUS if out is None else None)
    changed = texts.transform(names, levels, seed=seed, count=min(rows, len(texts.split)) if out is None else None)
    if out is not None:
        file.write(out, changed)
    for old, new in list(zip(file.texts, changed, strict=False))[:rows]:
        _print(old, new)
    if out is not None:
        echo(f"wrote {out}: {len(changed):,} text{'s' * (len(changed) != 1)}")


def gallery_of_texts(source: Source, out: Path | None) -> None:
    """Print what every transform does to the first text of a file, at two levels; or write it as an HTML page."""
    from rich.console import Console
    from rich.table import Table

    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{out}: the gallery of texts must be a .html file, got {out.suffix!r}")
    file = source.read()
    text, examples = file.texts[0], list(_examples(source, file))
    if out is not None:
        from outspan.reporting.gallery import gallery_page

        page = gallery_page(source.path.name, text, examples)
        write_whole(out, lambda partial: partial.write_text(page, encoding="utf-8"))
        return echo(f"wrote {out}")
    console = Console(highlight=False)
    if not console.is_terminal:  # a table would break the lines
        for name, level, changed, problem in examples:
            echo(f"{name}  {problem or f'{level:g}  {highlighted(text, changed, has_colours=False)}'}")
        return None
    table = Table("transform", "level", "text", box=None, header_style="bold", pad_edge=False)
    for name, level, changed, problem in examples:
        shown = printable(problem) if problem else highlighted(text, changed, has_colours=_has_colours(console))
        table.add_row(name, "" if problem else f"{level:g}", shown)
    return console.print(table)


def _examples(source: Source, file: "TextRows") -> Iterator[tuple[str, float, str, str]]:
    """Return each transform, a level, and the first text after it, or why it cannot be applied."""
    from outspan.transforms.table import TEXT_TRANSFORMS

    texts = source.prepare(file, [*TEXT_TRANSFORMS])
    for name in TEXT_TRANSFORMS:
        for level in GALLERY_LEVELS:
            try:
                (changed,) = texts.transform([name], [level], count=1)
            except ValueError as error:  # WordNet is not installed, there are no labels, or the tokenizer ignores case
                yield name, level, "", str(error)
                break
            yield name, level, changed, ""


def _has_colours(console: Any) -> bool:
    return console.color_system is not None and not console.no_color


def _print(old: str, new: str) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(highlighted(old, new, has_colours=_has_colours(console)), soft_wrap=True)


def highlighted(old: str, new: str, *, has_colours: bool) -> "Text":
    """Return the new text with the differences: what is removed is struck through, what is added is bold.

    Without colours they are written as by `git diff --word-diff`: [-removed-]{+added+}.
    """
    from rich.text import Text

    from outspan.text.preview import differences

    text = Text()
    for tag, before, after in differences(old, new):
        before, after = printable(before, keep="\n\t"), printable(after, keep="\n\t")
        if tag == "equal":
            text.append(after)
        elif has_colours:
            text.append(before, _OLD)
            text.append(after, _NEW)
        else:
            space = (after or before)[: len(after or before) - len((after or before).lstrip())]
            removed, added = before.strip(), after.strip()
            text.append(space + f"[-{removed}-]" * bool(removed) + f"{{+{added}+}}" * bool(added))
    return text
