"""Figures of studies: error against instability, the graph of compositions, and mixup."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from outspan.figures.names import label_points
from outspan.figures.style import VERDICT_COLOURS, colour_of, label_lines, new_figure

Interval = tuple[float, float]
_LABELS = {verdict: f"{verdict} than the baseline" for verdict in ("better", "worse")}


@dataclass(frozen=True)
class Point:
    """The scores of a transform, as fractions, with their intervals and the verdict against the baseline."""

    instability: float
    error: float
    instability_interval: Interval
    error_interval: Interval
    verdict: str = ""  # a key of VERDICT_COLOURS; "" is the baseline

    @property
    def position(self) -> tuple[float, float]:
        """Where it is drawn, in %."""
        return 100 * self.instability, 100 * self.error

    @property
    def colour(self) -> str:
        """The colour of its verdict."""
        return VERDICT_COLOURS.get(self.verdict, "black")


@dataclass(frozen=True)
class Arrow:
    """A composition that reduces the error of its first transform."""

    first: str
    second: str
    reduction: float  # of the error, as a fraction
    significant: bool


@dataclass(frozen=True)
class Estimate:
    """A value of a curve and its interval, as fractions."""

    x: float
    y: float
    interval: Interval


def measure_figure(baseline: Point, transforms: Mapping[str, Point], title: str) -> Figure:
    """Return the error against the instability of each transform, with intervals. The baseline is a star."""
    figure = new_figure(8, 6)
    axis = figure.subplots()
    for verdict in VERDICT_COLOURS:
        points = [point for point in transforms.values() if point.verdict == verdict]
        for i, point in enumerate(points):
            _draw_point(axis, point, _LABELS.get(verdict, verdict) if not i else None)
    _draw_point(axis, baseline, "baseline")
    for draw, at in zip((axis.axvline, axis.axhline), baseline.position, strict=True):
        draw(at, color="0.7", linewidth=0.8, linestyle="--", zorder=0)
    axis.set_xlabel("instability, %: how often a model differs from the majority vote")
    axis.set_ylabel("intrinsic error, %: how often the majority vote is wrong")
    axis.set_title(title, fontsize=10)
    axis.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    points = {"baseline": baseline, **transforms}
    label_points(figure, axis, {name: (*point.position, point.colour) for name, point in points.items()})
    return figure


def _draw_point(axis: Axes, point: Point, label: str | None) -> None:
    x, y = point.position
    reach = []
    for value, (low, high) in ((x, point.instability_interval), (y, point.error_interval)):
        reach.append([[max(0.0, value - 100 * low)], [max(0.0, 100 * high - value)]])
    marker, size = ("o", 5) if point.verdict else ("*", 14)
    style = {"elinewidth": 0.7, "markersize": size, "zorder": 3, "alpha": 0.9}
    axis.errorbar(x, y, xerr=reach[0], yerr=reach[1], fmt=marker, color=point.colour, label=label, **style)


def graph_figure(errors: Mapping[str, float], arrows: Sequence[Arrow], title: str) -> Figure:
    """Return the transforms with their errors in a circle, and the arrows. Those that are not significant are dashed."""
    figure = new_figure(8, 7)
    axis = figure.subplots()
    boxes = {}
    for i, (name, error) in enumerate(errors.items()):
        angle = math.pi / 2 - 2 * math.pi * i / len(errors)
        box = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": "black"}
        style = {"ha": "center", "va": "center", "fontsize": 10, "bbox": box, "zorder": 3}
        boxes[name] = axis.text(math.cos(angle), math.sin(angle), f"{name}\n{100 * error:.2f} %", **style)
    axis.set_title(title, fontsize=10)
    axis.set(xlim=(-1.4, 1.4), ylim=(-1.15, 1.15), aspect="equal")
    axis.axis("off")
    figure.draw_without_rendering()  # fixes the sizes of the boxes, where arrows begin and end
    for arrow in arrows:
        _draw_arrow(axis, boxes[arrow.first], boxes[arrow.second], arrow)
    return figure


def _draw_arrow(axis: Axes, first: Text, second: Text, arrow: Arrow) -> None:
    start, end = first.get_position(), second.get_position()
    style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 16, "color": VERDICT_COLOURS["better"]}
    style |= {"linestyle": "-" if arrow.significant else "--", "connectionstyle": "arc3,rad=0.12", "linewidth": 1.4}
    style |= {"patchA": first.get_bbox_patch(), "patchB": second.get_bbox_patch(), "shrinkA": 2, "shrinkB": 2}
    axis.annotate("", xy=end, xytext=start, arrowprops=style)
    # The middle of the arc is to the right of the straight line, by half of rad. The label is there.
    (x0, y0), (x1, y1) = start, end
    x, y = (x0 + x1) / 2 + 0.06 * (y1 - y0), (y0 + y1) / 2 - 0.06 * (x1 - x0)
    box = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    axis.text(
        x, y, f"-{100 * arrow.reduction:.0f} %", ha="center", va="center", fontsize=8, color=VERDICT_COLOURS["better"], bbox=box
    )


def mixup_figure(
    curve: Sequence[Estimate],
    levels: Mapping[str, float],
    right: Mapping[str, Sequence[int]],
    wrong: Mapping[str, Sequence[int]],
    corrected: Mapping[str, Sequence[int]],
) -> Figure:
    """Return the instability over the fraction of same-class partners, and three histograms of margins.

    Args:
        curve: the instability of mixup (y) at each fraction of same-class partners (x).
        levels: the instability of models without mixup, by their name.
        right: counts of margins, by model, for the images that the baseline classifies correctly.
        wrong: the same for the images that it misclassifies.
        corrected: counts of the baseline's margins for the images that mixup corrects, by the variant of mixup.
    """
    figure = new_figure(11, 8)
    (first, second), (third, fourth) = figure.subplots(2, 2)
    x, y = [100 * point.x for point in curve], [100 * point.y for point in curve]
    low = [max(0.0, 100 * (point.y - point.interval[0])) for point in curve]
    high = [max(0.0, 100 * (point.interval[1] - point.y)) for point in curve]
    first.errorbar(x, y, yerr=[low, high], marker="o", color=colour_of(0))
    ends = {"mixup": (x[-1], y[-1], colour_of(0))}
    for (name, level), colour in zip(levels.items(), ("black", "0.5"), strict=True):
        first.axhline(100 * level, color=colour, linestyle="--", linewidth=1)
        ends[name] = x[-1], 100 * level, colour
    first.set(xlabel="same-class partners, %", ylabel="instability, %", title="Instability of mixup")
    _draw_histograms(second, right, "Images that the baseline gets right", "margin of each model")
    _draw_histograms(third, wrong, "Images that the baseline gets wrong", "margin of each model")
    _draw_histograms(fourth, corrected, "Images that mixup corrects", "margin of the baseline")
    second.set_yscale("symlog")  # nearly all images are in the last bin
    label_lines(figure, first, ends)
    return figure


def _draw_histograms(axis: Axes, histograms: Mapping[str, Sequence[int]], title: str, label: str) -> None:
    bins = len(next(iter(histograms.values()), []))
    for i, (name, counts) in enumerate(histograms.items()):
        width = 1 / (bins * (len(histograms) + 1))
        centres = [(j + 0.5) / bins + (i - (len(histograms) - 1) / 2) * width for j in range(bins)]
        axis.bar(centres, counts, width, label=name, color=colour_of(i))
    axis.set(xlabel=f"{label}:\nlargest probability minus the second largest", ylabel="images", title=title)
    axis.legend(frameon=False)
