"""The figures of an evaluation show its numbers."""

import io
from math import nan

import numpy as np
import pytest

from outspan.figures.evaluation import confusion_figure, reliability_figure


def test_the_reliability_figure_shows_accuracies_confidences_and_counts():
    figure = reliability_figure([0, 4, 6], [nan, 0.5, 0.9], [nan, 0.25, 1.0], 0.16)
    upper, lower = figure.axes
    heights = [bar.get_height() for bar in upper.patches]
    assert heights == pytest.approx([nan, 25, 100], nan_ok=True)
    assert [bar.get_height() for bar in lower.patches] == [0, 4, 6]
    assert [bar.get_x() for bar in lower.patches] == pytest.approx([0, 100 / 3, 200 / 3])
    diagonal, points = upper.get_lines()
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata()) == [0, 100]
    assert list(points.get_xdata()) == pytest.approx([nan, 50, 90], nan_ok=True)
    assert list(points.get_ydata()) == pytest.approx([nan, 25, 100], nan_ok=True)
    assert upper.get_title() == "calibration error (ECE) 16.00 %"


def test_the_confusion_figure_shows_fractions_of_rows_and_counts():
    figure = confusion_figure([[3, 1], [0, 0]], ["a", "$b^"])
    axis = figure.axes[0]
    assert np.array_equal(axis.get_images()[0].get_array(), [[75, 25], [0, 0]])
    assert [text.get_text() for text in axis.texts] == ["3", "1", "0", "0"]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["a", "$b^"]
    figure.savefig(io.BytesIO())  # a name is not read as a formula


@pytest.mark.parametrize(("classes", "numbers", "names"), [(20, 400, 20), (21, 0, 21), (61, 0, 0)])
def test_many_classes_are_shown_without_numbers_and_names(classes, numbers, names):
    axis = confusion_figure(np.eye(classes, dtype=int).tolist(), [f"class {i}" for i in range(classes)]).axes[0]
    assert len(axis.texts) == numbers
    assert sum(label.get_text().startswith("class") for label in axis.get_xticklabels()) == names
