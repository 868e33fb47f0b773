"""The figures of a comparison show the accuracies of its runs."""

import itertools

import pytest
from matplotlib.text import Text

from outspan.figures.compare import Curves, compare_figure, frontier_figure
from outspan.figures.style import COLOURS


def test_a_line_per_policy_and_a_band_over_seeds_against_epochs_and_seconds():
    none = Curves([[0.5, 0.7], [0.6, 0.9]], [1, 2], [10, 20])
    random = Curves([[0.4, 0.8]], [1, 1.5], [15, 22.5])
    left, right = compare_figure({"none": none, "random": random}).axes
    for axis in (left, right):
        assert {text.get_text(): text.get_color() for text in axis.texts} == dict(
            zip(("none", "random"), COLOURS, strict=False)
        )
    for axis, x in ((left, ([1, 2], [1, 1.5])), (right, ([10, 20], [15, 22.5]))):
        assert [list(line.get_xdata()) for line in axis.get_lines()] == [list(values) for values in x]
        assert list(axis.get_lines()[0].get_ydata()) == pytest.approx([55, 80])
        assert list(axis.get_lines()[1].get_ydata()) == pytest.approx([40, 80])
        band = axis.collections[0].get_paths()[0].vertices[:, 1]
        assert (band.min(), band.max()) == pytest.approx((50, 90))
        assert axis.get_ylim()[0] < 40  # nothing is cut
        assert axis.get_ylim()[1] > 90
    assert all(tick == int(tick) for tick in left.get_xticks())


def test_the_first_epochs_are_visible_on_a_scale_of_the_error():
    (left, _) = (figure := compare_figure({"none": Curves([[0.1, 0.9, 0.99]], [1, 2, 3], [1, 2, 3])}, "digits: 3 s each")).axes
    low, high = left.get_ylim()
    assert low < 10
    assert 99 < high < 100
    y = left.transData.transform([(0, 0.0 + accuracy) for accuracy in (0, 90, 99)])[:, 1]
    assert y[1] - y[0] == pytest.approx(y[2] - y[1])  # ten times fewer errors, twice
    assert "logarithm of the error" in left.get_ylabel()
    assert figure.get_suptitle() == "digits: 3 s each"


def test_names_beside_lines_do_not_overlap():
    figure = compare_figure({name: Curves([[0.5, 0.9 + i / 1e4]], [1, 2], [1, 2]) for i, name in enumerate("abcde")})
    figure.draw_without_rendering()
    for axis in figure.axes:
        boxes = [Text.get_window_extent(text) for text in axis.texts]  # without the line to the end of the curve
        ordered = sorted(boxes, key=lambda box: box.y0)
        assert all(low.y1 <= high.y0 + 2 for low, high in itertools.pairwise(ordered))
        assert all(box.x0 > axis.get_window_extent().x1 for box in boxes)  # the frame crosses no name


def test_a_policy_with_a_single_evaluation_is_visible():
    figure = compare_figure({"none": Curves([[0.5], [0.6]], [1], [10]), "random": Curves([[0.4, 0.8]], [1, 2], [9, 18])})
    for axis in figure.axes:
        single, line = axis.get_lines()
        assert single.get_marker() == "o"
        assert line.get_marker() in ("", "None")


def test_the_frontier_has_a_point_per_budget():
    (axis,) = frontier_figure({"none": [(10, 0.5, 0.1), (20, 0.6, 0.0)], "random": [(11, 0.4, 0.1)]}).axes
    lines = [container.lines[0] for container in axis.containers]
    assert [list(line.get_xdata()) for line in lines] == [[10, 20], [11]]
    assert list(lines[0].get_ydata()) == pytest.approx([50, 60])
    assert axis.get_xscale() == "log"
