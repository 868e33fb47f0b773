"""A picture of Algorithm 1: candidates, their losses, and the choice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outspan.figures.style import VERDICT_COLOURS, new_figure


@dataclass(frozen=True)
class Row:
    """A sample, its candidates, their losses, and which of them are kept."""

    label: str
    original: np.ndarray  # uint8 [H, W, C]
    candidates: Sequence[np.ndarray]
    names: Sequence[str]
    losses: Sequence[float]
    kept: Sequence[bool]


def candidates_figure(rows: Sequence[Row]) -> Figure:
    """Return a grid: each row is a sample and its candidates. Those that are kept have a frame."""
    width = 1 + len(rows[0].candidates)
    figure = new_figure(1.15 * width, 1.6 * len(rows) + 0.3)  # narrow, so that the letters can be read where it is shown small
    grid = figure.subplots(len(rows), width, squeeze=False)
    for axes, row in zip(grid, rows, strict=True):
        _draw(axes[0], row.original, row.label)
        columns = (row.candidates, row.names, row.losses, row.kept)
        for axis, picture, name, loss, is_kept in zip(axes[1:], *columns, strict=True):
            _draw(axis, picture, f"{name.replace(' + ', ' +' + chr(10))}\nloss {loss:.2f}", is_kept=is_kept)
    grid[0][0].set_title("image", fontsize=11)
    title = grid[0][1].set_title("candidates (framed: trained on)", fontsize=11, loc="left")
    title.set_in_layout(False)  # it is above several columns
    return figure


def _draw(axis: Axes, picture: np.ndarray, caption: str, *, is_kept: bool = False) -> None:
    axis.imshow(picture[..., 0] if picture.shape[-1] == 1 else picture, cmap="gray", vmin=0, vmax=255)
    axis.set(xticks=[], yticks=[])
    weight = "bold" if is_kept else "normal"
    axis.set_xlabel(caption, fontsize=10, fontweight=weight, parse_math=False)
    for spine in axis.spines.values():
        spine.set(visible=is_kept, color=VERDICT_COLOURS["better"], linewidth=4)
