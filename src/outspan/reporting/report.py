"""The function `outspan.report`: one self-contained HTML page about the results in a folder."""

from importlib.metadata import version
from pathlib import Path

from outspan.figures.markup import Markup, element
from outspan.files import expand_home, write_whole
from outspan.messages import shown
from outspan.reporting.page import Section, build_page, paragraph, with_code
from outspan.reporting.results import KINDS, MOST_RUNS, Options, Part, find_results, name_of
from outspan.reporting.runs import FEW, Detail


def report(folder: Path | str, *, out: Path | str | None = None, data: Path | str | None = None) -> Path:
    """Write one HTML file about the results in a folder, and return its path. The file loads nothing from the network.

    The folder is what `outspan.train`, `compare`, `measure`, `compose`, `core` or `mixup` wrote, or has several of them in it.

    Example::

        outspan.train(data="digits", model="mlp", policy="uncertain", epochs=2, out="runs/a")
        outspan.report("runs/a")  # writes runs/a/report.html

    Args:
        folder: The folder with the results.
        out: The HTML file. By default report.html in the folder.
        data: The name or path of test data, instead of the data that the runs were trained on, e.g. if it was moved.

    Raises:
        ValueError: If the folder has no results, or a file of them is damaged.
    """
    for name, value in (("folder", folder), ("out", out), ("data", data)):
        if not isinstance(value, Path | str) and (value is not None or name == "folder"):
            raise ValueError(f"{name} must be a path, got {shown(value)}")
    folder = expand_home(folder)
    path = folder / "report.html" if out is None else expand_home(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{path}: must be a .html file, got {path.suffix!r}")
    if not folder.is_dir():
        raise ValueError(f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}; pass {_describe_kinds()}")
    page = make_page(folder, "" if data is None else str(expand_home(data)))
    write_whole(path, lambda partial: partial.write_text(page, encoding="utf-8"))
    return path


def make_page(folder: Path, data: str = "") -> str:
    """Return the HTML of the report about the results in a folder."""
    found = find_results(folder)
    if not found:
        raise ValueError(f"{folder}: contains no result of outspan; pass {_describe_kinds()}")
    options = Options(data, Detail() if len(found) == 1 else FEW)
    parts = [kind.show(place, options) for kind, place in found]
    is_one = len(parts) == 1
    sections = [Section("Result" if is_one else part.title, part.content) for part in parts]
    title = parts[0].title if is_one else f"Results: {name_of(folder)}"
    return build_page(title, sections, summary=_summary(parts, folder), version=version("outspan"))


def _summary(parts: list[Part], folder: Path) -> Markup | None:
    """Return the sentence of each result, if there are several."""
    if len(parts) < 2:
        return None
    items = [element("li", element("strong", part.title), ": ", with_code(part.headline)) for part in parts]
    if not any(part.title.startswith(("Run", "Comparison")) for part in parts):
        return element("ul", items)
    note = f"At most {MOST_RUNS} runs, and of a comparison the first run of the leading policy, are shown in full. "
    how = paragraph(note, "For another run: ", element("code", f"outspan report {folder / 'RUN'}"), kind="muted")
    return element("div", element("ul", items), how)


def _describe_kinds() -> str:
    kinds = [f"{kind.name} (outspan {kind.command})" for kind in KINDS.values()]
    return f"the folder of {', '.join(kinds[:-1])} or {kinds[-1]}, or a folder with several of them"
