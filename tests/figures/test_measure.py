"""The figures of studies."""

import itertools

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.text import Text

from outspan.figures.measure import Arrow, Estimate, Point, graph_figure, measure_figure, mixup_figure
from outspan.figures.style import VERDICT_COLOURS


def test_one_point_per_transform_at_its_scores():
    baseline = Point(0.2, 0.5, (0.1, 0.3), (0.4, 0.6))
    transforms = {
        "rotate": Point(0.0, 0.0, (0.0, 0.0), (0.0, 0.0), "better"),
        "invert": Point(0.0, 1.0, (0.0, 0.0), (1.0, 1.0), "worse"),
        "blur": Point(0.2, 0.5, (0.1, 0.3), (0.4, 0.6), "no significant difference"),
        "smooth": Point(0.3, 0.5, (0.1, 0.3), (0.4, 0.6), "no significant difference"),
    }
    figure = measure_figure(baseline, transforms, "the title")
    axis = figure.axes[0]
    assert {text.get_text() for text in axis.texts} == {"baseline", *transforms}
    for text in axis.texts:
        point = transforms.get(text.get_text(), baseline)
        assert text.xy == pytest.approx((100 * point.instability, 100 * point.error))
        assert to_rgba(text.get_color()) == to_rgba(VERDICT_COLOURS.get(point.verdict, "black"))
    assert axis.get_title() == "the title"
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["better than the baseline", "worse than the baseline", "no significant difference", "baseline"]


def test_labels_of_close_points_do_not_overlap_and_stay_inside():
    generator = torch.Generator().manual_seed(0)
    points = {}
    for i in range(20):
        instability, error = (0.01 + 0.001 * torch.rand(2, generator=generator)).tolist()
        points[f"transform_{i}"] = Point(instability, error, (0.0, 0.03), (0.0, 0.03), "no significant difference")
    figure = measure_figure(points["transform_0"], points, "")
    FigureCanvasAgg(figure).draw()
    axis = figure.axes[0]
    boxes = [Text.get_window_extent(text) for text in axis.texts]  # the text only, without the lines to the points
    assert len(boxes) == 21
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(axis.bbox.x0 < box.x0 and box.x1 < axis.bbox.x1 for box in boxes)


def test_an_arrow_for_every_edge():
    arrows = [Arrow("a", "b", 0.2, significant=True), Arrow("b", "c", 0.2, significant=False)]
    axis = graph_figure(dict.fromkeys("abc", 0.125), arrows, "B after A").axes[0]
    drawn = [text.arrow_patch for text in axis.texts if getattr(text, "arrow_patch", None) is not None]
    assert [arrow.get_linestyle() for arrow in drawn] == ["-", "--"]
    assert [text.get_text() for text in axis.texts].count("-20 %") == 2
    assert "a\n12.50 %" in {text.get_text() for text in axis.texts}
    assert axis.get_title() == "B after A"


def test_the_figure_of_mixup_shows_its_counts():
    curve = [Estimate(fraction, fraction / 10, (0.0, 0.2)) for fraction in (0.0, 1.0)]
    counts = list(range(10))
    both = {"baseline": counts, "mixup": counts[::-1]}
    corrected = {"0 % same class": counts, "100 % same class": [0] * 10}
    axes = mixup_figure(curve, {"baseline": 0.05, "weight decay": 0.04}, both, both, corrected).axes
    assert axes[0].lines[0].get_xydata().tolist() == [[0, 0], [100, 10]]
    assert {text.get_text() for text in axes[0].texts} == {"baseline", "weight decay", "mixup"}
    for axis, expected in ((axes[1], counts[::-1]), (axes[2], counts[::-1]), (axes[3], [0] * 10)):
        assert [patch.get_height() for patch in axis.patches] == [*counts, *expected]
