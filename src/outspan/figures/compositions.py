"""Which compositions of transforms were chosen over training: the paper's Figure 1."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outspan.figures.style import COLOURS, colour_of, label_lines, new_figure, use_whole_epochs

Curves = Mapping[str, Sequence[float]]  # by composition, its fraction of all choices in each epoch


def compositions_figure(fractions: Curves, highlighted: Sequence[str], marked: Sequence[str] = ()) -> Figure:
    """Return the fraction of each composition over the epochs.

    Args:
        fractions: by composition, its fraction of all choices in each epoch.
        highlighted: the compositions with a colour and a name. All others are thin and grey.
        marked: compositions that are drawn once more in a second panel with its own scale.
    """
    figure = new_figure(9, 8 if marked else 5)
    above, *below = figure.subplots(2 if marked else 1, sharex=True, squeeze=False).flat
    _draw(figure, above, fractions, highlighted)
    for name, curve in fractions.items():
        if name not in highlighted:
            above.plot(range(1, len(curve) + 1), 100 * np.array(curve), color="0.85", linewidth=0.6, zorder=1)
    for axis in below:  # its own scale, because a pair is chosen far less often than a single transform
        _draw(figure, axis, fractions, marked)
        axis.set_ylim(bottom=0)
    above.set_title("Which compositions were chosen (thick: moving average; grey: the others)", fontsize=10)
    use_whole_epochs([above, *below][-1])
    figure.supylabel("fraction of all choices, %")
    return figure


def _draw(figure: Figure, axis: Axes, fractions: Curves, names: Sequence[str]) -> None:
    """Draw each curve with a thin line, and its moving average over 5 % of the epochs with a thick one."""
    ends = {}
    for i, name in enumerate(names):
        percent = 100 * np.array(fractions[name])
        width = max(1, len(percent) // 20)
        smooth = np.convolve(percent, np.full(width, 1 / width), mode="valid")
        mark = "o" if len(percent) == 1 else None  # a line needs two epochs
        x = np.arange(len(smooth)) + (width + 1) / 2
        colour, dash = colour_of(i), "-" if i < len(COLOURS) else "--"
        axis.plot(x, smooth, linewidth=1.8, marker=mark, color=colour, linestyle=dash)
        axis.plot(range(1, len(percent) + 1), percent, linewidth=0.6, alpha=0.4, color=colour, linestyle=dash)
        ends[name] = float(x[-1]), float(smooth[-1]), colour
    axis.grid(alpha=0.3)
    label_lines(figure, axis, ends)
