"""From a plan to a table of tasks, on the host: every magnitude and every decision, in numpy and double precision.

A task is one step of one row that changes something. The tasks of one transform lie side by side, so that its numbers
are computed at once; `order` lists them step by step. All of it goes to the device in one copy.
"""

import math
from collections.abc import Callable, Mapping
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
from outspan.transforms.table import Transform, find

# What a task does to its pixels; several transforms share a kind. Tables come first and resizes last: they have launches
# of their own.
KINDS = LOOK_UP, SCALE, MASK, INVERT, COLOR, BLEND, FILL, PASTE, AFFINE, REFLECT, SMOOTH, BLUR, RESIZE = tuple(range(13))
STRETCH, EQUALIZE, CONTRAST = range(3)  # how a look-up table is made

HEAD = 4  # columns of a task: kind, slot read, slot written, partner's slot, then
NUMBERS = 8  # what its kind needs
LARGEST_SIDE = 8191  # up to here every position fits Pillow's 16.16 fixed point, and 32 bits
_NEVER = 1 << 30  # a position beyond any image

Doubles = NDArray[np.float64]
Numbers = tuple[Any, ...]  # a column each: an array, or one number for all


@dataclass(frozen=True, slots=True)
class Size:
    """What the numbers of a task depend on beside its level and place."""

    channels: int
    height: int
    width: int


@dataclass(frozen=True, slots=True)
class Kind:
    """How a transform is done: its kind, its numbers, and the least images that it changes."""

    kind: int
    numbers: Callable[[Doubles, Doubles, Size], Numbers] = lambda magnitude, place, size: ()
    least_side: int = 1
    least_channels: int = 1


def _bits(values: Doubles) -> NDArray[np.int32]:
    """Return C floats, as Pillow has them, in the table's integers."""
    return values.astype(np.float32).view(np.int32)


def _fixed(a0: Any, a1: Any, a2: Any, a3: Any, a4: Any, a5: Any) -> Numbers:
    """Return a matrix in 16.16 fixed point from half-pixel centres, as Pillow rounds it."""
    centred = a0, a1, a2 + a0 * 0.5 + a1 * 0.5, a3, a4, a5 + a3 * 0.5 + a4 * 0.5
    return (*(np.floor(a * 65536.0 + 0.5) for a in centred), _NEVER, _NEVER)


def _walk(offset: Doubles, side: int) -> Numbers:
    """Return by how much positions are moved, in fixed point, and from where on by one more.

    Pillow starts at offset + 0.5 and adds 1.0 in doubles. A sum next below an integer can round up to it, once.
    """
    start = offset + 0.5
    shift = np.floor(start)
    jump = np.full(len(start), _NEVER)
    close = np.flatnonzero(start - shift > 1 - 1e-6)
    if close.size:
        terms = np.ones((close.size, side))
        terms[:, 0] = start[close]
        late = np.floor(np.add.accumulate(terms, axis=1)) - np.arange(side) > shift[close, None]
        jump[close] = np.where(late.any(1), late.argmax(1), _NEVER)
    return shift * 65536, jump


def _translate_x(magnitude: Doubles, place: Doubles, size: Size) -> Numbers:
    shift, jump = _walk(magnitude * size.width, size.width)
    return 65536, 0, shift, 0, 65536, 0, jump, _NEVER


def _translate_y(magnitude: Doubles, place: Doubles, size: Size) -> Numbers:
    shift, jump = _walk(magnitude * size.height, size.height)
    return 65536, 0, 0, 0, 65536, shift, _NEVER, jump


def _rotate(degrees: Doubles, place: Doubles, size: Size) -> Numbers:
    turn = degrees % 360.0
    angle = (-(turn * (math.pi / 180.0))).tolist()
    # numpy's own cosine may differ from the C library's, hence from Pillow's, in the last bit.
    a, b = _round_15(np.array([list(map(math.cos, angle)), list(map(math.sin, angle))]))
    x, y = size.width / 2, size.height / 2
    numbers = _fixed(a, b, a * -x + b * -y + x, -b, a, -b * -x + a * -y + y)
    if size.height == size.width:  # Pillow transposes instead of walking the grid
        last = (size.width - 1) * 65536
        for quarter, exact in ((90.0, (0, -65536, last, 65536, 0, 0)), (270.0, (0, 65536, 0, -65536, 0, last))):
            for column, value in zip(numbers, exact, strict=False):
                column[turn == quarter] = value
    return numbers


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


