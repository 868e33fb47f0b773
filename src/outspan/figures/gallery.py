"""A figure of every transform at several levels."""

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from outspan.plan import Plan
from outspan.shapes import Images, UInt8
from outspan.transforms.apply import apply
from outspan.transforms.table import TRANSFORMS, Transform

_THUMBS = 4  # pictures in a strip
_COLUMNS = 3
_EXAMPLE_PLACES = ((0.3, 0.35, 0.2, 0.2), (0.7, 0.6, 0.5, 0.8), (0.1, 0.8, 0.35, 0.5), (0.6, 0.2, 0.1, 0.4))


@dataclass(frozen=True)
class Strip:
    """A row of up to four pictures under one title."""

    title: str
    pictures: list[np.ndarray]
    captions: list[str]


def gallery(image: Images, *, side: int = 160) -> Figure:
    """Return a 16:9 figure of an image [1, C, H, W], with one strip of up to four levels per transform."""
    strips = _strips(_square(image, side))
    rows = -(-len(strips) // _COLUMNS)
    figure = Figure(figsize=(16, 9), dpi=150, facecolor="white")
    axes = figure.subplots(rows, _COLUMNS, squeeze=False, gridspec_kw={"hspace": 0.42, "wspace": 0.05})
    figure.subplots_adjust(left=0.01, right=0.99, top=0.96, bottom=0.03)
    for axis in axes.ravel():
        axis.axis("off")
    for axis, strip in zip(axes.ravel(), strips, strict=False):
        axis.imshow(_joined(strip.pictures), interpolation="lanczos")
        axis.set_title(strip.title, loc="left", fontsize=11, fontweight="bold", pad=3)
        for i, caption in enumerate(strip.captions):
            centre = side // 2 + i * (side + side // 16)
            axis.text(centre, side * 1.04, caption, ha="center", va="top", fontsize=9, color="0.35")
    return figure


def _strips(image: Images) -> list[Strip]:
    pair = torch.cat([image, image.flip(2)])  # the partner of mixing transforms is the image upside down
    singles, strips = [("the image", _pixels(image))], []
    for name, transform in TRANSFORMS.items():
        if name == "identity":
            continue
        levels = _levels(transform)
        pictures = [_pixels(image.unsqueeze(0)) for image in apply(pair, _plan(name, levels))]
        title = name.replace("_", " ")
        if len(pictures) == 1:
            singles.append((title, pictures[0]))
        else:
            unit = f", {transform.unit}" if transform.unit else ""
            strips.append(Strip(title + unit, pictures, _captions(transform, levels)))
    groups = [singles[i : i + _THUMBS] for i in range(0, len(singles), _THUMBS)]
    return [Strip("no level", [picture for _, picture in group], [title for title, _ in group]) for group in groups] + strips


def _levels(transform: Transform) -> list[float]:
    if transform.graded:
        return [-1.0, -0.5, 0.5, 1.0] if transform.signed else [0.25, 0.5, 0.75, 1.0]
    return [0.0] * (_THUMBS if transform.placed else 1)


def _plan(name: str, levels: list[float]) -> Plan:
    rows = len(levels)
    return Plan.of(
        [[name]] * rows + [[]],  # the final row is the partner
        levels=[[level] for level in levels] + [[]],
        places=[[list(_EXAMPLE_PLACES[i])] for i in range(rows)] + [[]],
        partners=[[rows]] * rows + [[]],
        source=[0] * rows + [1],
        out=list(range(rows)),
    )


def _captions(transform: Transform, levels: list[float]) -> list[str]:
    if not transform.graded:
        return [""] * len(levels)
    return [f"{transform.rest + transform.span * level:.3g}" for level in levels]


def _square(image: Images, side: int) -> UInt8[Tensor, "1 C S S"]:
    height, width = image.shape[-2:]
    edge = min(height, width)
    top, left = (height - edge) // 2, (width - edge) // 2
    cut = image[:1, :, top : top + edge, left : left + edge].float()
    resized = torch.nn.functional.interpolate(cut, size=(side, side), mode="bilinear", antialias=True)
    return resized.round().clamp(0, 255).to(torch.uint8)


def _pixels(image: Images) -> np.ndarray:
    return image[0].expand(3, -1, -1).permute(1, 2, 0).numpy()


def _joined(pictures: list[np.ndarray]) -> np.ndarray:
    side = len(pictures[0])
    gap = np.full((side, side // 16, 3), 255, dtype=np.uint8)
    empty = np.full((side, side, 3), 255, dtype=np.uint8)
    padded = [*pictures, *[empty] * (_THUMBS - len(pictures))]
    return np.concatenate([part for picture in padded for part in (picture, gap)][:-1], axis=1)
