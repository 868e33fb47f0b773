"""A picture of Algorithm 1: candidates, their losses, and the choice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from outspan.figures.style import VERDICT_COLOURS, new_figure

_ONE_BLOCK = 4  # samples that are drawn below each other; more are in two blocks side by side


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
    width, blocks = 1 + len(rows[0].candidates), 1 if len(rows) <= _ONE_BLOCK else 2
    lines = -(-len(rows) // blocks)
    ratios = [*([1.0] * width), *([0.25, *([1.0] * width)] if blocks == 2 else [])]  # a gap between the blocks
    figure = new_figure(1.35 * sum(ratios), 1.5 * lines + 0.4)
    figure.set_layout_engine("constrained", h_pad=0.1)
    grid = figure.subplots(lines, len(ratios), squeeze=False, width_ratios=ratios)
    for axis in grid.flat:
        axis.set_axis_off()
    for number, row in enumerate(rows):
        block, line = divmod(number, lines)
        axes = grid[line][block * (width + 1) :][:width]
        _draw(axes[0], row.original, row.label)
        columns = (row.candidates, row.names, row.losses, row.kept)
        for axis, picture, name, loss, is_kept in zip(axes[1:], *columns, strict=True):
            _draw(axis, picture, f"{name}\nloss {loss:.2f}", is_kept=is_kept)
    for block in range(blocks):
        grid[0][block * (width + 1)].set_title("image", fontsize=10)
        grid[0][block * (width + 1) + 1].set_title("candidates (framed: trained on)", fontsize=10, loc="left")
    return figure


def _draw(axis: Axes, picture: np.ndarray, caption: str, *, is_kept: bool = False) -> None:
    axis.set_axis_on()
    axis.imshow(picture[..., 0] if picture.shape[-1] == 1 else picture, cmap="gray", vmin=0, vmax=255)
    axis.set(xticks=[], yticks=[])
    weight = "bold" if is_kept else "normal"
    axis.set_xlabel(caption, fontsize=7, fontweight=weight, parse_math=False)
    for spine in axis.spines.values():
        spine.set(visible=is_kept, color=VERDICT_COLOURS["better"], linewidth=4)
