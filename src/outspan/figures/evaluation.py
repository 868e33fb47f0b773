"""Figures of an evaluation: calibration, and which classes are confused."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from outspan.figures.style import colour_of, new_figure

_MAX_NUMBERS = 20  # classes whose counts are written into the confusion matrix
_MAX_NAMES = 60  # classes whose names are written beside it


def reliability_figure(counts: Sequence[int], confidences: Sequence[float], accuracies: Sequence[float], ece: float) -> Figure:
    """Return the accuracy against the confidence over bins of equal width, and how many samples each bin has.

    The bins cover [0, 1]. The confidence and the accuracy of an empty bin are NaN.
    """
    figure = new_figure(5, 6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    width = 100 / len(counts)
    centres = [width * (i + 0.5) for i in range(len(counts))]
    upper.plot([0, 100], [0, 100], color="0.6", linestyle="--", label="perfect calibration")
    upper.bar(centres, [100 * value for value in accuracies], width, edgecolor="white", alpha=0.5, color=colour_of(0))
    x, y = ([100 * value for value in values] for values in (confidences, accuracies))
    upper.plot(x, y, "o", markersize=4, color=colour_of(0), label="mean confidence and accuracy")
    upper.set(ylabel="accuracy, %", ylim=(0, 100), title=f"calibration error (ECE) {100 * ece:.2f} %")
    upper.legend(frameon=False, loc="upper left", fontsize=8)
    lower.bar(centres, counts, width, edgecolor="white", color="0.5")
    lower.set(xlabel="confidence: probability of the predicted class, %", ylabel="samples", xlim=(0, 100))
    return figure


def confusion_figure(counts: Sequence[Sequence[int]], names: Sequence[str]) -> Figure:
    """Return the confusion matrix. The colour is the fraction of a true class that is predicted as each class."""
    matrix = np.asarray(counts, dtype=np.float64)
    fractions = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    side = min(5 + 0.25 * len(names), 14)
    figure = new_figure(side + 1, side)
    axis = figure.subplots()
    image = axis.imshow(100 * fractions, cmap="Blues", vmin=0, vmax=100)
    figure.colorbar(image, ax=axis, shrink=0.8, label="% of the true class")
    if len(names) <= _MAX_NAMES:  # names are not trusted: a $ would begin a formula
        axis.set_xticks(range(len(names)), names, rotation=90, parse_math=False)
        axis.set_yticks(range(len(names)), names, parse_math=False)
    if len(names) <= _MAX_NUMBERS:
        for (row, column), count in np.ndenumerate(matrix):
            colour = "white" if fractions[row, column] > 0.5 else "black"
            axis.text(column, row, f"{count:.0f}", ha="center", va="center", color=colour, fontsize=8)
    axis.set(xlabel="predicted class", ylabel="true class")
    return figure