def _box(magnitude: Doubles, place: Doubles, size: Size) -> Numbers:
    starts, stops = [], []
    for position, side in ((place[:, 0], size.width), (place[:, 1], size.height)):
        length = (magnitude * side).astype(np.int64)
        start = (position * side).astype(np.int64) - length // 2
        starts.append(np.maximum(start, 0))
        stops.append(np.minimum(start + length, side))
    return *starts, *stops


def _random_crop(padding: Doubles, place: Doubles, size: Size) -> Numbers:
    corners = []
    for position, side in ((place[:, 0], size.width), (place[:, 1], size.height)):
        pad = (padding * side + 0.5).astype(np.int64)
        corners.append(((position * (2 * pad + 1)).astype(np.int64) - pad) * 65536)
    return 65536, 0, corners[0], 0, 65536, corners[1], _NEVER, _NEVER


def _resized_crop(magnitude: Doubles, place: Doubles, size: Size) -> Numbers:
    area = 0.08 + 0.92 * place[:, 2]
    # numpy's own power may differ from the C library's in the last bit.
    ratio = 0.75 * np.fromiter(map(math.pow, repeat(16 / 9), place[:, 3].tolist()), np.float64, len(place))
    w = np.minimum(size.width, np.sqrt(area * size.width * size.height * ratio))
    h = np.minimum(size.height, np.sqrt(area * size.width * size.height / ratio))
    x0, y0 = place[:, 0] * (size.width - w), place[:, 1] * (size.height - h)
    return _bits(x0), _bits(x0 + w), _bits(y0), _bits(y0 + h)


TRANSFORMS: Mapping[str, Kind | None] = MappingProxyType(
    {
        "identity": None,
        "auto_contrast": Kind(LOOK_UP, lambda m, place, size: (STRETCH,)),
        "equalize": Kind(LOOK_UP, lambda m, place, size: (EQUALIZE,)),
        "contrast": Kind(LOOK_UP, lambda m, place, size: (CONTRAST, _bits(m))),
        "brightness": Kind(SCALE, lambda m, place, size: (_bits(m),)),
        "posterize": Kind(MASK, lambda m, place, size: ((0xFF00 >> np.rint(m).astype(np.int64)) & 0xFF,)),
        "solarize": Kind(INVERT, lambda m, place, size: (m.astype(np.int64),)),
        "invert": Kind(INVERT, lambda m, place, size: (0,)),
        "color": Kind(COLOR, lambda m, place, size: (_bits(m),), least_channels=3),
        "mixup": Kind(BLEND, lambda m, place, size: (_bits(m),)),
        "cutout": Kind(FILL, _box),
        "cutmix": Kind(PASTE, _box),
        "rotate": Kind(AFFINE, _rotate),
        "shear_x": Kind(AFFINE, lambda m, place, size: _fixed(1.0, m, 0.0, 0.0, 1.0, 0.0)),
        "shear_y": Kind(AFFINE, lambda m, place, size: _fixed(1.0, 0.0, 0.0, m, 1.0, 0.0)),
        "translate_x": Kind(AFFINE, _translate_x),
        "translate_y": Kind(AFFINE, _translate_y),
        "horizontal_flip": Kind(
            AFFINE, lambda m, place, size: (-65536, 0, (size.width - 1) * 65536, 0, 65536, 0, _NEVER, _NEVER)
        ),
        "vertical_flip": Kind(
            AFFINE, lambda m, place, size: (65536, 0, 0, 0, -65536, (size.height - 1) * 65536, _NEVER, _NEVER)
        ),
        "random_crop": Kind(REFLECT, _random_crop),
        "sharpness": Kind(SMOOTH, lambda m, place, size: (_bits(m),), least_side=3),
        "smooth": Kind(SMOOTH, lambda m, place, size: (0,), least_side=3),
        "blur": Kind(BLUR, least_side=5),
        "resized_crop": Kind(RESIZE, _resized_crop),
    }
)


