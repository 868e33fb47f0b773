"""The plots of the theory as SVG that shows its values, drawn by the package like those of a report, and their style."""

import math
import re
import shutil
from importlib.resources import files
from pathlib import Path

from outspan.figures.charts import Axis, Series, line_chart
from outspan.figures.style import COLOURS, DARK_COLOURS
from outspan.theory import Curve, theory_curves

# By plot: title, axes, and a note.
PLOTS = {
    "theory-n": ("Gain of one sample against n", Axis("samples n", "log"), Axis("gain", "log"), "Both have a slope of -1."),
    "theory-spike": ("With a spike along β: n times the gain", Axis("samples n", "log"), Axis("n · gain"), ""),
    "theory-z": (
        "Gain against the size of z",
        Axis("‖z‖²", "log"),
        Axis("gain of one sample"),
        "The printed formula is cut where it leaves the range of the exact values.",
    ),
    "theory-lambda": ("Gain against λ", Axis("λ", "log"), Axis("gain of one sample"), ""),
    "theory-candidates": (
        "Gain against the number of candidates",
        Axis("candidates C", "log"),
        Axis("gain of the one of highest loss"),
        "The bars are four standard errors.",
    ),
}


def add_plots(page: Path) -> None:
    """Replace the pictures of a page by plots that show their values."""
    text = page.read_text(encoding="utf-8")
    curves = theory_curves()
    for name, (title, x, y, note) in PLOTS.items():
        chart = line_chart([_series(curve, curves[name]) for curve in curves[name]], x, y, title=title, note=note)
        text, count = re.subn(rf"!\[[^]]*\]\({name}\.png\)", lambda _, chart=chart: str(chart), text)
        if count != 1:
            raise ValueError(f"{page.name} has {count} pictures {name}.png, expected one")
    page.write_text(text, encoding="utf-8")


def _series(curve: Curve, all_curves: list[Curve]) -> Series:
    """Return the line of a curve. A printed formula is cut 20 % outside of the range of the exact values."""
    exact = [value for one in all_curves if "printed" not in one.name for value in one.y]
    edge = 0.2 * (max(exact) - min(exact))
    y = [value if min(exact) - edge <= value <= max(exact) + edge else math.nan for value in curve.y]
    low, high = ([value + sign * 4 * error for value, error in zip(y, curve.error, strict=False)] for sign in (-1, 1))
    return Series(curve.name, curve.x, y, low, high, bars=True)


def write_style(folder: Path) -> None:
    """Write the style and the script of the charts, which are those of reports, with the colours of both themes."""
    folder.mkdir()
    package = files("outspan.reporting")
    for name in ("charts.css", "script.js"):
        (folder / name).write_text(package.joinpath(name).read_text(encoding="utf-8"), encoding="utf-8")
    shutil.copy(Path(__file__).parent / "site.js", folder)
    style = (Path(__file__).parent / "site.css").read_text(encoding="utf-8")
    light = "".join(f".chart .c{i} {{ --c: {colour}; }}\n" for i, colour in enumerate(COLOURS))
    dark = "".join(f"[data-md-color-scheme=slate] .chart .c{i} {{ --c: {colour}; }}\n" for i, colour in enumerate(DARK_COLOURS))
    (folder / "site.css").write_text(style + light + dark, encoding="utf-8")
