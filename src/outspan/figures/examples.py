"""A figure of images before and after augmentation."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from outspan.figures.style import new_figure
from outspan.shapes import UInt8

Pair = tuple[UInt8[np.ndarray, "H W 3"], UInt8[np.ndarray, "H W 3"], str]  # before, after, and a caption
_COLUMNS = 4


def examples_figure(pairs: Sequence[Pair]) -> Figure:
    """Return a figure with every image beside its augmented version, and a caption above them."""
    rows = -(-len(pairs) // _COLUMNS)
    figure = new_figure(2.4 * _COLUMNS, 1.7 * rows)
    axes = figure.subplots(rows, _COLUMNS, squeeze=False)
    for axis in axes.ravel():
        axis.axis("off")
    for axis, (original, augmented, caption) in zip(axes.ravel(), pairs, strict=False):
        gap = np.full((len(original), max(1, original.shape[1] // 16), 3), 255, dtype=np.uint8)
        axis.imshow(np.concatenate([original, gap, augmented], axis=1), interpolation="nearest")
        axis.set_title(caption.replace(", ", "\n"), fontsize=7)
    return figure


def rendered(figure: Figure) -> UInt8[np.ndarray, "H W 3"]:
    """Return the pixels of a figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()
