"""The figure of a measure."""

import pytest
import torch
from matplotlib.colors import to_rgba

from outspan.measure.scores import Predictions
from outspan.measure.study import BASELINE, Measured
from outspan.measure.summary import summarise
from outspan.report.measure import COLOURS, measure_figure


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
