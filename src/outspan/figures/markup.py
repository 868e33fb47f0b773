"""The one place that makes HTML and SVG: elements, tables and pictures. Text is escaped here, so no other module escapes."""

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from outspan.messages import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_VOID = {"br", "img", "input", "meta"}
_TALL = 16  # rows from which a table scrolls in its frame
_RAW = {"script", "style"}  # elements whose content is not parsed as HTML; only files of the package are put into them


class Markup(str):
    """HTML that was made by `element`. All other strings are text, and are escaped."""

    __slots__ = ()


def element(tag: str, *children: object, **attributes: object) -> Markup:
    r"""Return an element. Children that are `Markup` stay, sequences are flattened, None is left out, all others are text.

    Underscores in the names of attributes become hyphens, and a final one is removed. An attribute that is None or False is
    left out. Control characters are made visible.

    >>> print(element("a", "<b>\x1b", href='"', class_="x"))
    <a href="&quot;" class="x">&lt;b&gt;\x1b</a>
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items() if value is not None and value is not False)
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{join(children)}</{tag}>")


def raw_element(tag: str, content: str, **attributes: object) -> Markup:
    """Return a script or a style of the package. Its content must not end the element."""
    assert tag in _RAW, f"{tag} is parsed as HTML"
    assert f"</{tag}" not in content.lower(), "the content ends the element"
    return Markup(f"<{tag}{''.join(_attribute(*item) for item in attributes.items())}>{content}</{tag}>")


def join(parts: Iterable[object]) -> Markup:
    """Return parts one after another, as the children of `element`."""
    written = []
    for part in parts:
        if isinstance(part, Markup):
            written.append(part)
        elif isinstance(part, list | tuple):
            written.append(join(part))
        elif part is not None:
            written.append(_text(part))
    return Markup("".join(written))


def _text(value: object) -> str:
    return escape(printable(value, keep="\n"))


def _attribute(name: str, value: object) -> str:
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{_text(value)}"'


@dataclass(frozen=True)
class Cell:
    """A cell of a table whose content is sorted by another value, or has a bar or a tint behind it."""

    content: object
    key: float | str | None = None  # to sort by; None: the text
    fraction: float | None = None  # the length of the bar, or the strength of the tint, in [0, 1]
    is_tinted: bool = False
    title: str | None = None


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str, tools: bool = True, numeric: bool = True
) -> Markup:
    """Return a table in a frame that scrolls. The first cell of a row is its header.

    With `tools`, the page's script makes the columns sortable, and long tables get a filter. `numeric`: whether all columns but
    the first are numbers.
    """
    head = element("tr", [element("th", name, scope="col") for name in columns])
    body = [element("tr", [_cell(cell, is_header=not i) for i, cell in enumerate(row)]) for row in rows]
    classes = " ".join(["tools"] * tools + ["numeric"] * numeric)
    whole = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", head),
        element("tbody", body),
        class_=classes or None,
    )
    frame = "scroll tall" if len(body) > _TALL else "scroll"
    return element("div", whole, class_=frame, tabindex=0, role="region", aria_label=caption)


def _cell(cell: object, *, is_header: bool) -> Markup:
    tag, scope = ("th", "row") if is_header else ("td", None)
    if not isinstance(cell, Cell):
        return element(tag, cell, scope=scope)
    style = None if cell.fraction is None else f"--f:{min(max(cell.fraction, 0), 1):.3f}"
    kind = None if cell.fraction is None else "tint" if cell.is_tinted else "bar"
    return element(tag, cell.content, scope=scope, data_key=cell.key, style=style, class_=kind, title=cell.title)


def image(data: bytes, kind: str, alt: str, *, width: int | None = None, height: int | None = None) -> Markup:
    """Return an image that is part of the page. `kind` is png or jpeg."""
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return element("img", src=source, alt=alt, width=width, height=height, loading="lazy")


def figure_bytes(figure: "Figure") -> bytes:
    """Return a figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def display(columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str, figure: "Figure | None" = None) -> Markup:
    """Return a table, and a figure below it, as a notebook shows a result."""
    picture = None if figure is None else image(figure_bytes(figure), "png", caption)
    return element("div", table(columns, rows, caption=caption, tools=False), picture)
