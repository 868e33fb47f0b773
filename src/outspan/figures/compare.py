"""The accuracy of several policies over the epochs."""

import statistics
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure


def compare_figure(curves: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """Return a figure with one line per policy: the mean test accuracy over the epochs, with a band over seeds.

    Args:
        curves: by policy and seed, the test accuracy after each epoch, in [0, 1].
    """
    figure = Figure(figsize=(8, 4.5), dpi=150, facecolor="white", layout="constrained")
    axis = figure.subplots()
    for name, by_seed in curves.items():
        columns = [[100 * value for value in column] for column in zip(*by_seed, strict=True)]
        epochs = range(1, len(columns) + 1)
        (line,) = axis.plot(epochs, [statistics.fmean(column) for column in columns], label=name)
        low, high = [min(column) for column in columns], [max(column) for column in columns]
        axis.fill_between(epochs, low, high, alpha=0.2, color=line.get_color())
    axis.set_xlabel("epoch")
    axis.set_ylabel("test accuracy, %")
    final = [100 * curve[-1] for by_seed in curves.values() for curve in by_seed]
    axis.set_ylim(min(final) - 4, min(100.0, max(final) + 1))
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    return figure
