"""The figure of the chosen compositions, compared with hand-made fractions."""

import pytest

from outspan.figures.compositions import compositions_figure

FRACTIONS = {
    "none": [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
    "invert+rotate": [0.1, 0.3, 0.2, 0.2, 0.2, 0.3, 0.4],
    "mixup": [0.4, 0.2, 0.3, 0.3, 0.3, 0.2, 0.1],
}


def test_marked_compositions_have_their_own_scale():
    above, below = compositions_figure(FRACTIONS, ["invert+rotate", "none"], ["invert+rotate"]).axes
    assert [text.get_text() for text in above.texts] == ["invert+rotate", "none"]
    assert [text.get_text() for text in below.texts] == ["invert+rotate"]
    strong, faint = below.get_lines()
    assert list(faint.get_xdata()) == [1, 2, 3, 4, 5, 6, 7]
    assert list(faint.get_ydata()) == pytest.approx([10, 30, 20, 20, 20, 30, 40])
    assert list(strong.get_ydata()) == list(faint.get_ydata())  # fewer than forty epochs are not smoothed
    assert len(compositions_figure(FRACTIONS, ["none"]).axes) == 1


def test_a_long_run_is_smoothed_over_a_twentieth_of_its_epochs():
    noisy = {"mixup": [0.2, 0.4] * 20}
    strong, faint = compositions_figure(noisy, ["mixup"], ["mixup"]).axes[1].get_lines()
    assert list(strong.get_ydata()) == pytest.approx([30.0] * 39)
    assert list(strong.get_xdata()) == [1.5 + i for i in range(39)]
    assert len(faint.get_ydata()) == 40


def test_a_single_epoch_is_visible():
    (strong, _) = compositions_figure({"mixup": [0.2]}, ["mixup"], ["mixup"]).axes[1].get_lines()
    assert strong.get_marker() == "o"
