"""Charts as SVG for pages: lines, points with intervals, bars and a graph. They take their colours from the page's style."""

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from outspan.figures import scales
from outspan.figures.markup import Markup, element, table
from outspan.figures.scales import Scale, rounded, shown
from outspan.figures.style import COLOURS, spread

WIDTH, HEIGHT = 480, 300
_TOP, _BOTTOM = 12, 44
_LETTER, _LINE = 6.6, 15  # mean width and height of a letter of the labels
_DIGIT = 9.2  # width of a digit, in the larger letters of a narrow screen
_DASHES = (None, "7 3", "2 3", "9 3 2 3")
_NAME = 20  # letters of a name beside a line
_STYLE_NAMES = {"same": "no significant difference"}
_ROWS = 60  # of the table of values below a chart


@dataclass(frozen=True)
class Series:
    """A line of a chart. `low` and `high` are the ends of a band around it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    faint: bool = False  # grey, and without a name
    bars: bool = False  # draw the band as error bars


@dataclass(frozen=True)
class Axis:
    """How an axis is labelled and scaled: "linear", "whole", "log", "fraction" (0 to 1) or "accuracy" (in %, never cut)."""

    label: str
    kind: str = "linear"

    def scale(self, values: Sequence[float], start: float, end: float) -> Scale:
        """Return the scale of this axis for some values."""
        values = [value for value in values if math.isfinite(value)]
        if self.kind == "fraction":
            return scales.linear([0, 1, *values], start, end, margin=0.04)
        if self.kind == "accuracy":
            return scales.accuracy(values or [0, 100], start, end)
        if self.kind == "log" and values and min(values) > 0:
            return scales.logarithmic(values, start, end)
        return scales.linear(values, start, end, whole=self.kind == "whole", margin=0 if self.kind == "whole" else 0.04)


def line_chart(series: Sequence[Series], x: Axis, y: Axis, *, title: str, note: str = "") -> Markup:
    """Return a chart of lines with their names at their ends, and a table of the values. Only finite values are drawn."""
    series = [_finite(one) for one in series]
    named = [one for one in series if not one.faint]
    right = WIDTH - _label_width(named)
    values = [value for one in series for value in (*one.y, *one.low, *one.high)]
    up = y.scale(values, HEIGHT - _BOTTOM, _TOP)
    across = x.scale([value for one in series for value in one.x], _left(up), right)
    drawn = [_draw_faint(one, across, up) for one in series if one.faint]
    drawn += [_draw_line(one, i, across, up) for i, one in enumerate(named)]
    labels = _end_labels(named, across, up, right) if len(named) > 1 else []
    note = " ".join(part for part in (note, f"Vertical scale: {up.note}." if up.note else "") if part)
    return chart_figure(
        [_axes(across, up, x.label, y.label), drawn, labels],
        title,
        note,
        below=_values_table(named, x.label, title),
        data_hover=_hover(named, across, x.label),
    )


def _label_width(named: Sequence[Series]) -> float:
    """Return the space to the right of the lines: that of their names, if there are several."""
    return 24 + 7.8 * min(_NAME, max(len(one.name) for one in named)) if len(named) > 1 else 14


def _left(up: Scale) -> float:
    """Return the space to the left of a chart: that of the label of the vertical axis and of the longest tick."""
    return 30 + _DIGIT * max((len(shown(tick)) for tick in up.ticks), default=0)


def chart_figure(content: object, title: str, note: str = "", *, below: object = None, **attributes: object) -> Markup:
    """Return a figure with a chart in it: its title above, and a note below."""
    drawing = element("svg", content, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=title, tabindex=0, **attributes)
    caption = element("figcaption", element("strong", title), element("span", f" {note}") if note else None)
    return element("figure", caption, drawing, below, class_="chart")


def text(x: float, y: float, content: object, *, anchor: str = "start", class_: str | None = None) -> Markup:
    """Return a text of a chart."""
    return element("text", content, x=round(x, 1), y=round(y, 1), text_anchor=anchor, class_=class_)


def _axes(across: Scale, up: Scale, x_label: str, y_label: str) -> list[Markup]:
    left, right, bottom = across.start, across.end, HEIGHT - _BOTTOM
    lines = []
    for tick in up.ticks:
        lines.append(element("path", d=f"M{left:g} {up(tick)}H{right:g}", class_="grid"))
        lines.append(text(left - 6, up(tick) + 4, shown(tick), anchor="end"))
    last = -math.inf
    for tick in across.ticks:
        lines.append(element("path", d=f"M{across(tick)} {_TOP}V{bottom}", class_="grid"))
        if across(tick) - last >= 8 + _LETTER * len(shown(tick)):
            lines.append(text(across(tick), bottom + 17, shown(tick), anchor="middle"))
            last = across(tick)
    lines.append(text((left + right) / 2, HEIGHT - 8, x_label, anchor="middle", class_="label"))
    middle = (_TOP + bottom) / 2
    upright = element("text", y_label, x=13, y=middle, text_anchor="middle", transform=f"rotate(-90 13 {middle:g})")
    return [*lines, upright]


def _finite(one: Series) -> Series:
    kept = [math.isfinite(x) and math.isfinite(y) for x, y in zip(one.x, one.y, strict=True)]
    columns = {name: tuple(compress(getattr(one, name), kept)) for name in ("x", "y", "low", "high")}
    return replace(one, **columns)


def _path(xs: Sequence[float], ys: Sequence[float], across: Scale, up: Scale) -> str:
    points = [(across(x), up(y)) for x, y in zip(xs, ys, strict=True)]
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points) if points else ""


def _draw_faint(one: Series, across: Scale, up: Scale) -> Markup:
    return element("path", element("title", one.name), d=_path(one.x, one.y, across, up), class_="faint")


def _draw_line(one: Series, index: int, across: Scale, up: Scale) -> Markup:
    parts: list[Markup] = []
    if one.low and one.bars:
        for x, low, high in zip(one.x, one.low, one.high, strict=True):
            parts.append(element("path", d=f"M{across(x)} {up(low)}V{up(high)}", class_="line"))
    elif one.low:
        forth, back = _path(one.x, one.high, across, up), _path(one.x[::-1], one.low[::-1], across, up)
        parts.append(element("path", d=f"{forth}L{back[1:]}Z", class_="band"))
    dash = _DASHES[index // len(COLOURS) % len(_DASHES)]
    parts.append(element("path", d=_path(one.x, one.y, across, up), class_="line", stroke_dasharray=dash))
    if len(one.x) <= 12:
        for x, y in zip(one.x, one.y, strict=True):
            where = element("title", f"{one.name}: {shown(x)}, {shown(rounded(y, 3))}")
            parts.append(element("circle", where, cx=across(x), cy=up(y), r=3.2))
    return element("g", parts, data_series=one.name, class_=f"c{index % len(COLOURS)}")


def _end_labels(named: Sequence[Series], across: Scale, up: Scale, right: float) -> list[Markup]:
    ends = [(across(one.x[-1]), up(one.y[-1])) if len(one.x) else (right, HEIGHT / 2) for one in named]
    places = spread([y for _, y in ends], _LINE, _TOP, HEIGHT - _BOTTOM)
    labels = []
    for i, (one, (x, y), place) in enumerate(zip(named, ends, places, strict=True)):
        lead = element("path", d=f"M{x + 3:g} {y:g}L{right + 4:g} {place:g}", class_="lead")
        name = one.name if len(one.name) <= _NAME else f"{one.name[: _NAME - 1]}…"
        parts = [lead, element("circle", cx=right + 7, cy=place, r=4), text(right + 14, place + 4, name)]
        labels.append(element("g", parts, data_series=one.name, class_=f"c{i % len(COLOURS)}"))
    return labels


def _hover(named: Sequence[Series], across: Scale, x_label: str) -> str:
    """Return what the script shows at each position: JSON of [position, lines of text]."""
    at: dict[float, list[str]] = {}
    for one in named:
        for x, y in zip(one.x, one.y, strict=True):
            at.setdefault(x, []).append(f"{one.name}: {shown(rounded(y, 3))}")
    step = max(1, len(at) // 300)
    return json.dumps([[across(x), [f"{x_label} {shown(rounded(x, 2))}", *at[x]]] for x in sorted(at)[::step]])


def _values_table(named: Sequence[Series], x_label: str, title: str) -> Markup | None:
    """Return the values as a table that can be opened: readable without the chart."""
    xs = sorted({x for one in named for x in one.x})
    if not xs:
        return None
    step = -(-len(xs) // _ROWS)
    by_x = [dict(zip(one.x, one.y, strict=True)) for one in named]
    kept = dict.fromkeys([*xs[::step], xs[-1]])
    rows = [[shown(rounded(x, 2)), *(shown(rounded(one[x], 3)) if x in one else "" for one in by_x)] for x in kept]
    values = table([x_label, *(one.name for one in named)], rows, caption=f"Values: {title}", tools=False)
    return element("details", element("summary", "Values as a table"), values)


@dataclass(frozen=True)
class Mark:
    """A point of a plane with the intervals of both values and a style: "better", "worse", "same" or "baseline"."""

    x: float
    y: float
    x_interval: tuple[float, float]
    y_interval: tuple[float, float]
    style: str


def plane_chart(marks: Mapping[str, Mark], x: Axis, y: Axis, *, title: str, note: str = "") -> Markup:
    """Return points with their intervals and names."""
    up = y.scale([v for mark in marks.values() for v in (mark.y, *mark.y_interval)], HEIGHT - _BOTTOM, _TOP)
    across = x.scale([v for mark in marks.values() for v in (mark.x, *mark.x_interval)], _left(up), WIDTH - 90)
    order = sorted(marks, key=lambda name: up(marks[name].y)) if len(marks) <= 20 else []
    places = dict(zip(order, spread([up(marks[name].y) for name in order], 12, _TOP, HEIGHT - _BOTTOM), strict=True))
    drawn = []
    for name, mark in marks.items():
        left, right = (across(value) for value in mark.x_interval)
        low, high = (up(value) for value in mark.y_interval)
        at = across(mark.x), up(mark.y)
        parts = [
            element("title", f"{name}: {x.label} {shown(round(mark.x, 2))}, {y.label} {shown(round(mark.y, 2))}"),
            element("path", d=f"M{left} {at[1]}H{right}M{at[0]} {low}V{high}", class_="line thin"),
            element("circle", cx=at[0], cy=at[1], r=7 if mark.style == "baseline" else 4.5),
        ]
        if name in places:
            parts.append(element("path", d=f"M{at[0]} {at[1]}L{WIDTH - 86} {places[name]:g}", class_="lead"))
            parts.append(text(WIDTH - 84, places[name] + 4, name, class_="small"))
        drawn.append(element("g", parts, class_=f"mark {mark.style}", data_series=_STYLE_NAMES.get(mark.style, mark.style)))
    return chart_figure([_axes(across, up, x.label, y.label), drawn], title, note)


def bar_chart(
    groups: Mapping[str, Sequence[float]], names: Sequence[str], x: Axis, y: Axis, *, title: str, note: str = ""
) -> Markup:
    """Return bars side by side: for each name one bar per group."""
    values = [value for group in groups.values() for value in group]
    up = Axis(y.label).scale([0, *values], HEIGHT - _BOTTOM, _TOP)
    across = scales.linear([0, len(names)], _left(up), WIDTH - 12)
    width = (across(1) - across(0)) / (len(groups) + 0.5)
    drawn = []
    for i, (name, group) in enumerate(groups.items()):
        bars = []
        for j, value in enumerate(group):
            box = {"x": round(across(j) + i * width, 1), "y": up(value), "width": round(width * 0.92, 1)}
            bars.append(
                element("rect", element("title", f"{name}, {names[j]}: {shown(value)}"), height=up(0) - up(value), **box)
            )
        drawn.append(element("g", bars, data_series=name, class_=f"c{i % len(COLOURS)}"))
    bare = Scale(across.low, across.high, across.start, across.end, ())
    step = max(1, len(names) // 6)
    labels = [
        text(across(j + 0.5), HEIGHT - _BOTTOM + 17, name, anchor="middle") for j, name in enumerate(names) if not j % step
    ]
    rows = [[name, *(shown(group[j]) for group in groups.values())] for j, name in enumerate(names)]
    values_table = table([x.label, *groups], rows, caption=f"Values: {title}", tools=False)
    below = element("details", element("summary", "Values as a table"), values_table)
    return chart_figure([_axes(bare, up, x.label, y.label), drawn, labels], title, note, below=[_legend(list(groups)), below])


def _legend(names: Sequence[str]) -> Markup | None:
    """Return the names of several groups with their colours. The script replaces it by buttons."""
    items = [element("li", name, class_=f"c{i % len(COLOURS)}") for i, name in enumerate(names)]
    return element("ul", items, class_="legend") if len(items) > 1 else None


def graph_chart(
    nodes: Mapping[str, str], arrows: Sequence[tuple[str, str, str, bool]], *, title: str, note: str = ""
) -> Markup:
    """Return a graph: its nodes in a circle with their texts, and arrows (from, to, label, whether it is solid)."""
    places = {}
    for i, name in enumerate(nodes):
        angle = math.pi / 2 - 2 * math.pi * i / len(nodes)
        places[name] = WIDTH / 2 + 175 * math.cos(angle), HEIGHT / 2 - 118 * math.sin(angle)
    head = element("path", d="M0 0L8 4L0 8Z", class_="head")
    number = f"arrow-{zlib.crc32(title.encode(errors='surrogatepass'))}"  # a page may have several graphs
    marker = element("marker", head, id=number, markerWidth=8, markerHeight=8, refX=7, refY=4, orient="auto")
    drawn = [element("defs", marker)]
    for first, second, label, is_solid in arrows:
        (x0, y0), (x1, y1) = places[first], places[second]
        length = math.dist((x0, y0), (x1, y1)) or 1.0
        ux, uy = (x1 - x0) / length, (y1 - y0) / length
        side = 6  # arrows in both directions do not cover each other
        x0, y0, x1, y1 = x0 + 44 * ux - side * uy, y0 + 24 * uy + side * ux, x1 - 50 * ux - side * uy, y1 - 28 * uy + side * ux
        line = element(
            "path", d=f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}", class_="arrow", stroke_dasharray=None if is_solid else "5 4",
            marker_end=f"url(#{number})",
        )  # fmt: skip
        at = text(x0 + 0.4 * (x1 - x0) - 9 * uy, y0 + 0.4 * (y1 - y0) + 9 * ux + 4, label, anchor="middle", class_="small")
        drawn.append(element("g", element("title", f"{first} → {second}: {label}"), line, at))
    for name, (x, y) in places.items():
        half = max(36.0, _LETTER * len(name) / 2 + 8)
        box = element("rect", x=round(x - half, 1), y=round(y - 20, 1), width=2 * half, height=40, rx=8, class_="node")
        drawn.append(element("g", box, text(x, y - 3, name, anchor="middle"), text(x, y + 13, nodes[name], anchor="middle")))
    return chart_figure(drawn, title, note)
