"""The house style of all figures: colours, axes, and labels beside the lines that they name."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

# They differ also for colour-blind readers, and each has a contrast of at least 3 to 1 with the background.
COLOURS = ("#0072B2", "#C44E00", "#00805C", "#9B4F96", "#8A6D00", "#2B87BD", "#5A5A5A", "#A3224B")
DARK_COLOURS = ("#6CB8EE", "#FF9E5E", "#3FCFA3", "#DF9BD6", "#E3C341", "#A8DCFF", "#C4C4C4", "#FF8FB0")  # on black
VERDICT_COLOURS: Mapping[str, str] = {"better": "#00805C", "worse": "#C44E00", "no significant difference": "#5A5A5A"}
# % of accuracy, on a logarithmic scale of the error; the first ones are preferred.
_ACCURACIES = (0, 50, 80, 90, 95, 98, 99, 99.5, 99.8, 99.9, 70, 85, 93, 97, 30, 60, 75, 92, 94, 96, 98.5, 99.3)
_TICK_DISTANCE = 0.11  # of the length of the axis
_LOG_RATIO = 4  # of the largest to the smallest error, from which their scale is logarithmic


def colour_of(index: int) -> str:
    """Return the colour of a line by its place among the others. The order of policies is the same in all figures."""
    return COLOURS[index % len(COLOURS)]


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches."""
    return Figure(figsize=(width, height), dpi=150, facecolor="white", layout="constrained")


def is_log_accuracy(accuracies: Sequence[float]) -> bool:
    """Return whether accuracies, in [0, 1], are drawn on a logarithmic scale of the error, where all of them can be seen.

    >>> is_log_accuracy([0.1, 0.95]), is_log_accuracy([0.5, 0.6]), is_log_accuracy([0.1, 1.0])
    (True, False, False)
    """
    errors = [1 - value for value in accuracies]
    return bool(errors) and min(errors) > 1e-9 and max(errors) >= _LOG_RATIO * min(errors)


def accuracy_ticks(low: float, high: float) -> list[float]:
    """Return the ticks for accuracies from `low` to `high`, in %, on a logarithmic scale of the error.

    >>> accuracy_ticks(10, 91)
    [30, 50, 70, 80, 85, 90]
    """
    length = math.log((100 - low) / (100 - high))
    kept: list[float] = []
    for tick in _ACCURACIES:
        if low <= tick <= high and all(
            abs(math.log((100 - tick) / (100 - other))) >= _TICK_DISTANCE * length for other in kept
        ):
            kept.append(tick)
    return sorted(kept) if len(kept) > 1 else [round(low, 1), round(high, 1)]


def scale_accuracy(axis: Axes, accuracies: Sequence[float]) -> None:
    """Scale the vertical axis, of accuracies in %, so that no part of a curve is cut. Label it."""
    if not is_log_accuracy(accuracies):
        axis.set_ylabel("test accuracy, %")
        return
    low, high = 100 * min(accuracies), 100 * max(accuracies)
    axis.set_yscale("function", functions=(_to_log_error, _from_log_error))
    axis.yaxis.set_major_locator(FixedLocator(accuracy_ticks(low, high)))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_ylim(100 - 1.15 * (100 - low), 100 - (100 - high) / 1.15)
    axis.set_ylabel("test accuracy, % (scale: logarithm of the error)")


def _to_log_error(percent: np.ndarray) -> np.ndarray:
    return -np.log10(np.maximum(100 - np.asarray(percent, dtype=float), 1e-6))


def _from_log_error(value: np.ndarray) -> np.ndarray:
    return 100 - 10 ** -np.asarray(value, dtype=float)


def use_whole_epochs(axis: Axes) -> None:
    """Put the ticks of the horizontal axis at whole epochs."""
    axis.set_xlabel("epoch")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def spread(positions: Sequence[float], distance: float, low: float = -math.inf, high: float = math.inf) -> list[float]:
    """Return positions of labels in the order of their wishes, at least `distance` apart, and as near to them as possible.

    All are between `low` and `high`. If there is too little space, they are less far apart.

    >>> spread([0.0, 0.1, 5.0], 1.0), spread([0.0, 0.1, 5.0], 1.0, low=0.0)
    ([-0.45, 0.55, 5.0], [0.0, 1.0, 5.0])
    """
    distance = min(distance, (high - low) / max(len(positions) - 1, 1))

    def start(group: Sequence[int]) -> float:
        height = distance * (len(group) - 1)
        return max(min(sum(positions[i] for i in group) / len(group) - height / 2, high - height), low)

    order = sorted(range(len(positions)), key=positions.__getitem__)
    groups: list[list[int]] = []
    for i in order:
        groups.append([i])
        while len(groups) > 1 and start(groups[-1]) < start(groups[-2]) + distance * len(groups[-2]):
            groups[-2:] = [groups[-2] + groups[-1]]
    placed = [0.0] * len(positions)
    for group in groups:
        for rank, i in enumerate(group):
            placed[i] = round(start(group) + rank * distance, 6)
    return placed


def label_lines(figure: Figure, axis: Axes, ends: Mapping[str, tuple[float, float, str]]) -> None:
    """Write the name of each line to the right of the axis, in its colour, without overlaps, with a thin line to its end.

    Args:
        figure: The figure of the axis; it is laid out.
        axis: Where the lines are.
        ends: By name, the last point of the line and its colour.
    """
    for name, (x, y, colour) in ends.items():  # first at the height of the ends, so that the layout leaves room for them
        style = {"color": colour, "fontsize": 9, "va": "center", "annotation_clip": False, "parse_math": False}
        lead = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 2}
        at = {"xytext": (1.02, y), "textcoords": ("axes fraction", "data")}  # outside, or the frame would cross the name
        axis.annotate(name, (x, y), **at, arrowprops=lead, **style)
    figure.draw_without_rendering()
    points, box = 72 / figure.dpi, axis.get_window_extent()
    wishes = [float(axis.transData.transform((x, y))[1]) * points for x, y, _ in ends.values()]
    texts = axis.texts[-len(ends) :]
    for text, place in zip(texts, spread(wishes, 11.0, box.y0 * points, box.y1 * points), strict=True):
        text.set_position((1.02, float(axis.transData.inverted().transform((box.x0, place / points))[1])))
