"""What was chosen over training: the paper's Figure 1."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from outspan.config import unknown


def rising(shares: Mapping[str, Sequence[float]], *, most: int = 5) -> dict[str, tuple[float, float]]:
    """Return the compositions that rose and fell most, with their share of the first and of the last fifth of epochs."""
    ends = {}
    for name, curve in shares.items():
        part = -(-len(curve) // 5)
        ends[name] = (sum(curve[:part]) / part, sum(curve[-part:]) / part)
    ranked = sorted(ends, key=lambda name: ends[name][0] - ends[name][1])
    return {name: ends[name] for name in dict.fromkeys([*ranked[:most], *ranked[-most:]])}


def compositions_figure(shares: Mapping[str, Sequence[float]], marked: Sequence[str] = ()) -> Figure:
    """Return the share of each composition over the epochs: those that rose and fell most, and the marked ones, drawn."""
    marked = ["+".join(sorted(name.split("+"))) for name in marked]
    for name in marked:
        if name not in shares:
            raise unknown("composition", name, sorted(shares))
    figure = Figure(figsize=(9, 5), dpi=150, facecolor="white", layout="constrained")
    axis = figure.subplots()
    drawn = rising(shares)
    for name, curve in shares.items():
        epochs, percent = range(1, len(curve) + 1), [100 * share for share in curve]
        if name in marked or name in drawn:
            axis.plot(epochs, percent, label=name, linewidth=3 if name in marked else 1.2, zorder=3)
        else:
            axis.plot(epochs, percent, color="0.85", linewidth=0.6)
    axis.set_xlabel("epoch")
    axis.set_ylabel("share of the chosen, %")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