@dataclass(frozen=True, slots=True)
class Packed:
    """Everything the device needs, one after the other in one buffer of 32-bit integers."""

    buffer: Tensor
    values: slice  # the normalisation's table
    fill: slice
    table: slice  # HEAD + NUMBERS columns of `tasks` entries
    order: slice  # the tasks by step, within each by kind
    places: slice  # for each output the slot that holds it
    slots: int  # of the work space
    tasks: int
    look_ups: int  # the first tasks, which have a look-up table
    steps: list[tuple[int, int, int]]  # for each step its tasks, and among them those with a look-up table and the resizes


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What the names of a plan mean for images of one size, sorted by kind; those that change nothing come last."""

    transforms: list[Transform]
    kinds: list[Kind]  # shorter: of those that change something
    rank: NDArray[np.uint8]  # the place of op -1, which is beyond all, 0, 1, …; then again, at level 0
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    rest: Doubles
    span: Doubles
    kind: NDArray[np.int32]


@lru_cache(maxsize=256)
def _mean(names: tuple[str, ...], size: Size) -> _Meaning:
    kinds = [_at_work(TRANSFORMS[name], size) for name in names]
    ranked = sorted(range(len(kinds)), key=lambda op: math.inf if (kind := kinds[op]) is None else kind.kind)
    transforms = [find(names[op]) for op in ranked]
    active = [kind for op in ranked if (kind := kinds[op]) is not None]
    nothing = len(names)
    place = [ranked.index(op) for op in range(nothing)]
    at_0 = [nothing if find(name).graded else rank for name, rank in zip(names, place, strict=True)]
    return _Meaning(
        transforms,
        active,
        np.array([nothing, *place, nothing, *at_0], dtype=np.min_scalar_type(nothing)),
        np.array([transform.levels[0] for transform in transforms], dtype=np.float32),
        np.array([transform.levels[1] for transform in transforms], dtype=np.float32),
        np.array([transform.rest for transform in transforms]),
        np.array([transform.span for transform in transforms]),
        np.array([kind.kind for kind in active], dtype=np.int32),
    )


def _at_work(kind: Kind | None, size: Size) -> Kind | None:
    """Return the kind where it changes images of this size: a grey image is its own grey, a small one has no inside."""
    if kind is None or min(size.height, size.width) < kind.least_side or size.channels < kind.least_channels:
        return None
    return kind


@dataclass(frozen=True, slots=True)
class _Tasks:
    """The tasks sorted by transform: how many of each, where in the plan, and how strong; and where each row lies when."""

    counts: NDArray[np.int64]
    entries: NDArray[np.int64]  # step * rows + row
    step: NDArray[np.int64]
    row: NDArray[np.int64]
    magnitude: Doubles
    acts: NDArray[np.bool_]  # [steps, rows]
    slots: NDArray[np.int32]  # [steps + 1, rows], before each step and at the end


def pack(plan: Plan, shape: tuple[int, ...], fill: Fill, normalize: Normalize | None, *, pin: bool) -> Packed | None:
    """Return the tasks of a plan on images of this shape, or None where it is not valid or they are too large."""
    batch, size = shape[0], Size(*shape[1:])
    if max(size.height, size.width) > LARGEST_SIDE or not _is_valid(plan, batch):
        return None
    meaning = _mean(plan.names, size)
    tasks = _choose(plan, meaning)
    if tasks is None:
        return None
    packed = _lay_out(plan, meaning, tasks, normalize, pin)
    buffer = packed.buffer.numpy()
    if normalize is not None:
        buffer[packed.values] = normalize.table.reshape(-1).view(torch.int32).numpy()
    buffer[packed.fill][: size.channels] = fill.numpy()
    buffer[packed.order] = np.argsort(tasks.step.astype(np.min_scalar_type(len(tasks.slots))), kind="stable")
    buffer[packed.places] = tasks.slots[-1].take(plan.out.numpy())
    table = buffer[packed.table].reshape(HEAD + NUMBERS, packed.tasks)
    table[0] = np.repeat(meaning.kind, tasks.counts)
    table[1] = tasks.slots.reshape(-1).take(tasks.entries)
    table[2] = tasks.slots[1:].reshape(-1).take(tasks.entries)
    return packed if _write_numbers(plan, meaning, tasks, size, table) else None


def _is_valid(plan: Plan, batch: int) -> bool:
    places = plan.places.numpy()
    return (
        _lies_within(plan.source.numpy(), batch)
        and _lies_within(plan.out.numpy(), len(plan.ops))
        and _lies_within(plan.ops.numpy() + 1, len(plan.names) + 1)
        and _lies_within(places, 1)
    )


def _choose(plan: Plan, meaning: _Meaning) -> _Tasks | None:
    """Return the tasks, sorted by transform, and within each by step and row; None at a level out of range."""
    rows = len(plan.ops)
    levels = np.ascontiguousarray(plan.levels.numpy().T)
    nothing, active = len(meaning.transforms), len(meaning.kinds)
    keys = meaning.rank.take(plan.ops.numpy().T + 1 + (levels == 0) * np.intp(nothing + 1))
    counts = np.bincount(keys.reshape(-1), minlength=nothing + 1)[:nothing]
    entries = np.argsort(keys, axis=None, kind="stable")[: counts.sum()]
    step = (entries.astype(np.int32) // np.int32(max(rows, 1))).astype(np.intp)  # rows * steps is far below 2^31
    row = entries - step * rows
    level = levels.reshape(-1).take(entries)
    there = np.flatnonzero(counts)
    if there.size:
        starts = (counts.cumsum() - counts)[there]
        least, most = np.minimum.reduceat(level, starts), np.maximum.reduceat(level, starts)
        if not ((least >= meaning.low[there]) & (most <= meaning.high[there])).all():  # never true of NaN
            return None
    counts = counts[:active]
    some = slice(counts.sum())
    magnitude = np.repeat(meaning.rest[:active], counts) + np.repeat(meaning.span[:active], counts) * level[some]
    acts = keys < active
    return _Tasks(counts, entries[some], step[some], row[some], magnitude, acts, _find_slots(plan.source.numpy(), acts))


def _find_slots(source: NDArray[np.int64], acts: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return where each row lies before each step: in slot -1 - i as image i, then in two of the work space by turns.

    So what others read in a step is not written in it, and a row that is left alone is not copied.
    """
    steps, rows = acts.shape
    done = np.zeros((steps + 1, rows), dtype=np.int32)
    for t in range(steps):
        np.add(done[t], acts[t], out=done[t + 1])
    places = np.arange(rows, dtype=np.int32) + np.int32(rows) * (done & 1)
    return np.where(done == 0, -1 - source.astype(np.int32), places)


