"""The page of a report: one HTML file with its style and script, which loads nothing."""

import base64
import hashlib
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from outspan.figures.markup import Markup, element, raw_element
from outspan.figures.style import COLOURS, DARK_COLOURS


@dataclass(frozen=True)
class Section:
    """A part of a page: a title and its content, which starts with headings of level 3."""

    title: str
    content: Markup


def build_page(title: str, sections: Sequence[Section], *, summary: Markup | None, version: str) -> str:
    """Return the HTML of a page with its sections.

    The browser runs the script of the package only: the policy of the page names it by its digest, and allows no connection.
    """
    script, style = _file("script.js"), _file("style.css") + _file("charts.css") + _colours()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    names = [f"s{i}" for i in range(len(sections))]
    parts = [_section(*item) for item in zip(names, sections, strict=True)]
    targets: list[tuple[str, object]] = [(name, section.title) for name, section in zip(names, sections, strict=True)]
    if len(sections) == 1:
        targets = [(name, Markup(title)) for name, title in re.findall(r'<h3 id="([\w-]+)">(.*?)</h3>', parts[0])]
    links = [element("li", element("a", title, href=f"#{name}")) for name, title in targets]
    contents = element("nav", element("ul", links), aria_label="Contents") if len(links) > 1 else None
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=rules),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        raw_element("style", style),
    )
    body = element(
        "body",
        element("a", "Skip to the content", href="#content", class_="skip"),
        _keep_units(element("header", element("h1", title), summary, contents)),
        _keep_units(element("main", parts, id="content")),
        element("footer", element("p", f"Made by outspan {version}. This file is complete: it loads nothing.")),
        raw_element("script", script),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _section(name: str, section: Section) -> Markup:
    title = element("h2", section.title, id=f"{name}-title")
    numbers = itertools.count(1)
    content = Markup(re.sub("<h3>", lambda _: f'<h3 id="{name}-{next(numbers)}">', section.content))
    return element("section", title, content, id=name, aria_labelledby=f"{name}-title")


def _keep_units(content: Markup) -> Markup:
    """Return content in which no line breaks between a number and "%", except in code, which is copied."""
    parts = re.split(r"(<(?:pre|code)\b.*?</(?:pre|code)>)", content, flags=re.DOTALL)
    return Markup("".join(part if i % 2 else re.sub(r"(?<=\d) %(?!\w)", "\u00a0%", part) for i, part in enumerate(parts)))


def paragraph(*content: object, kind: str | None = None) -> Markup:
    """Return a paragraph. `kind` is "answer", "missing" or "muted"."""
    return element("p", *content, class_=kind)


def subsection(title: str, *content: object, level: int = 3) -> Markup:
    """Return content below a heading."""
    return element("div", element(f"h{level}", title), *content)


def charts(*content: object) -> Markup:
    """Return charts side by side, where there is space."""
    return element("div", *content, class_="charts")


def missing(title: str, reason: object, how: str) -> Markup:
    """Return a section that is missing: why, and how to add it, with code in backticks."""
    return subsection(title, paragraph(f"Not in this report: {reason}. ", with_code(how), kind="missing"))


def with_code(sentence: str) -> list[Markup | str]:
    """Return a sentence whose parts in backticks are code.

    >>> "".join(with_code("Use `auto`."))
    'Use <code>auto</code>.'
    """
    parts = sentence.split("`")
    return [element("code", part) if i % 2 and i < len(parts) - 1 else part for i, part in enumerate(parts)]


@cache
def _file(name: str) -> str:
    return files("outspan.reporting").joinpath(name).read_text(encoding="utf-8")


def _colours() -> str:
    light = "".join(f".c{i}{{--c:{colour}}}" for i, colour in enumerate(COLOURS))
    dark = "".join(f".c{i}{{--c:{colour}}}" for i, colour in enumerate(DARK_COLOURS))
    return f"\n{light}\n@media (prefers-color-scheme: dark){{{dark}}}\n"
