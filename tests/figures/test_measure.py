"""The figures of studies."""

import itertools

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.text import Text

from outspan.figures.measure import COLOURS, graph_figure, measure_figure, mixup_figure
from outspan.measurement.scores import Predictions
from outspan.measurement.study import BASELINE, Measured
from outspan.measurement.summary import summarise


def test_a_point_a_transform_at_its_scores():
    labels = torch.zeros(200, dtype=torch.int64)
    half = torch.stack([torch.arange(200) % 2, torch.arange(200) % 2, torch.arange(200) % 4])
    several = {BASELINE: half, "rotate": 0 * half, "invert": 0 * half + 1, "blur": half}
    some = {name: Predictions(classes, labels) for name, classes in several.items()}
    found = summarise(Measured({"shared_batches": False}, range(3), ("a", "b"), some))
    axis = measure_figure(found).axes[0]
    colours = {"baseline": "black", "rotate": "better", "invert": "worse", "blur": "not told apart"}
    entries = {"baseline": found["baseline"], **found["transforms"]}
    assert {text.get_text() for text in axis.texts} == set(colours)
    for text in axis.texts:
        entry = entries[text.get_text()]
        assert text.xy == pytest.approx((100 * entry["instability"]["value"], 100 * entry["error"]["value"]))
        colour = colours[text.get_text()]
        assert to_rgba(text.get_color()) == to_rgba(COLOURS.get(colour, colour))
    assert "3 seeds, 200 test images" in axis.get_title()
    title = measure_figure(found | {"kind": "texts"}).axes[0].get_title()
    assert title == "3 seeds, 200 test texts, 95 % intervals over texts"


def test_names_of_points_in_a_crowd_lie_apart_and_inside():
    generator = torch.Generator().manual_seed(0)
    entries = {}
    for i in range(20):
        at, error = (0.01 + 0.001 * torch.rand(2, generator=generator)).tolist()
        scores = {"instability": {"value": at, "interval": [0.0, 0.03]}, "error": {"value": error, "interval": [0.0, 0.03]}}
        entries[f"transform_{i}"] = {**scores, "difference": {"verdict": "not told apart"}}
    found = {"baseline": entries["transform_0"], "transforms": entries, "seeds": [0, 1, 2], "samples": 9, "kind": "images"}
    figure = measure_figure(found)
    FigureCanvasAgg(figure).draw()
    axis = figure.axes[0]
    boxes = [Text.get_window_extent(text) for text in axis.texts]  # of the words alone, without the lines to their points
    assert len(boxes) == 21
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(axis.bbox.x0 < box.x0 and box.x1 < axis.bbox.x1 for box in boxes)


def test_an_arrow_for_every_edge():
    pair = {"error": 0.1, "cut": 0.2, "edge": True, "difference": {"interval": [-0.1, -0.01]}}
    pairs = [{**pair, "first": "a", "second": "b"}, {**pair, "first": "b", "second": "c", "difference": {"interval": [-1, 1]}}]
    pairs.append({**pair, "first": "c", "second": "a", "edge": False})
    found = {
        "transforms": {name: {"error": 0.125} for name in "abc"},
        "pairs": pairs,
        "seeds": [0, 1],
        "samples": 10,
        "kind": "texts",
    }
    axis = graph_figure(found | {"composition": "multiplicative"}).axes[0]
    arrows = [text.arrow_patch for text in axis.texts if getattr(text, "arrow_patch", None) is not None]
    assert [arrow.get_linestyle() for arrow in arrows] == ["-", "--"]
    assert [text.get_text() for text in axis.texts].count("-20 %") == 2
    assert "a\n12.50 %" in {text.get_text() for text in axis.texts}
    assert "B after A" in axis.get_title()
    assert "10 test texts" in axis.get_title()


def test_mixup_is_drawn_as_it_was_counted():
    score = {"accuracy": 0.9, "std": 0.0, "error": 0.1, "instability": 0.05}
    curve = [{**score, "share": share, "instability": share / 10, "instability_interval": [0.0, 0.2]} for share in (0.0, 1.0)]
    counts = list(range(10))
    corrected = [{"share": 0.0, "count": 45, "histogram": counts}, {"share": 1.0, "count": 0, "histogram": [0] * 10}]
    margins = {kind: {"baseline": counts, "mixup": counts[::-1]} for kind in ("right", "wrong")} | {"corrected": corrected}
    found = {"same_class": curve, "scores": {"baseline": score, "l2": score}, "margins": margins}
    axes = mixup_figure(found).axes
    assert axes[0].lines[0].get_xydata().tolist() == [[0, 0], [100, 10]]
    for axis, expected in ((axes[1], counts[::-1]), (axes[2], counts[::-1]), (axes[3], [0] * 10)):
        assert [patch.get_height() for patch in axis.patches] == [*counts, *expected]
