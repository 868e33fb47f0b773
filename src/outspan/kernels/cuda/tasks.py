"""From a plan to one buffer of numbers, on the host: checked, and sent as it stands.

The device decodes it (`decode`), so the host's work is a few passes over small arrays. Only what the device cannot
compute to the last bit is done here: the cosine and sine of a turn and the box of a resized crop, which take the C
library's functions. They travel in the place of their entry, which has room for both.
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

# Operation codes of tasks. Several transforms share a code. Look-up tables and resizes have separate launches.
NOTHING = -1
CODES = LOOK_UP, SCALE, MASK, INVERT, COLOR, BLEND, FILL, PASTE, AFFINE, REFLECT, SMOOTH, BLUR, RESIZE = tuple(range(13))
# How its numbers come from its magnitude and place; the first three are how a look-up table is made, too.
STRETCH, EQUALIZE, CONTRAST, FACTOR, BITS, THRESHOLD, BOX, TURN = range(8)
SHEAR_X, SHEAR_Y, MOVE_X, MOVE_Y, MIRROR_X, MIRROR_Y, CROP, AS_SENT = range(8, 16)

TABLES, STEP, RESIZES = 1, 2, 4  # the launches of a step: look-up tables before it, resizes beside it

MEANING = 8  # columns of an op: code, how, whether it is graded, nothing, and two doubles: rest and span
TASK = 10  # columns of a task: code, the slot of its row before it, and up to 8 numbers that the code needs
LARGEST_SIDE = 8191  # up to here every position fits Pillow's 16.16 fixed point, and 32 bits

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Operation:
    """How a transform is computed: its code, the source of its numbers, and the smallest images that it changes."""

    code: int
    how: int = FACTOR
    least_side: int = 1
    least_channels: int = 1


TRANSFORMS: Mapping[str, Operation] = MappingProxyType(
    {
        "identity": Operation(NOTHING),
        "auto_contrast": Operation(LOOK_UP, STRETCH),
        "equalize": Operation(LOOK_UP, EQUALIZE),
        "contrast": Operation(LOOK_UP, CONTRAST),
        "brightness": Operation(SCALE),
        "posterize": Operation(MASK, BITS),
        "solarize": Operation(INVERT, THRESHOLD),
        "invert": Operation(INVERT, THRESHOLD),
        "color": Operation(COLOR, least_channels=3),
        "mixup": Operation(BLEND),
        "cutout": Operation(FILL, BOX),
        "cutmix": Operation(PASTE, BOX),
        "rotate": Operation(AFFINE, TURN),
        "shear_x": Operation(AFFINE, SHEAR_X),
        "shear_y": Operation(AFFINE, SHEAR_Y),
        "translate_x": Operation(AFFINE, MOVE_X),
        "translate_y": Operation(AFFINE, MOVE_Y),
        "horizontal_flip": Operation(AFFINE, MIRROR_X),
        "vertical_flip": Operation(AFFINE, MIRROR_Y),
        "random_crop": Operation(REFLECT, CROP),
        "sharpness": Operation(SMOOTH, least_side=3),
        "smooth": Operation(SMOOTH, least_side=3),
        "blur": Operation(BLUR, least_side=5),
        "resized_crop": Operation(RESIZE, AS_SENT),
    }
)


@dataclass(frozen=True, slots=True)
class Packed:
    """Everything the device needs, one after the other in one buffer of 32-bit integers."""

    buffer: Tensor
    values: slice  # the normalisation's table
    fill: slice
    meanings: slice  # MEANING columns an op
    ops: slice  # these four [rows, steps], places [rows, steps, 4]
    levels: slice
    partners: slice
    places: slice
    source: slice
    out: slice
    rows: int
    launches: list[int]  # for each step those that it needs


@dataclass(frozen=True, slots=True)
class _Meanings:
    """What the names of a plan mean for images of one size, by op; op -1 reads the last entry."""

    table: NDArray[np.int32]
    launches: NDArray[np.uint8]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    mixes: NDArray[np.bool_]


@lru_cache(maxsize=256)
def _mean(names: tuple[str, ...], shape: tuple[int, ...]) -> _Meanings:
    channels, height, width = shape
    table, launches = np.zeros((len(names), MEANING), dtype=np.int32), np.zeros(len(names) + 1, dtype=np.uint8)
    for op, name in enumerate(names):
        operation, transform = TRANSFORMS[name], find(name)
        table[op, :3] = NOTHING, operation.how, transform.graded
        table[op, 4:] = np.array([transform.rest, transform.span]).view(np.int32)
        # A grey image is its own grey, a small one has no inside.
        if operation.code != NOTHING and min(height, width) >= operation.least_side and channels >= operation.least_channels:
            table[op, 0], launches[op] = operation.code, {LOOK_UP: TABLES | STEP, RESIZE: RESIZES}.get(operation.code, STEP)
    low, high = np.array([*(find(name).levels for name in names), (-np.inf, np.inf)], dtype=np.float32).T.copy()
    return _Meanings(table, launches, low, high, np.array([*(find(name).mixes for name in names), False]))


def pack(plan: Plan, shape: tuple[int, ...], fill: Fill, normalize: Normalize | None, *, pin: bool) -> Packed | None:
    """Return what a plan needs on images of this shape, or None where it is not valid or they are too large."""
    batch, channels, height, width = shape
    if max(height, width) > LARGEST_SIDE or not plan.has_valid_layout() or not _points_within(plan, batch):
        return None
    meanings = _mean(plan.names, (channels, height, width))
    if not _is_allowed(plan, meanings):
        return None
    packed = _lay_out(plan, meanings, normalize, pin)
    buffer = packed.buffer.numpy()
    if normalize is not None:
        buffer[packed.values] = normalize.table.reshape(-1).view(torch.int32).numpy()
    buffer[packed.fill][:channels] = fill.numpy()
    buffer[packed.meanings] = meanings.table.reshape(-1)
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
    """Return whether nothing would be read from beyond its end."""
    rows = len(plan.ops)
    return (
        _lies_within(plan.source.numpy(), 0, batch)
        and _lies_within(plan.out.numpy(), 0, rows)
        and _lies_within(plan.partners.numpy(), -1, rows)
        and _lies_within(plan.ops.numpy(), -1, len(plan.names))
        and _lies_within(plan.places.numpy(), 0, 1)
    )


def _is_allowed(plan: Plan, meanings: _Meanings) -> bool:
    """Return whether every level is in its transform's range and every mixing row has a partner."""
    ops, levels, partners = plan.ops.numpy(), plan.levels.numpy(), plan.partners.numpy()
    low, high, mixes = (column.take(ops, mode="wrap") for column in (meanings.low, meanings.high, meanings.mixes))
    within = (low <= levels) & (levels <= high)  # never true of NaN
    alone = mixes & (levels != 0) & (partners < 0)
    return bool((within | (ops < 0)).all()) and not alone.any()


