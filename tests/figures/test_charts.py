"""Charts as SVG: points are where their values are, and nothing is cut."""

import math
import re

import pytest

from html_pages import read_page
from outspan.figures import scales
from outspan.figures.charts import HEIGHT, WIDTH, Axis, Mark, Series, bar_chart, graph_chart, line_chart, plane_chart
from outspan.figures.style import accuracy_ticks, spread

EPOCH = Axis("epoch", "whole")


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path)]


def lines(markup: str) -> list[list[tuple[float, float]]]:
    return [points(one["d"]) for one in read_page(markup).of("path") if (one.get("class") or "") == "line"]


def test_a_line_goes_through_its_points_on_linear_axes():
    (drawn,) = lines(line_chart([Series("a", [1, 2, 4], [10, 30, 20])], EPOCH, Axis("y"), title="T"))
    (x0, y0), (x1, y1), (x2, y2) = drawn
    assert (x2 - x0) / (x1 - x0) == pytest.approx(3, abs=1e-3)
    assert (y0 - y2) / (y0 - y1) == pytest.approx(0.5, abs=1e-3)  # upwards is less
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in drawn)


def test_accuracies_from_low_to_high_are_all_visible_on_the_scale_of_the_error():
    (drawn,) = lines(line_chart([Series("a", [1, 2, 3], [0, 90, 99])], EPOCH, Axis("%", "accuracy"), title="T"))
    ys = [y for _, y in drawn]
    assert all(0 < y < HEIGHT for y in ys)
    assert (ys[0] - ys[1]) / (ys[1] - ys[2]) == pytest.approx(1, abs=0.01)  # ten times fewer errors, twice
    (drawn,) = lines(line_chart([Series("a", [1, 2], [50, 100])], EPOCH, Axis("%", "accuracy"), title="T"))
    assert all(0 < y < HEIGHT for _, y in drawn)  # no logarithm of 0


def test_the_ticks_of_epochs_are_whole_numbers():
    for last in (1, 2, 3, 7, 60, 1800):
        ticks = scales.linear([1, last], 0, 100, whole=True).ticks
        assert ticks
        assert all(tick == int(tick) for tick in ticks)
        assert len(ticks) <= 6


@pytest.mark.parametrize("values", [[5, 5], [0], [-3, 1e-9], [1e12, 3e12], []])
def test_a_scale_has_ticks_inside_its_range(values):
    scale = scales.linear(values, 0, 100)
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks)
    assert all(math.isfinite(scale(tick)) for tick in scale.ticks)


def test_labels_do_not_overlap_and_keep_their_order():
    placed = spread([10, 10.5, 11, 40, 40.2], 5)
    assert all(b - a >= 5 - 1e-6 for a, b in zip(sorted(placed), sorted(placed)[1:], strict=False))
    assert placed == sorted(placed)
    assert sum(placed[:3]) / 3 == pytest.approx(10.5)


def test_accuracy_ticks_are_apart():
    for low, high in ((0, 50), (10, 97), (80, 99.9), (92.1, 92.9)):
        ticks = accuracy_ticks(low, high)
        assert len(ticks) >= 2
        assert all(low <= tick <= high or tick in (round(low, 1), round(high, 1)) for tick in ticks)


def test_every_series_can_be_found_by_its_name_and_its_values_are_a_table():
    page = read_page(line_chart([Series("<b>", [1], [2.0]), Series("c", [1], [3.0])], EPOCH, Axis("y"), title="T"))
    assert {one["data-series"] for one in page.of("g")} == {"<b>", "c"}
    assert page.of("b") == []
    assert "Values as a table" in page.text
    assert {"role": "img", "aria-label": "T"}.items() <= page.of("svg")[0].items()


def test_a_plane_bars_and_a_graph():
    marks = {"rotate": Mark(1, 2, (0.5, 1.5), (1, 3), "better"), "baseline": Mark(2, 3, (2, 2), (3, 3), "baseline")}
    plane = read_page(plane_chart(marks, Axis("instability, %"), Axis("error, %"), title="P"))
    assert [one["class"] for one in plane.of("g")] == ["mark better", "mark baseline"]
    bars = read_page(bar_chart({"a": [1, 2]}, ["x", "y"], Axis("n"), Axis("count"), title="B"))
    low, high = (float(one["height"] or 0) for one in bars.of("rect"))
    assert high == pytest.approx(2 * low, rel=0.01)
    graph = read_page(graph_chart({"a": "1 %", "b": "2 %"}, [("a", "b", "-20 %", False)], title="G"))
    (arrow,) = [one for one in graph.of("path") if one["class"] == "arrow"]
    assert arrow["stroke-dasharray"] == "5 4"
    assert arrow["marker-end"] == f"url(#{graph.of('marker')[0]['id']})"


def test_values_that_are_not_finite_are_left_out():
    markup = line_chart(
        [Series("a", [1, 2, 3], [1, 2, math.nan]), Series("b", [1, 2, 3], [2, math.inf, 1])], EPOCH, Axis("y"), title="T"
    )
    assert not re.search(r"\bnan\b|\binf\b", markup)
    assert [len(line) for line in lines(markup)] == [2, 2]


@pytest.mark.parametrize("values", [[-0.0025, 0.001], [0.6931, 0.69325], [1e-6, 3e-6], [10, 20]])
def test_the_ticks_do_not_reach_the_label_of_the_axis(values):
    drawn = line_chart([Series("a", [1, 2], values)], EPOCH, Axis("y"), title="T")
    texts = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="end">([^<]+)<', drawn)
    assert len(texts) > 1
    for end, tick in texts:
        assert float(end) - 9 * len(tick) >= 20  # the label, whose letters are 14.5 high, is around 13


def test_names_at_the_ends_of_lines_are_inside_the_chart():
    for ends in ([1.0] * 8, [0.0] * 8, [i / 30 for i in range(30)]):
        series = [Series(f"line {i}", [1, 2], [0.5, end]) for i, end in enumerate(ends)]
        drawn = line_chart(series, EPOCH, Axis("weight", "fraction"), title="T")
        places = [float(y) for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)" text-anchor="start">line', drawn)]
        assert len(places) == len(ends)
        assert min(places) >= 12
        assert max(places) <= HEIGHT - 38


def test_a_constant_fraction_is_on_a_scale_from_0_to_1():
    for value in (0.0, 0.3, 1.0):
        drawn = line_chart([Series("a", [1, 2], [value, value])], EPOCH, Axis("fraction", "fraction"), title="T")
        assert re.findall(r'text-anchor="end">([^<]+)<', drawn) == ["0", "0.25", "0.5", "0.75", "1"]
        ((_, y), _), middle = lines(drawn)[0], (12 + HEIGHT - 44) / 2
        assert (y < middle) == (value > 0.5)
    assert scales.linear([0, 0], 0, 100).ticks[-1] >= 0.4
