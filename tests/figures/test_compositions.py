"""The figure of what was chosen, against hand-made shares."""

import pytest

from outspan.figures.compositions import compositions_figure, fifths, rising, with_marked

SHARES = {
    "none": [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
    "invert+rotate": [0.1, 0.3, 0.2, 0.2, 0.2, 0.3, 0.4],
    "mixup": [0.4, 0.2, 0.3, 0.3, 0.3, 0.2, 0.1],
}


def test_a_share_is_the_mean_of_each_fifth():
    assert fifths(SHARES)["invert+rotate"] == pytest.approx([0.2, 0.2, 0.2, 0.3, 0.4])  # epochs 1-2, 3-4, 5, 6, 7
    assert fifths({"none": [0.25, 0.75]})["none"] == [0.25, 0.75]


def test_what_rose_is_named_first_and_what_fell_last():
    assert rising(SHARES, most=1) == ["invert+rotate", "mixup"]
    assert rising(SHARES) == ["invert+rotate", "none", "mixup"]


def test_a_pair_is_marked_in_either_order():
    assert with_marked(SHARES, ["rotate + invert", "mixup", "invert+rotate"]) == (SHARES, ["invert+rotate", "mixup"])
    with pytest.raises(ValueError, match="unknown transform 'rotat', did you mean 'rotate'"):
        with_marked(SHARES, ["rotat+invert"])


def test_what_was_never_chosen_has_no_share():
    assert with_marked(SHARES, ["mixup+invert"]) == (SHARES | {"invert+mixup": [0.0] * 7}, ["invert+mixup"])


def test_the_marked_are_drawn_on_a_scale_of_their_own():
    above, below = compositions_figure(SHARES, ["invert+rotate"]).axes
    assert [text.get_text() for text in above.get_legend().get_texts()] == ["invert+rotate", "none", "mixup"]
    assert [text.get_text() for text in below.get_legend().get_texts()] == ["invert+rotate"]
    strong, faint = below.get_lines()
    assert list(faint.get_xdata()) == [1, 2, 3, 4, 5, 6, 7]
    assert list(faint.get_ydata()) == pytest.approx([10, 30, 20, 20, 20, 30, 40])
    assert list(strong.get_ydata()) == list(faint.get_ydata())  # fewer than forty epochs are not smoothed
    assert len(compositions_figure(SHARES).axes) == 1


def test_a_long_run_is_smoothed_over_a_twentieth():
    noisy = {"mixup": [0.2, 0.4] * 20}
    strong, faint = compositions_figure(noisy, ["mixup"]).axes[1].get_lines()
    assert list(strong.get_ydata()) == pytest.approx([30.0] * 39)
    assert list(strong.get_xdata()) == [1.5 + i for i in range(39)]
    assert len(faint.get_ydata()) == 40


def test_one_epoch_is_seen():
    (strong, _) = compositions_figure({"mixup": [0.2]}, ["mixup"]).axes[1].get_lines()
    assert strong.get_marker() == "o"
