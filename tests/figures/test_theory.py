"""The figures of the theory lab show the curves that they get."""

import pytest

from outspan.figures.theory import gain_against_candidates, gain_against_n, gain_with_spike, rank_figure
from outspan.theory.curves import Curve
from outspan.theory.ranking import Ranked, Ranking


def test_the_lines_show_the_curves():
    lines = [Curve("a", (1, 2, 4, 8), (8, 4, 2, 1)), Curve("b", (1, 2, 4, 8), (64, 16, 4, 1))]
    (axis,) = gain_against_n(lines).axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["a, slope -1.00", "b, slope -2.00"]
    assert axis.lines[1].get_ydata().tolist() == [64, 16, 4, 1]
    (axis,) = gain_with_spike([Curve(name, (20, 40), (1, 2)) for name in "abc"]).axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["20", "40"]


def test_candidates_have_error_bars():
    (axis,) = gain_against_candidates([Curve("σ = 0", (1, 2), (1, 3), (0.5, 0.25))]).axes
    (bars,) = axis.containers
    low, high = bars[2][0].get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((-1, 3))  # 1 ± 4 standard errors


def test_the_ranking_shows_the_measured_values():
    rows = tuple(Ranked(name, True, 1.0, 1.0, 0.1, 0.0, -0.1, score) for name, score in (("a", 1.5), ("b", None), ("c", 2.5)))
    ranking = Ranking("d", 10, 0, 1, 0, 0.1, rows, {"gain": 0.5, "net": -0.25})
    left, right = rank_figure(ranking).axes
    assert left.collections[0].get_offsets().tolist() == [[1.5, 0.1], [2.5, 0.1]]
    assert [text.get_text() for text in right.texts] == ["a", "c"]
    assert (left.get_title(), right.get_title()) == ("Spearman +0.50", "Spearman -0.25")
