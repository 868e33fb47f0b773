"""Figures of the theory."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outspan.figures.names import label_points
from outspan.figures.style import COLOURS, colour_of


@runtime_checkable
class Curve(Protocol):
    """A line of a plot, as `outspan.theory.Curve`."""

    @property
    def name(self) -> str: ...
    @property
    def x(self) -> Sequence[float]: ...
    @property
    def y(self) -> Sequence[float]: ...
    @property
    def error(self) -> Sequence[float]: ...
    def slope(self) -> float: ...


@runtime_checkable
class Ranked(Protocol):
    """The prediction for one transform, as in `outspan.theory.Ranking`."""

    @property
    def name(self) -> str: ...
    @property
    def measured(self) -> float | None: ...


@runtime_checkable
class Ranking(Protocol):
    """Transforms by predicted gain, as `outspan.theory.Ranking`."""

    @property
    def rows(self) -> Sequence[Ranked]: ...
    @property
    def spearman(self) -> Mapping[str, float]: ...


def theory_figures(curves: Mapping[str, Sequence[Curve]]) -> Mapping[str, Figure]:
    """Return the plots of `outspan.theory.theory_curves()` by name."""
    return {
        "theory-n": gain_against_n(curves["theory-n"]),
        "theory-spike": gain_with_spike(curves["theory-spike"]),
        "theory-z": gain_against_z(curves["theory-z"]),
        "theory-lambda": gain_against_lam(curves["theory-lambda"]),
        "theory-candidates": gain_against_candidates(curves["theory-candidates"]),
    }


def gain_against_n(lines: Sequence[Curve]) -> Figure:
    """Return a log-log plot of the gain against n, with the slope of each line in the legend."""
    figure, axis = _figure("samples n", "gain of one sample")
    for line in lines:
        axis.loglog(line.x, line.y, "o-", label=f"{line.name}, slope {line.slope():.2f}")
    return _finish(figure, axis)


def gain_with_spike(lines: Sequence[Curve]) -> Figure:
    """Return a plot of n times the gain against n, for data whose samples share an entry along beta."""
    figure, axis = _figure("samples n", "n · gain of one sample")
    _draw_lines(axis, lines)
    axis.set_xscale("log", base=2)
    axis.set_xticks(lines[0].x, [f"{x:g}" for x in lines[0].x])
    return _finish(figure, axis)


def gain_against_z(lines: Sequence[Curve]) -> Figure:
    """Return a plot of the gain against |z|^2. The printed curve is cut where it leaves the range of the exact ones."""
    figure, axis = _figure("‖z‖²", "gain of one sample")
    _draw_lines(axis, lines)
    axis.set_xscale("log")
    largest = max(max(line.y) for line in lines[1:])
    axis.set_ylim(-0.2 * largest, 1.2 * largest)
    return _finish(figure, axis)


def gain_against_lam(lines: Sequence[Curve]) -> Figure:
    """Return a plot of the gain against lam."""
    figure, axis = _figure("λ", "gain of one sample")
    _draw_lines(axis, lines)
    axis.set_xscale("log")
    axis.set_yscale("symlog", linthresh=1e-3)
    return _finish(figure, axis)


def gain_against_candidates(lines: Sequence[Curve]) -> Figure:
    """Return a plot of the gain of the candidate with the highest loss against the number of candidates.

    The error bars are four standard errors.
    """
    figure, axis = _figure("candidates C", "gain of the one of highest loss")
    for line in lines:
        axis.errorbar(line.x, line.y, [4 * error for error in line.error], marker="o", label=line.name)
    axis.set_xscale("log", base=2)
    axis.set_xticks(lines[0].x, [f"{x:g}" for x in lines[0].x])
    return _finish(figure, axis)


def rank_figure(ranking: Ranking) -> Figure:
    """Return the predicted gain against the measured error score: one point per transform, one panel per predictor."""
    figure = Figure(figsize=(12, 5.5), dpi=100, facecolor="white", layout="constrained")
    rows = [row for row in ranking.rows if row.measured is not None]
    panels = (("gain", "label kept"), ("net", "label as the model sees it"))
    for axis, (key, label) in zip(figure.subplots(1, 2), panels, strict=True):
        values = [getattr(row, key) for row in rows]
        axis.scatter([row.measured for row in rows], values, s=14, color=colour_of(0))
        axis.set_yscale("symlog", linthresh=1e-6)
        axis.margins(x=0.15)  # space for the names
        axis.axhline(0, color="0.6", linewidth=0.8)
        axis.set_xlabel("measured error score, % (lower is better)")
        axis.set_ylabel(f"predicted gain, {label}")
        axis.set_title(f"Spearman {ranking.spearman[key]:+.2f}", fontsize=10)
        axis.grid(alpha=0.3)
    for axis, (key, _) in zip(figure.axes, panels, strict=True):  # after the layout of both
        label_points(figure, axis, {row.name: (row.measured or 0.0, getattr(row, key), "0.2") for row in rows})
    return figure


def _figure(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6, 3.6), dpi=100, facecolor="white", layout="constrained")
    axis = figure.subplots()
    axis.set_prop_cycle(color=COLOURS)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    return figure, axis


def _draw_lines(axis: Axes, lines: Sequence[Curve]) -> None:
    for line, style in zip(lines, ("--", "-", "-"), strict=True):  # the printed curve is the first
        axis.plot(line.x, line.y, style, label=line.name)
    axis.axhline(0, color="0.6", linewidth=0.8)


def _finish(figure: Figure, axis: Axes) -> Figure:
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    return figure
