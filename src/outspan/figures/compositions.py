"""Which compositions of transforms were chosen over training: the paper's Figure 1."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

Curves = Mapping[str, Sequence[float]]  # by composition, its fraction of all choices in each epoch


def compositions_figure(fractions: Curves, highlighted: Sequence[str], marked: Sequence[str] = ()) -> Figure:
    """Return the fraction of each composition over the epochs.

    Args:
        fractions: by composition, its fraction of all choices in each epoch.
        highlighted: the compositions with a colour and a name. All others are thin and grey.
        marked: compositions that are drawn once more in a second panel with its own scale.
    """
    figure = Figure(figsize=(9, 8 if marked else 5), dpi=150, facecolor="white", layout="constrained")
    above, *below = figure.subplots(2 if marked else 1, sharex=True, squeeze=False).flat
    _draw(above, fractions, highlighted)
    for name, curve in fractions.items():
        if name not in highlighted:
            above.plot(range(1, len(curve) + 1), 100 * np.array(curve), color="0.85", linewidth=0.6, zorder=1)
    for axis in below:  # its own scale, because a pair is chosen far less often than a single transform
        _draw(axis, fractions, marked)
        axis.set_ylim(bottom=0)
    figure.supxlabel("epoch")
    figure.supylabel("fraction of all choices, %")
    return figure


def _draw(axis: Axes, fractions: Curves, names: Sequence[str]) -> None:
    """Draw each curve with a thin line, and its moving average over 5 % of the epochs with a thick one."""
    for name in names:
        percent = 100 * np.array(fractions[name])
        width = max(1, len(percent) // 20)
        smooth = np.convolve(percent, np.full(width, 1 / width), mode="valid")
        mark = "o" if len(percent) == 1 else None  # a line needs two epochs
        (line,) = axis.plot(np.arange(len(smooth)) + (width + 1) / 2, smooth, linewidth=1.8, label=name, marker=mark)
        axis.plot(range(1, len(percent) + 1), percent, color=line.get_color(), linewidth=0.6, alpha=0.4)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