def _turns(plan: Plan, rows: Any, steps: Any, height: int, width: int) -> NDArray[np.int32]:
    """Return cosine and sine as Pillow rounds them, as doubles."""
    rotate = find("rotate")
    degrees = rotate.rest + rotate.span * plan.levels.numpy()[rows, steps].astype(np.float64)
    angle = (-(degrees % 360.0 * (math.pi / 180.0))).tolist()
    # numpy's own cosine may differ from the C library's, hence from Pillow's, in the last bit.
    return _round_15(np.array([list(map(math.cos, angle)), list(map(math.sin, angle))]).T.copy()).view(np.int32)


def _round_15(values: Doubles) -> Doubles:
    """Return Python's round(value, 15) for |value| <= 1: the nearest multiple of 1e-15, then the double nearest to it."""
    product = values * 1e15
    # What the product lost (Dekker): halves that are none must not be rounded to even.
    high = values * 134217729.0 - (values * 134217729.0 - values)
    low = values - high
    lost = ((high * _HIGH - product) + high * _LOW + low * _HIGH) + low * _LOW
    whole = np.rint(product)
    rest = product - whole
    return (whole + ((rest == 0.5) & (lost > 0)) - ((rest == -0.5) & (lost < 0))) / 1e15


_HIGH = 1e15 * 134217729.0 - (1e15 * 134217729.0 - 1e15)
_LOW = 1e15 - _HIGH


def _boxes(plan: Plan, rows: Any, steps: Any, height: int, width: int) -> NDArray[np.int32]:
    """Return the left, right, top and bottom of what is stretched over the whole, as C floats."""
    place = plan.places.numpy()[rows, steps].astype(np.float64)
    area = 0.08 + 0.92 * place[:, 2]
    # numpy's own power may differ from the C library's in the last bit.
    ratio = 0.75 * np.fromiter(map(math.pow, repeat(16 / 9), place[:, 3].tolist()), np.float64, len(place))
    w = np.minimum(width, np.sqrt(area * width * height * ratio))
    h = np.minimum(height, np.sqrt(area * width * height / ratio))
    x0, y0 = place[:, 0] * (width - w), place[:, 1] * (height - h)
    return np.stack([x0, x0 + w, y0, y0 + h], axis=1).astype(np.float32).view(np.int32)


def _lay_out(plan: Plan, meanings: _Meanings, normalize: Normalize | None, pin: bool) -> Packed:
    rows, entries = len(plan.ops), plan.ops.numel()
    values = 0 if normalize is None else normalize.table.nbytes // 4
    slices, start = [], 0
    for length in (values, 4, meanings.table.size, entries, entries, entries, 4 * entries, rows, len(plan.out)):
        slices.append(slice(start, start + length))
        start += -(-length // 4) * 4  # 16 bytes: Triton compiles again for a pointer that is aligned otherwise
    # Pinned, so that the copy does not wait; torch keeps the memory until it is over.
    buffer = torch.empty(start, dtype=torch.int32, pin_memory=pin)
    launches = np.bitwise_or.reduce(meanings.launches.take(plan.ops.numpy(), mode="wrap"), axis=0).tolist()
    return Packed(buffer, *slices, rows=rows, launches=launches)


def _lies_within(numbers: NDArray[Any], start: int, stop: int) -> bool:
    return not numbers.size or bool(numbers.min() >= start and numbers.max() < stop)
