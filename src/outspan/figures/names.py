"""Names beside the points of a figure, where they cover no other name and no point."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

Box = tuple[float, float, float, float]  # left, bottom, right, top


def label_points(figure: Figure, axis: Axes, points: Mapping[str, tuple[float, float, str]], *, size: float = 8) -> None:
    """Write the name of each point near it, in its colour, where it covers no other name and no point, with a line to it.

    Args:
        figure: The figure of the axis; it is laid out.
        axis: Where the points are.
        points: By name, the position of a point in the units of the axis, and its colour.
        size: The size of the letters, in points.
    """
    figure.draw_without_rendering()
    scale = 72 / figure.dpi
    left, bottom, right, top = map(float, axis.bbox.extents)
    frame = scale * left, scale * bottom, scale * right, scale * top
    positions = {name: (scale * axis.transData.transform((x, y))).tolist() for name, (x, y, _) in points.items()}
    taken = [(x - 3, y - 3, x + 3, y + 3) for x, y in positions.values()]
    for name, (x, y) in positions.items():
        right, up, box = _free_place(x, y, 0.62 * size * len(name), frame, taken)
        taken.append(box)
        point, colour = points[name][:2], points[name][2]
        style = {"fontsize": size, "color": colour, "va": "center", "ha": "right" if right < 0 else "left", "zorder": 4}
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 0}
        axis.annotate(name, point, xytext=(right, up), textcoords="offset points", arrowprops=line, parse_math=False, **style)


def _free_place(x: float, y: float, width: float, frame: Box, taken: Sequence[Box]) -> tuple[float, float, Box]:
    """Return the offset of a name from its point, to the right and up, and the box that it fills."""
    places = list(_places(x, y, width))
    free = (place for place in places if _is_inside(place[2], frame) and not any(_overlap(place[2], other) for other in taken))
    return next(free, places[0])


def _places(x: float, y: float, width: float) -> Iterator[tuple[float, float, Box]]:
    """Return the places to try for a name, from near to far."""
    angles = [math.pi * turn / 8 for turn in (1, -1, 7, -7, 3, -3, 5, -5)]
    for distance, angle in itertools.product(range(10, 120, 8), angles):
        right, up = distance * math.cos(angle), distance * math.sin(angle)
        left = x + right - (width if right < 0 else 0)
        yield right, up, (left, y + up - 4.5, left + width, y + up + 4.5)


def _is_inside(box: Box, frame: Box) -> bool:
    return frame[0] < box[0] and frame[1] < box[1] and box[2] < frame[2] and box[3] < frame[3]


def _overlap(box: Box, other: Box) -> bool:
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]
