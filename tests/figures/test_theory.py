"""The figures of the theory lab show the curves that they are given."""

import pytest

from outspan.figures.theory import gain_against_candidates, gain_against_n, rank_figure, spike
from outspan.theory.curves import Curve, slope


def test_the_lines_are_the_curves():
    lines = [Curve("a", (1, 2, 4, 8), (8, 4, 2, 1)), Curve("b", (1, 2, 4, 8), (64, 16, 4, 1))]
    (axis,) = gain_against_n(lines, [slope(line) for line in lines]).axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["a, slope -1.00", "b, slope -2.00"]
    assert axis.lines[1].get_ydata().tolist() == [64, 16, 4, 1]
    (axis,) = spike([Curve(name, (20, 40), (1, 2)) for name in "abc"]).axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["20", "40"]


def test_candidates_have_their_errors():
    (axis,) = gain_against_candidates([Curve("σ = 0", (1, 2), (1, 3), (0.5, 0.25))]).axes
    (bars,) = axis.containers
    low, high = bars[2][0].get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((-1, 3))  # 1 ± 4 standard errors


def test_the_ranking_shows_what_was_measured():
    predicted = {"label kept": [0.1, 0.1], "label moved": [-0.1, -0.1]}
    left, right = rank_figure(["a", "c"], [1.5, 2.5], predicted, {"label kept": 0.5, "label moved": -0.25}).axes
    assert left.collections[0].get_offsets().tolist() == [[1.5, 0.1], [2.5, 0.1]]
    assert [text.get_text() for text in right.texts] == ["a", "c"]
    assert (left.get_title(), right.get_title()) == ("Spearman +0.50", "Spearman -0.25")
    assert right.get_ylabel() == "predicted gain, label moved"
