"""The figure of a comparison shows the curves of its runs."""

import pytest

from outspan.figures.compare import compare_figure


def test_a_line_per_policy_and_a_band_over_seeds():
    (axis,) = compare_figure({"none": [[0.5, 0.7], [0.6, 0.9]], "random": [[0.4, 0.8]]}).axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["none", "random"]
    none, random = axis.get_lines()
    assert list(none.get_xdata()) == [1, 2]
    assert list(none.get_ydata()) == pytest.approx([55, 80])
    assert list(random.get_ydata()) == pytest.approx([40, 80])
    band = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((50, 90))
    assert axis.get_ylim() == pytest.approx((66, 91))  # around the last epoch
