"""The accuracy of several policies: over the epochs and the seconds of their runs, and at several budgets."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Curves:
    """The test accuracies of the runs of one policy while they train."""

    accuracies: Sequence[Sequence[float]]  # by seed and evaluation, in [0, 1]
    epochs: Sequence[float]  # at each evaluation
    seconds: Sequence[float]  # at each evaluation, mean over seeds


def compare_figure(curves: Mapping[str, Curves]) -> Figure:
    """Return a figure with the mean test accuracy of each policy and its range over seeds, against epochs and seconds."""
    figure = Figure(figsize=(11, 4.5), dpi=150, facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for name, runs in curves.items():
        _draw_band(left, runs.epochs, runs.accuracies, name)
        _draw_band(right, runs.seconds, runs.accuracies, name)
    left.set_xlabel("epoch")
    right.set_xlabel("seconds of training")
    left.set_ylabel("test accuracy, %")
    final = [100 * by_seed[-1] for runs in curves.values() for by_seed in runs.accuracies]
    left.set_ylim(min(final) - 4, min(100.0, max(final) + 1))
    for axis in (left, right):
        axis.grid(alpha=0.3)
    left.legend(frameon=False)
    return figure


def frontier_figure(points: Mapping[str, Sequence[tuple[float, float, float]]]) -> Figure:
    """Return a figure of the final test accuracy against the training time, one line per policy.

    Args:
        points: by policy, for each budget the seconds, and the mean and standard deviation of the accuracy, in [0, 1].
    """
    figure = Figure(figsize=(7, 4.5), dpi=150, facecolor="white", layout="constrained")
    axis = figure.subplots()
    for name, values in points.items():
        seconds, means, stds = zip(*values, strict=True)
        axis.errorbar(seconds, [100 * mean for mean in means], [100 * std for std in stds], label=name, marker="o", capsize=3)
    axis.set_xscale("log")
    axis.set_xlabel("seconds of training")
    axis.set_ylabel("test accuracy after the last step, %")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    return figure


def _draw_band(axis: Axes, x: Sequence[float], by_seed: Sequence[Sequence[float]], name: str) -> None:
    columns = [[100 * value for value in column] for column in zip(*by_seed, strict=True)]
    marker = "o" if len(columns) == 1 else ""  # a line through one point is invisible
    (line,) = axis.plot(x, [statistics.fmean(column) for column in columns], label=name, marker=marker)
    low, high = [min(column) for column in columns], [max(column) for column in columns]
    axis.fill_between(x, low, high, alpha=0.2, color=line.get_color())
