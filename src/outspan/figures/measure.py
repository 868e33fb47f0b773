"""What studies came to, drawn: error against instability, the graph of compositions, and mixup."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text

Box = tuple[float, float, float, float]  # left, bottom, right, top
COLOURS = {"better": "tab:green", "worse": "tab:red", "not told apart": "0.45"}


def measure_figure(found: Mapping[str, Any]) -> Figure:
    """Return the error score against the instability of each transform, with its intervals; the baseline is a star.

    `found` is what `outspan.measurement.summary.summarise` returns, and scores.json holds.
    """
    figure = Figure(figsize=(8, 6), dpi=150, facecolor="white", layout="constrained")
    axis = figure.subplots()
    for verdict, colour in COLOURS.items():
        names = [name for name, entry in found["transforms"].items() if entry["difference"]["verdict"] == verdict]
        for i, name in enumerate(names):
            label = f"{verdict} than the baseline" if verdict != "not told apart" else "not told apart from it"
            _point(axis, found["transforms"][name], colour, label if not i else None)
    _point(axis, found["baseline"], "black", "baseline", marker="*")
    for draw, at in zip((axis.axvline, axis.axhline), _at(found["baseline"]), strict=True):
        draw(at, color="0.7", linewidth=0.8, linestyle="--", zorder=0)
    axis.set_xlabel("instability, %: how often a model departs from the majority")
    axis.set_ylabel("intrinsic error, %: how often the majority is wrong")
    kind = found["kind"]
    axis.set_title(f"{len(found['seeds'])} seeds, {found['samples']:,} test {kind}, 95 % intervals over {kind}", fontsize=10)
    axis.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.draw_without_rendering()  # settles where the points lie, among which labels find room
    colours = {name: COLOURS[entry["difference"]["verdict"]] for name, entry in found["transforms"].items()}
    _label(axis, {"baseline": found["baseline"], **found["transforms"]}, {"baseline": "black", **colours})
    return figure


def _label(axis: Any, entries: Mapping[str, Mapping[str, Any]], colours: Mapping[str, str]) -> None:
    """Write each name at the nearest place beside its point where it covers no other name and no point, and a line to it."""
    points = 72 / axis.figure.dpi
    frame = tuple((points * axis.bbox.extents).tolist())
    spots = {name: _at(entry) for name, entry in entries.items()}
    at = {name: (points * axis.transData.transform(spot)).tolist() for name, spot in spots.items()}
    taken = [(x - 3, y - 3, x + 3, y + 3) for x, y in at.values()]
    for name, (x, y) in at.items():
        right, up, box = _room(x, y, 4.6 * len(name), frame, taken)  # points, of 8-point letters
        taken.append(box)
        style = {"fontsize": 8, "color": colours[name], "va": "center", "ha": "right" if right < 0 else "left", "zorder": 4}
        line = {"arrowstyle": "-", "color": colours[name], "linewidth": 0.5, "shrinkA": 0, "shrinkB": 0}
        axis.annotate(name, spots[name], xytext=(right, up), textcoords="offset points", arrowprops=line, **style)


def _room(x: float, y: float, wide: float, frame: Box, taken: Sequence[Box]) -> tuple[float, float, Box]:
    """Return how far from a point its name has room, to the right and up, and the box it fills."""
    ways = [math.pi * turn / 8 for turn in (1, -1, 7, -7, 3, -3, 5, -5)]
    boxes = []
    for away, way in itertools.product(range(10, 120, 8), ways):
        right, up = away * math.cos(way), away * math.sin(way)
        left = x + right - (wide if right < 0 else 0)
        boxes.append((right, up, (left, y + up - 4.5, left + wide, y + up + 4.5)))
    free = (found for found in boxes if _inside(found[2], frame) and not any(_overlap(found[2], other) for other in taken))
    return next(free, boxes[0])


def _inside(one: Box, frame: Box) -> bool:
    return frame[0] < one[0] and frame[1] < one[1] and one[2] < frame[2] and one[3] < frame[3]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _at(entry: Mapping[str, Any]) -> tuple[float, float]:
    return 100 * entry["instability"]["value"], 100 * entry["error"]["value"]


def _point(axis: Any, entry: Mapping[str, Any], colour: str, label: str | None, *, marker: str = "o") -> None:
    at = _at(entry)
    reach = []
    for key, middle in zip(("instability", "error"), at, strict=True):
        low, high = entry[key]["interval"]
        reach.append([[max(0.0, middle - 100 * low)], [max(0.0, 100 * high - middle)]])
    size = 14 if marker == "*" else 5
    style = {"elinewidth": 0.7, "markersize": size, "zorder": 3, "alpha": 0.9}
    axis.errorbar(at[0], at[1], xerr=reach[0], yerr=reach[1], fmt=marker, color=colour, label=label, **style)


def graph_figure(found: Mapping[str, Any]) -> Figure:
    """Return the transforms in a circle, and an arrow from A to B where B cuts the error of A by more than 10 %.

    It is solid where the interval of the difference is below 0, else dashed. `found` comes from
    `outspan.measurement.compose.graph`.
    """
    figure = Figure(figsize=(8, 7), dpi=150, facecolor="white", layout="constrained")
    axis = figure.subplots()
    names = list(found["transforms"])
    turns = [math.pi / 2 - 2 * math.pi * i / len(names) for i in range(len(names))]
    places = {name: (math.cos(turn), math.sin(turn)) for name, turn in zip(names, turns, strict=True)}
    boxes = {}
    for name, at in places.items():
        text = f"{name}\n{100 * found['transforms'][name]['error']:.2f} %"
        box = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": "black"}
        boxes[name] = axis.text(*at, text, ha="center", va="center", fontsize=10, bbox=box, zorder=3)
    blended = found["composition"] == "additive"
    way = "blending B into A" if blended else "B after A"
    title = f"A → B: {way} cuts the error of A alone (in the box) by more than 10 %"
    seeds = (
        f"{len(found['seeds'])} seeds, {found['samples']:,} test {found['kind']}; dashed: not told apart by its 95 % interval"
    )
    axis.set_title(f"{title}\n{seeds}", fontsize=10)
    axis.set(xlim=(-1.4, 1.4), ylim=(-1.15, 1.15), aspect="equal")
    axis.axis("off")
    figure.draw_without_rendering()  # settles how large the boxes are, at whose rims arrows begin and end
    for pair in found["pairs"]:
        if pair["edge"]:
            _arrow(axis, boxes[pair["first"]], boxes[pair["second"]], pair)
    return figure


def _arrow(axis: Any, first: Text, second: Text, pair: Mapping[str, Any]) -> None:
    start, end = first.get_position(), second.get_position()
    sure = pair["difference"]["interval"][1] < 0
    style = {"arrowstyle": "-|>", "mutation_scale": 16, "color": "tab:green", "linestyle": "-" if sure else "--"}
    style |= {"connectionstyle": "arc3,rad=0.12", "linewidth": 1.4}
    style |= {"patchA": first.get_bbox_patch(), "patchB": second.get_bbox_patch(), "shrinkA": 2, "shrinkB": 2}
    axis.annotate("", xy=end, xytext=start, arrowprops=style)
    # An arc bends to the right of its way by half its rad: its label stands there.
    (x0, y0), (x1, y1) = start, end
    at = (x0 + x1) / 2 + 0.06 * (y1 - y0), (y0 + y1) / 2 - 0.06 * (x1 - x0)
    box = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    axis.text(*at, f"-{100 * pair['cut']:.0f} %", ha="center", va="center", fontsize=8, color="tab:green", bbox=box)


def mixup_figure(found: Mapping[str, Any]) -> Figure:
    """Return the instability over the share of partners of the same class, and three histograms of margins.

    `found` is what `outspan.measurement.mixup.mixup_summary` returns.
    """
    figure = Figure(figsize=(11, 8), dpi=150, facecolor="white", layout="constrained")
    (curve, right), (wrong, corrected) = figure.subplots(2, 2)
    shares = [100 * entry["share"] for entry in found["same_class"]]
    values = [100 * entry["instability"] for entry in found["same_class"]]
    ends = [entry["instability_interval"] for entry in found["same_class"]]
    low = [max(0.0, value - 100 * end[0]) for value, end in zip(values, ends, strict=True)]
    high = [max(0.0, 100 * end[1] - value) for value, end in zip(values, ends, strict=True)]
    curve.errorbar(shares, values, yerr=[low, high], marker="o", color="tab:blue", label="mixup")
    for name, colour in (("baseline", "black"), ("l2", "0.5")):
        level = 100 * found["scores"][name]["instability"]
        curve.axhline(level, color=colour, linestyle="--", linewidth=1, label="weight decay" if name == "l2" else name)
    curve.set(xlabel="partners of the same class, %", ylabel="instability, %", title="Instability of mixup")
    curve.legend(frameon=False)
    for axis, kind in ((right, "right"), (wrong, "wrong")):
        _histograms(axis, found["margins"][kind], f"Images that the baseline gets {kind}", "margin of each")
    bars = {f"{100 * entry['share']:.12g} % same class": entry["histogram"] for entry in found["margins"]["corrected"]}
    _histograms(corrected, bars, "Images that mixup corrects", "margin of the baseline")
    right.set_yscale("symlog")  # nearly all lie in the last bin
    return figure


def _histograms(axis: Any, several: Mapping[str, Sequence[int]], title: str, label: str) -> None:
    bins = len(next(iter(several.values()), []))
    for i, (name, counts) in enumerate(several.items()):
        width = 1 / (bins * (len(several) + 1))
        axis.bar([(j + 0.5) / bins + (i - (len(several) - 1) / 2) * width for j in range(bins)], counts, width, label=name)
    axis.set(xlabel=f"{label}: the first probability minus the second", ylabel="images", title=title)
    axis.legend(frameon=False)
