"""Check a plan on the host and pack it into one buffer of numbers.

The device decodes the buffer (`decode`), so the host only makes a few passes over small arrays. The host computes only what
the device cannot compute with the same bits: the cosine and sine of a rotation and the box of a resized crop, which use
functions of the C library. They are sent in the `places` of their entry.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outspan.plan import Plan
from outspan.shapes import Fill
from outspan.transforms.normalize import Normalize
from outspan.transforms.table import find

# What a task does to its pixels; several transforms share an action. Tables and resizes have their own launches.
NOTHING = -1
ACTIONS = LOOK_UP, SCALE, MASK, INVERT, COLOR, BLEND, FILL, PASTE, AFFINE, REFLECT, SMOOTH, BLUR, RESIZE = tuple(range(13))
# The formula for its numbers from its magnitude and place; the first three are also the formulas of look-up tables.
STRETCH, EQUALIZE, CONTRAST, FACTOR, BITS, THRESHOLD, BOX, TURN = range(8)
SHEAR_X, SHEAR_Y, MOVE_X, MOVE_Y, MIRROR_X, MIRROR_Y, CROP, AS_SENT = range(8, 16)

TABLES, STEP, RESIZES = 1, 2, 4  # the launches of a step, as flags

DEFINITION = 8  # columns of an op: action, formula, whether it is graded, unused, and two doubles: rest and span
TASK = 10  # columns of a task: action, the slot of its row before the step, and up to 8 numbers for the action
LARGEST_SIDE = 8191  # up to this size every position fits Pillow's 16.16 fixed point in 32 bits

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Action:
    """How a transform is executed: its action, the formula for its numbers, and the smallest images that it changes."""

    action: int
    formula: int = FACTOR
    least_side: int = 1
    least_channels: int = 1


TRANSFORMS: Mapping[str, Action] = MappingProxyType(
    {
        "identity": Action(NOTHING),
        "auto_contrast": Action(LOOK_UP, STRETCH),
        "equalize": Action(LOOK_UP, EQUALIZE),
        "contrast": Action(LOOK_UP, CONTRAST),
        "brightness": Action(SCALE),
        "posterize": Action(MASK, BITS),
        "solarize": Action(INVERT, THRESHOLD),
        "invert": Action(INVERT, THRESHOLD),
        "color": Action(COLOR, least_channels=3),
        "mixup": Action(BLEND),
        "cutout": Action(FILL, BOX),
        "cutmix": Action(PASTE, BOX),
        "rotate": Action(AFFINE, TURN),
        "shear_x": Action(AFFINE, SHEAR_X),
        "shear_y": Action(AFFINE, SHEAR_Y),
        "translate_x": Action(AFFINE, MOVE_X),
        "translate_y": Action(AFFINE, MOVE_Y),
        "horizontal_flip": Action(AFFINE, MIRROR_X),
        "vertical_flip": Action(AFFINE, MIRROR_Y),
        "random_crop": Action(REFLECT, CROP),
        "sharpness": Action(SMOOTH, least_side=3),
        "smooth": Action(SMOOTH, least_side=3),
        "blur": Action(BLUR, least_side=5),
        "resized_crop": Action(RESIZE, AS_SENT),
    }
)


@dataclass(frozen=True, slots=True)
class Packed:
    """All data for the device in one buffer of 32-bit integers, and the slices of its parts."""

    buffer: Tensor
    values: slice  # the table of the normalization
    fill: slice
    definitions: slice  # DEFINITION columns per op
    ops: slice  # ops, levels, partners: [rows, steps]; places: [rows, steps, 4]
    levels: slice
    partners: slice
    places: slice
    source: slice
    out: slice
    rows: int
    launches: list[int]  # of each step, as flags


@dataclass(frozen=True, slots=True)
class _Definitions:
    """The transforms of a plan for images of one size, by op; op -1 reads the last entry."""

    table: NDArray[np.int32]
    launches: NDArray[np.uint8]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    mixes: NDArray[np.bool_]


@lru_cache(maxsize=256)
def _define(names: tuple[str, ...], shape: tuple[int, ...]) -> _Definitions:
    channels, height, width = shape
    table, launches = np.zeros((len(names), DEFINITION), dtype=np.int32), np.zeros(len(names) + 1, dtype=np.uint8)
    for op, name in enumerate(names):
        entry, transform = TRANSFORMS[name], find(name)
        table[op, :3] = NOTHING, entry.formula, transform.graded
        table[op, 4:] = np.array([transform.rest, transform.span]).view(np.int32)
        # `color` does not change a gray image, and filters do not change an image smaller than their kernel.
        if entry.action != NOTHING and min(height, width) >= entry.least_side and channels >= entry.least_channels:
            table[op, 0], launches[op] = entry.action, {LOOK_UP: TABLES | STEP, RESIZE: RESIZES}.get(entry.action, STEP)
    low, high = np.array([*(find(name).levels for name in names), (-np.inf, np.inf)], dtype=np.float32).T.copy()
    return _Definitions(table, launches, low, high, np.array([*(find(name).mixes for name in names), False]))


def pack(plan: Plan, shape: tuple[int, ...], fill: Fill, normalize: Normalize | None, *, pin: bool) -> Packed | None:
    """Return the packed plan for images of this shape, or None if it is not valid or the images are too large."""
    batch, channels, height, width = shape
    if max(height, width) > LARGEST_SIDE or not plan.has_valid_layout() or not _points_within(plan, batch):
        return None
    definitions = _define(plan.names, (channels, height, width))
    if not _is_allowed(plan, definitions):
        return None
    packed = _lay_out(plan, definitions, normalize, pin)
    buffer = packed.buffer.numpy()
    if normalize is not None:
        buffer[packed.values] = normalize.table.reshape(-1).view(torch.int32).numpy()
    buffer[packed.fill][:channels] = fill.numpy()
    buffer[packed.definitions] = definitions.table.reshape(-1)
    buffer[packed.ops] = plan.ops.numpy().reshape(-1)
    buffer[packed.levels] = plan.levels.numpy().reshape(-1).view(np.int32)
    buffer[packed.partners] = plan.partners.numpy().reshape(-1)
    buffer[packed.places] = plan.places.numpy().reshape(-1).view(np.int32)
    buffer[packed.source] = plan.source.numpy()
    buffer[packed.out] = plan.out.numpy()
    places = buffer[packed.places].reshape(*plan.ops.shape, 4)
    for name, compute in (("rotate", _turns), ("resized_crop", _boxes)):
        if name in plan.names:
            rows, steps = np.nonzero(plan.ops.numpy() == plan.names.index(name))
            places[rows, steps] = compute(plan, rows, steps, height, width)
    return packed


def _points_within(plan: Plan, batch: int) -> bool:
    """Return whether all indices of a plan are in range."""
    rows = len(plan.ops)
    return (
        _lies_within(plan.source.numpy(), 0, batch)
        and _lies_within(plan.out.numpy(), 0, rows)
        and _lies_within(plan.partners.numpy(), -1, rows)
        and _lies_within(plan.ops.numpy(), -1, len(plan.names))
        and _lies_within(plan.places.numpy(), 0, 1)
    )


def _is_allowed(plan: Plan, definitions: _Definitions) -> bool:
    """Return whether every level is in its transform's range and every mixing row has a partner."""
    ops, levels, partners = plan.ops.numpy(), plan.levels.numpy(), plan.partners.numpy()
    low, high, mixes = (column.take(ops, mode="wrap") for column in (definitions.low, definitions.high, definitions.mixes))
    within = (low <= levels) & (levels <= high)  # false for NaN
    alone = mixes & (levels != 0) & (partners < 0)
    return bool((within | (ops < 0)).all()) and not alone.any()


