"""What a measure came to, drawn: error against instability, a point a transform."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

COLOURS = {"better": "tab:green", "worse": "tab:red", "not told apart": "0.45"}


def measure_figure(found: Mapping[str, Any]) -> Figure:
    """Return the error score against the instability of each transform, with its intervals; the baseline is a star.

    `found` is what `outspan.measure.summary.summarise` returns, and scores.json holds.
    """
    figure = Figure(figsize=(8, 6), dpi=150, facecolor="white", layout="constrained")
    axis = figure.subplots()
    for verdict, colour in COLOURS.items():
        names = [name for name, entry in found["transforms"].items() if entry["difference"]["verdict"] == verdict]
        for i, name in enumerate(names):
            label = f"{verdict} than the baseline" if verdict != "not told apart" else "not told apart from it"
            _point(axis, name, found["transforms"][name], colour, label if not i else None)
    _point(axis, "baseline", found["baseline"], "black", "baseline", marker="*")
    middle = (100 * found["baseline"][key]["value"] for key in ("instability", "error"))
    for draw, at in zip((axis.axvline, axis.axhline), middle, strict=True):
        draw(at, color="0.7", linewidth=0.8, linestyle="--", zorder=0)
    axis.set_xlabel("instability, %: how often a model departs from the majority")
    axis.set_ylabel("intrinsic error, %: how often the majority is wrong")
    axis.set_title(f"{len(found['seeds'])} seeds, {found['samples']:,} test images, 95 % intervals over images", fontsize=10)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=9)
    return figure


def _point(axis: Any, name: str, entry: Mapping[str, Any], colour: str, label: str | None, *, marker: str = "o") -> None:
    at = [100 * entry[key]["value"] for key in ("instability", "error")]
    reach = []
    for key, middle in zip(("instability", "error"), at, strict=True):
        low, high = entry[key]["interval"]
        reach.append([[max(0.0, middle - 100 * low)], [max(0.0, 100 * high - middle)]])
    size = 14 if marker == "*" else 5
    style = {"elinewidth": 0.7, "markersize": size, "zorder": 3, "alpha": 0.9}
    axis.errorbar(at[0], at[1], xerr=reach[0], yerr=reach[1], fmt=marker, color=colour, label=label, **style)
    axis.annotate(name, at, xytext=(5, 4), textcoords="offset points", fontsize=8, color=colour)
