"""The accuracy of several policies: over the epochs and the seconds of their runs, and at several budgets."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from outspan.figures.style import colour_of, label_lines, new_figure, scale_accuracy, use_whole_epochs

_DECADE = 8.0  # of the longest to the shortest time, from which the ticks are 1, 2, 5, 10, …


@dataclass(frozen=True)
class Curves:
    """The test accuracies of the runs of one policy while they train."""

    accuracies: Sequence[Sequence[float]]  # by seed and evaluation, in [0, 1]
    epochs: Sequence[float]  # at each evaluation
    seconds: Sequence[float]  # at each evaluation, mean over seeds


def compare_figure(curves: Mapping[str, Curves], title: str = "") -> Figure:
    """Return a figure with the mean test accuracy of each policy and its range over seeds, against epochs and seconds.

    The whole curves are shown: if they reach from low to high accuracies, the scale is that of the logarithm of the error.
    """
    figure = new_figure(11, 4.5)
    left, right = figure.subplots(1, 2, sharey=True)
    scale_accuracy(left, [value for runs in curves.values() for by_seed in runs.accuracies for value in by_seed])
    for axis, key in ((left, "epochs"), (right, "seconds")):
        ends = {}
        for i, (name, runs) in enumerate(curves.items()):
            ends[name] = _draw_band(axis, getattr(runs, key), runs.accuracies, colour_of(i))
        axis.grid(alpha=0.3)
        label_lines(figure, axis, ends)
    use_whole_epochs(left)
    right.set_xlabel("seconds of training")
    figure.suptitle(title, fontsize=11, parse_math=False)
    return figure


def frontier_figure(points: Mapping[str, Sequence[tuple[float, float, float]]], title: str = "") -> Figure:
    """Return a figure of the final test accuracy against the training time, one line per policy.

    Args:
        points: by policy, for each budget the seconds, and the mean and standard deviation of the accuracy, in [0, 1].
        title: above the figure.
    """
    return frontiers_figure({title: points})


def frontiers_figure(panels: Mapping[str, Mapping[str, Sequence[tuple[float, float, float]]]]) -> Figure:
    """Return frontiers side by side, each below its title. The points of each are those of `frontier_figure`."""
    figure = new_figure(7 if len(panels) == 1 else 4.6 * len(panels), 4.5)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, points) in zip(axes, panels.items(), strict=True):
        axis.set_title(title, fontsize=10, parse_math=False)
        _draw_frontier(figure, axis, points)
    axes[0].set_ylabel("test accuracy after the last step, %")
    return figure


def _draw_frontier(figure: Figure, axis: Axes, points: Mapping[str, Sequence[tuple[float, float, float]]]) -> None:
    ends = {}
    for i, (name, values) in enumerate(points.items()):
        seconds, means, stds = zip(*values, strict=True)
        percents, colour = [100 * mean for mean in means], colour_of(i)
        axis.errorbar(seconds, percents, [100 * std for std in stds], color=colour, marker="o", capsize=3)
        ends[name] = seconds[-1], percents[-1], colour
    axis.set_xscale("log")
    every = [value for values in points.values() for value, _, _ in values]
    is_wide = max(every) > _DECADE * min(every)
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if is_wide else MaxNLocator(5))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_xlabel("seconds of training")
    axis.grid(alpha=0.3)
    label_lines(figure, axis, ends)


def _draw_band(axis: Axes, x: Sequence[float], by_seed: Sequence[Sequence[float]], colour: str) -> tuple[float, float, str]:
    """Draw the mean and the range of some curves. Return the last point of the mean, and its colour."""
    columns = [[100 * value for value in column] for column in zip(*by_seed, strict=True)]
    means = [statistics.fmean(column) for column in columns]
    marker = "o" if len(columns) == 1 else ""  # a line through one point is invisible
    axis.plot(x, means, marker=marker, color=colour)
    low, high = [min(column) for column in columns], [max(column) for column in columns]
    axis.fill_between(x, low, high, alpha=0.2, color=colour)
    return x[-1], means[-1], colour
