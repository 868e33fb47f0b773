"""Figures of the theory lab."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outspan.theory import curves
from outspan.theory.curves import Curve
from outspan.theory.rank import Ranking


def theory_figures() -> Mapping[str, Figure]:
    """Return the plots of the course by file name: the gain against n, the spike, |z|^2, lam, and the candidates."""
    return {
        "theory-n": gain_against_n(curves.against_n()),
        "theory-spike": spike(curves.against_spike()),
        "theory-z": gain_against_z(curves.against_z()),
        "theory-lambda": gain_against_lam(curves.against_lam()),
        "theory-candidates": gain_against_candidates(curves.against_candidates()),
    }


def gain_against_n(lines: Sequence[Curve]) -> Figure:
    """Return the gain against n in log-log, with the slope of each line in its name."""
    figure, axis = _figure("samples n", "gain of one sample")
    for line in lines:
        axis.loglog(line.x, line.y, "o-", label=f"{line.name}, slope {curves.slope(line):.2f}")
    return _done(figure, axis)


def spike(lines: Sequence[Curve]) -> Figure:
    """Return n times the gain against n where a spike of the data lies along beta."""
    figure, axis = _figure("samples n", "n · gain of one sample")
    _lines(axis, lines)
    axis.set_xscale("log", base=2)
    axis.set_xticks(lines[0].x, [f"{x:g}" for x in lines[0].x])
    return _done(figure, axis)


def gain_against_z(lines: Sequence[Curve]) -> Figure:
    """Return the gain against |z|^2, cut where what is printed leaves the scale."""
    figure, axis = _figure("‖z‖²", "gain of one sample")
    _lines(axis, lines)
    axis.set_xscale("log")
    most = max(max(line.y) for line in lines[1:])
    axis.set_ylim(-0.2 * most, 1.2 * most)
    return _done(figure, axis)


def gain_against_lam(lines: Sequence[Curve]) -> Figure:
    """Return the gain against lam."""
    figure, axis = _figure("λ", "gain of one sample")
    _lines(axis, lines)
    axis.set_xscale("log")
    axis.set_yscale("symlog", linthresh=1e-3)
    return _done(figure, axis)


def gain_against_candidates(lines: Sequence[Curve]) -> Figure:
    """Return the gain of the candidate of highest loss against the number of candidates, with four standard errors."""
    figure, axis = _figure("candidates C", "gain of the one of highest loss")
    for line in lines:
        axis.errorbar(line.x, line.y, [4 * error for error in line.error], marker="o", label=line.name)
    axis.set_xscale("log", base=2)
    axis.set_xticks(lines[0].x, [f"{x:g}" for x in lines[0].x])
    return _done(figure, axis)


def rank_figure(ranking: Ranking) -> Figure:
    """Return the predicted gain against the measured error score, a point a transform, each predictor in its own panel."""
    figure = Figure(figsize=(12, 4.5), dpi=100, facecolor="white", layout="constrained")
    rows = [row for row in ranking.rows if row.measured is not None]
    for axis, (key, said) in zip(
        figure.subplots(1, 2), (("gain", "label kept"), ("net", "label as the model sees it")), strict=True
    ):
        values = [getattr(row, key) for row in rows]
        axis.scatter([row.measured for row in rows], values, s=14)
        for row, value in zip(rows, values, strict=True):
            axis.annotate(row.name, (row.measured or 0.0, value), fontsize=7, xytext=(3, 2), textcoords="offset points")
        axis.set_yscale("symlog", linthresh=1e-6)
        axis.margins(x=0.15)  # for the names
        axis.axhline(0, color="0.6", linewidth=0.8)
        axis.set_xlabel("measured error score, % (lower is better)")
        axis.set_ylabel(f"predicted gain, {said}")
        axis.set_title(f"Spearman {ranking.spearman[key]:+.2f}", fontsize=10)
        axis.grid(alpha=0.3)
    return figure


def _figure(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6, 3.6), dpi=100, facecolor="white", layout="constrained")
    axis = figure.subplots()
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    return figure, axis


def _lines(axis: Axes, lines: Sequence[Curve]) -> None:
    for line, style in zip(lines, ("--", "-", "-"), strict=True):  # what is printed comes first
        axis.plot(line.x, line.y, style, label=line.name)
    axis.axhline(0, color="0.6", linewidth=0.8)


def _done(figure: Figure, axis: Axes) -> Figure:
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    return figure