def _write_numbers(plan: Plan, meaning: _Meaning, tasks: _Tasks, size: Size, table: NDArray[np.int32]) -> bool:
    """Write what each kind needs, transform by transform; False where a partner is missing."""
    rows, steps = plan.ops.shape
    stops = tasks.counts.cumsum().tolist()
    for transform, kind, start, stop in zip(meaning.transforms, meaning.kinds, [0, *stops], stops, strict=False):
        if start == stop:
            continue
        mine, place = slice(start, stop), np.empty((0, 4))
        if transform.mixes or transform.placed:
            entries = tasks.row[mine] * steps + tasks.step[mine]
            place = plan.places.numpy().reshape(-1, 4).take(entries, axis=0).astype(np.float64)
            if transform.mixes:
                partner = plan.partners.numpy().reshape(-1).take(entries)
                if not _lies_within(partner, rows):
                    return False
                table[3, mine] = tasks.slots.reshape(-1).take(tasks.step[mine] * rows + partner)
        for i, numbers in enumerate(kind.numbers(tasks.magnitude[mine], place, size)):
            table[HEAD + i, mine] = numbers
    return True


def _lay_out(plan: Plan, meaning: _Meaning, tasks: _Tasks, normalize: Normalize | None, pin: bool) -> Packed:
    rows, steps = plan.ops.shape
    count = len(tasks.step)
    slices, start = [], 0
    values = 0 if normalize is None else normalize.table.nbytes // 4
    for length in (values, 4, (HEAD + NUMBERS) * count, count, len(plan.out)):
        slices.append(slice(start, start + length))
        start += -(-length // 4) * 4  # 16 bytes: Triton compiles again for a pointer that is aligned otherwise
    look_ups, resizes = (int(tasks.counts[meaning.kind == kind].sum()) for kind in (LOOK_UP, RESIZE))
    parts = tasks.step[:look_ups], tasks.step[count - resizes :]  # the tasks are sorted by kind
    per_step = np.count_nonzero(tasks.acts, axis=1), *(np.bincount(part, minlength=steps) for part in parts)
    # Pinned, so that the copy does not wait; torch keeps the memory until it is over.
    buffer = torch.empty(start, dtype=torch.int32, pin_memory=pin)
    values, fill, table, order, places = slices
    counts = list(zip(*(part.tolist() for part in per_step), strict=True))
    return Packed(buffer, values, fill, table, order, places, 2 * rows, count, look_ups, counts)


def _lies_within(numbers: NDArray[Any], stop: int) -> bool:
    return not numbers.size or bool(numbers.min() >= 0 and numbers.max() < stop)