def _turns(plan: Plan, rows: Any, steps: Any, height: int, width: int) -> NDArray[np.int32]:
    """Return cosine and sine in doubles, rounded as in Pillow."""
    rotate = find("rotate")
    degrees = rotate.rest + rotate.span * plan.levels.numpy()[rows, steps].astype(np.float64)
    angle = (-(degrees % 360.0 * (math.pi / 180.0))).tolist()
    # numpy's cosine may differ from the C library's, which Pillow uses, in the last bit.
    return _round_15(np.array([list(map(math.cos, angle)), list(map(math.sin, angle))]).T.copy()).view(np.int32)


def _round_15(values: Doubles) -> Doubles:
    """Return Python's round(value, 15) for |value| <= 1: the nearest multiple of 1e-15, then the double nearest to it."""
    product = values * 1e15
    # The rounding error of the product (Dekker): an inexact half must not be rounded to even.
    high = values * 134217729.0 - (values * 134217729.0 - values)
    low = values - high
    error = ((high * _HIGH - product) + high * _LOW + low * _HIGH) + low * _LOW
    whole = np.rint(product)
    rest = product - whole
    return (whole + ((rest == 0.5) & (error > 0)) - ((rest == -0.5) & (error < 0))) / 1e15


_HIGH = 1e15 * 134217729.0 - (1e15 * 134217729.0 - 1e15)
_LOW = 1e15 - _HIGH


def _boxes(plan: Plan, rows: Any, steps: Any, height: int, width: int) -> NDArray[np.int32]:
    """Return left, right, top and bottom of the boxes to resize, as C floats."""
    place = plan.places.numpy()[rows, steps].astype(np.float64)
    area = 0.08 + 0.92 * place[:, 2]
    # numpy's power may differ from the C library's in the last bit.
    ratio = 0.75 * np.fromiter(map(math.pow, repeat(16 / 9), place[:, 3].tolist()), np.float64, len(place))
    w = np.minimum(width, np.sqrt(area * width * height * ratio))
    h = np.minimum(height, np.sqrt(area * width * height / ratio))
    x0, y0 = place[:, 0] * (width - w), place[:, 1] * (height - h)
    return np.stack([x0, x0 + w, y0, y0 + h], axis=1).astype(np.float32).view(np.int32)


def _lay_out(plan: Plan, definitions: _Definitions, normalize: Normalize | None, pin: bool) -> Packed:
    rows, entries = len(plan.ops), plan.ops.numel()
    values = 0 if normalize is None else normalize.table.nbytes // 4
    slices, start = [], 0
    for length in (values, 4, definitions.table.size, entries, entries, entries, 4 * entries, rows, len(plan.out)):
        slices.append(slice(start, start + length))
        start += -(-length // 4) * 4  # 16 bytes: Triton recompiles for pointers of another alignment
    # Pinned memory, so that the copy does not block; torch keeps the memory until the copy is done.
    buffer = torch.empty(start, dtype=torch.int32, pin_memory=pin)
    launches = np.bitwise_or.reduce(definitions.launches.take(plan.ops.numpy(), mode="wrap"), axis=0).tolist()
    return Packed(buffer, *slices, rows=rows, launches=launches)


def _lies_within(numbers: NDArray[Any], start: int, stop: int) -> bool:
    return not numbers.size or bool(numbers.min() >= start and numbers.max() < stop)
