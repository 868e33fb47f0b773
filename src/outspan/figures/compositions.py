"""What was chosen over training: the paper's Figure 1."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from outspan.transforms.table import find


def fifths(shares: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Return each composition's mean share of each fifth of the epochs; of fewer than five epochs, of each epoch."""
    return {name: [float(part.mean()) for part in np.array_split(curve, min(5, len(curve)))] for name, curve in shares.items()}


def rising(shares: Mapping[str, Sequence[float]], *, most: int = 5) -> list[str]:
    """Return the compositions that rose most and those that fell most, from the first fifth of the epochs to the last."""
    parts = fifths(shares)
    ranked = sorted(parts, key=lambda name: parts[name][0] - parts[name][-1])
    return list(dict.fromkeys([*ranked[:most], *ranked[-most:]]))


def with_marked(shares: Mapping[str, Sequence[float]], marked: Sequence[str]) -> tuple[dict[str, Sequence[float]], list[str]]:
    """Return the shares, with 0 for marked ones that were never chosen, and the marked as they are called there.

    Both orders of a pair are one; a transform that there is not is refused.
    """
    names = list(dict.fromkeys("+".join(sorted(part.strip() for part in name.split("+"))) for name in marked))
    for part in (part for name in names if name not in shares for part in name.split("+")):
        find(part)
    epochs = max(map(len, shares.values()))
    return dict(shares) | {name: [0.0] * epochs for name in names if name not in shares}, names


def compositions_figure(shares: Mapping[str, Sequence[float]], marked: Sequence[str] = ()) -> Figure:
    """Return the share of each composition over the epochs: those that rose and fell most, and below, the marked ones."""
    figure = Figure(figsize=(9, 8 if marked else 5), dpi=150, facecolor="white", layout="constrained")
    above, *below = figure.subplots(2 if marked else 1, sharex=True, squeeze=False).flat
    strong = rising(shares)
    _draw(above, shares, strong)
    for name, curve in shares.items():
        if name not in strong:
            above.plot(range(1, len(curve) + 1), 100 * np.array(curve), color="0.85", linewidth=0.6, zorder=1)
    for axis in below:  # on a scale of their own: a pair is chosen far less often than the transforms alone
        _draw(axis, shares, marked)
        axis.set_ylim(bottom=0)
    figure.supxlabel("epoch")
    figure.supylabel("share of the chosen, %")
    return figure


def _draw(axis: Axes, shares: Mapping[str, Sequence[float]], names: Sequence[str]) -> None:
    """Draw each curve, faint, and its mean over a twentieth of the epochs, strong."""
    for name in names:
        percent = 100 * np.array(shares[name])
        width = max(1, len(percent) // 20)
        smooth = np.convolve(percent, np.full(width, 1 / width), mode="valid")
        mark = "o" if len(percent) == 1 else None  # one epoch is no line
        (line,) = axis.plot(np.arange(len(smooth)) + (width + 1) / 2, smooth, linewidth=1.8, label=name, marker=mark)
        axis.plot(range(1, len(percent) + 1), percent, color=line.get_color(), linewidth=0.6, alpha=0.4)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
