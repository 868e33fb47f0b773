"""The figures of a comparison show the accuracies of its runs."""

import pytest

from outspan.figures.compare import Curves, compare_figure, frontier_figure


def test_a_line_per_policy_and_a_band_over_seeds_against_epochs_and_seconds():
    none = Curves([[0.5, 0.7], [0.6, 0.9]], [1, 2], [10, 20])
    random = Curves([[0.4, 0.8]], [1, 1.5], [15, 22.5])
    left, right = compare_figure({"none": none, "random": random}).axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["none", "random"]
    for axis, x in ((left, ([1, 2], [1, 1.5])), (right, ([10, 20], [15, 22.5]))):
        assert [list(line.get_xdata()) for line in axis.get_lines()] == [list(values) for values in x]
        assert list(axis.get_lines()[0].get_ydata()) == pytest.approx([55, 80])
        assert list(axis.get_lines()[1].get_ydata()) == pytest.approx([40, 80])
        band = axis.collections[0].get_paths()[0].vertices[:, 1]
        assert (band.min(), band.max()) == pytest.approx((50, 90))
        assert axis.get_ylim() == pytest.approx((66, 91))  # around the last evaluation


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
