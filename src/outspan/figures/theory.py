"""Figures of the theory: the gain of one sample, and the predicted against the measured order of transforms."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from matplotlib.axes import Axes
from matplotlib.figure import Figure


@runtime_checkable
class Curve(Protocol):
    """A named line with, if y is estimated, its standard errors."""

    @property
    def name(self) -> str: ...
    @property
    def x(self) -> tuple[float, ...]: ...
    @property
    def y(self) -> tuple[float, ...]: ...
    @property
    def error(self) -> tuple[float, ...]: ...


def gain_against_n(lines: Sequence[Curve], slopes: Sequence[float]) -> Figure:
    """Return the gain against n on log-log axes. The legend gives the slope of each line."""
    figure, axis = _figure("samples n", "gain of one sample")
    for line, slope in zip(lines, slopes, strict=True):
        axis.loglog(line.x, line.y, "o-", label=f"{line.name}, slope {slope:.2f}")
    return _finish(figure, axis)


def spike(lines: Sequence[Curve]) -> Figure:
    """Return n times the gain against n for data with a spike along beta."""
    figure, axis = _figure("samples n", "n · gain of one sample")
    _lines(axis, lines)
    axis.set_xscale("log", base=2)
    axis.set_xticks(lines[0].x, [f"{x:g}" for x in lines[0].x])
    return _finish(figure, axis)


def gain_against_z(lines: Sequence[Curve]) -> Figure:
    """Return the gain against |z|^2. The first line, the printed formula, is cut where it leaves the scale."""
    figure, axis = _figure("‖z‖²", "gain of one sample")
    _lines(axis, lines)
    axis.set_xscale("log")
    largest = max(max(line.y) for line in lines[1:])
    axis.set_ylim(-0.2 * largest, 1.2 * largest)
    return _finish(figure, axis)


def gain_against_lam(lines: Sequence[Curve]) -> Figure:
    """Return the gain against lam."""
    figure, axis = _figure("λ", "gain of one sample")
    _lines(axis, lines)
    axis.set_xscale("log")
    axis.set_yscale("symlog", linthresh=1e-3)
    return _finish(figure, axis)


def gain_against_candidates(lines: Sequence[Curve]) -> Figure:
    """Return the gain of the candidate with the highest loss against the number of candidates, ± 4 standard errors."""
    figure, axis = _figure("candidates C", "gain of the candidate with the highest loss")
    for line in lines:
        axis.errorbar(line.x, line.y, [4 * error for error in line.error], marker="o", label=line.name)
    axis.set_xscale("log", base=2)
    axis.set_xticks(lines[0].x, [f"{x:g}" for x in lines[0].x])
    return _finish(figure, axis)


def rank_figure(
    names: Sequence[str],
    measured: Sequence[float],
    predicted: Mapping[str, Sequence[float]],
    spearman: Mapping[str, float],
) -> Figure:
    """Return the predicted gain against the measured error score: one panel per predictor, one point per transform.

    Args:
        names: the transforms.
        measured: the measured error score of each transform, in %.
        predicted: by predictor, the predicted gain of each transform.
        spearman: by predictor, its rank correlation with the measured scores.
    """
    figure = Figure(figsize=(6 * len(predicted), 4.5), dpi=100, facecolor="white", layout="constrained")
    axes = figure.subplots(1, len(predicted), squeeze=False).flat
    for axis, (predictor, gains) in zip(axes, predicted.items(), strict=True):
        axis.scatter(measured, gains, s=14)
        for name, score, gain in zip(names, measured, gains, strict=True):
            axis.annotate(name, (score, gain), fontsize=7, xytext=(3, 2), textcoords="offset points")
        axis.set_yscale("symlog", linthresh=1e-6)
        axis.margins(x=0.15)  # room for the names
        axis.axhline(0, color="0.6", linewidth=0.8)
        axis.set_xlabel("measured error score, % (lower is better)")
        axis.set_ylabel(f"predicted gain, {predictor}")
        axis.set_title(f"Spearman {spearman[predictor]:+.2f}", fontsize=10)
        axis.grid(alpha=0.3)
    return figure


def _figure(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6, 3.6), dpi=100, facecolor="white", layout="constrained")
    axis = figure.subplots()
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    return figure, axis


def _lines(axis: Axes, lines: Sequence[Curve]) -> None:
    for line, style in zip(lines, ("--", "-", "-"), strict=True):  # the printed formula is the first
        axis.plot(line.x, line.y, style, label=line.name)
    axis.axhline(0, color="0.6", linewidth=0.8)


def _finish(figure: Figure, axis: Axes) -> Figure:
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    return figure
