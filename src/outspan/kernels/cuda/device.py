"""The kernels in Triton. A program does one step of one row on one block of pixels, all channels.

Bytes are widened to 32-bit integers before any arithmetic; blends are in C floats as Pillow's; doubles are used only
where Pillow does. Products and sums must round one after the other, so no launch may fuse them (`enable_fp_fusion`).
"""

from contextlib import nullcontext
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from outspan.kernels.cuda import tasks
from outspan.kernels.cuda.decode import decode
from outspan.kernels.cuda.tasks import Packed
from outspan.shapes import Images
from outspan.transforms.normalize import Normalize

NOTHING = tl.constexpr(tasks.NOTHING)
LOOK_UP = tl.constexpr(tasks.LOOK_UP)
SCALE = tl.constexpr(tasks.SCALE)
MASK = tl.constexpr(tasks.MASK)
INVERT = tl.constexpr(tasks.INVERT)
COLOR = tl.constexpr(tasks.COLOR)
BLEND = tl.constexpr(tasks.BLEND)
FILL = tl.constexpr(tasks.FILL)
PASTE = tl.constexpr(tasks.PASTE)
AFFINE = tl.constexpr(tasks.AFFINE)
REFLECT = tl.constexpr(tasks.REFLECT)
SMOOTH = tl.constexpr(tasks.SMOOTH)
RESIZE = tl.constexpr(tasks.RESIZE)
STRETCH = tl.constexpr(tasks.STRETCH)
EQUALIZE = tl.constexpr(tasks.EQUALIZE)
TASK = tl.constexpr(tasks.TASK)

# The suite's type checker would wrap the functions before Triton reads them: `no_type_check` keeps it off.


@triton.jit
@no_type_check
def _at(images, work, slot, size):
    """Return where a slot begins: below 0 it is an image, else a place in the work space."""
    start = slot.to(tl.int64)
    return tl.where(start < 0, images + (-1 - start) * size, work + start * size)


@triton.jit
@no_type_check
def _number(task, rows, column):
    return tl.load(task + (2 + column) * rows)


@triton.jit
@no_type_check
def _float(task, rows, column):
    return _number(task, rows, column).to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def _bytes(pointer, inside):
    return tl.load(pointer, mask=inside, other=0).to(tl.int32)


@triton.jit
@no_type_check
def _blend(first, second, factor):
    """Pillow's blend: clipped, then truncated."""
    start = first.to(tl.float32)
    value = start + factor * (second.to(tl.float32) - start)
    return tl.minimum(tl.maximum(value, 0.0), 255.0).to(tl.int32)


@triton.jit
@no_type_check
def _luma(red, green, blue):
    return (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16


@triton.jit(do_not_specialize=["step", "rows"])
@no_type_check
def _make_tables(
    images, work, tables, table, step, rows, height, width, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Make the look-up table of one channel of one row in one step, if it needs one."""
    channel = tl.program_id(0) % CHANNELS
    row = tl.program_id(0) // CHANNELS
    task = table + step * TASK * rows + row
    if tl.load(task) == LOOK_UP:
        source = _at(images, work, tl.load(task + rows), CHANNELS * height * width)
        made = _make_table(source, task, rows, channel, height * width, CHANNELS, BLOCK)
        tl.store(tables + (row.to(tl.int64) * CHANNELS + channel) * 256 + tl.arange(0, 256), made.to(tl.uint8))


@triton.jit
@no_type_check
def _make_table(source, task, rows, channel, plane, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the table that a channel's histogram, or its luma's, leads to."""
    how = _number(task, rows, 0)
    counts = tl.zeros([256], dtype=tl.int32)
    for start in range(0, plane, BLOCK):
        pixel = start + tl.arange(0, BLOCK)
        inside = pixel < plane
        value = _bytes(source + channel * plane + pixel, inside)
        if CHANNELS == 3:  # noqa: SIM102, the first is decided when compiling
            if how > EQUALIZE:
                value = _luma(
                    _bytes(source + pixel, inside),
                    _bytes(source + plane + pixel, inside),
                    _bytes(source + 2 * plane + pixel, inside),
                )
        counts += tl.histogram(value, 256)
    level = tl.arange(0, 256)
    counts -= tl.where(level == 0, (plane + BLOCK - 1) // BLOCK * BLOCK - plane, 0)  # what lay outside was read as 0
    if how == STRETCH:
        made = _stretch(counts, level)
    elif how == EQUALIZE:
        made = _equalize(counts, level, plane)
    else:
        total = tl.sum(counts.to(tl.int64) * level, 0)
        pivot = (2 * total + plane) // (2 * plane)
        made = _blend(pivot.to(tl.int32) + tl.zeros_like(level), level, _float(task, rows, 1))
    return made


@triton.jit
@no_type_check
def _stretch(counts, level):
    low = tl.min(tl.where(counts > 0, level, 255), 0)
    high = tl.max(tl.where(counts > 0, level, 0), 0)
    scale = tl.full([], 255.0, tl.float64) / tl.maximum(high - low, 1).to(tl.float64)
    value = level.to(tl.float64) * scale + (-low).to(tl.float64) * scale
    return tl.where(high > low, tl.minimum(tl.maximum(value, 0.0), 255.0).to(tl.int32), level)


@triton.jit
@no_type_check
def _equalize(counts, level, plane):
    high = tl.max(tl.where(counts > 0, level, 0), 0)
    step = (plane - tl.sum(tl.where(level == high, counts, 0), 0)) // 255
    below = tl.cumsum(counts, 0) - counts + step // 2
    return tl.where(step > 0, tl.minimum(below // tl.maximum(step, 1), 255), level)


@triton.jit(do_not_specialize=["step", "rows"])
@no_type_check
def _do_step(
    images, work, tables, table, fill, step, rows, height, width, blocks, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Do one step of one row, if it changes anything, on one block of pixels."""
    plane = height * width
    row = tl.program_id(0) // blocks
    task = table + step * TASK * rows + row
    pixel = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < plane
    y = pixel // width
    x = pixel - y * width
    kind = tl.load(task)
    source = _at(images, work, tl.load(task + rows), CHANNELS * plane)
    target = work + tl.load(task + (TASK + 1) * rows).to(tl.int64) * (CHANNELS * plane)
    if (kind == NOTHING) | (kind == RESIZE):
        pass
    elif kind < COLOR:
        mine = tables + row.to(tl.int64) * (CHANNELS * 256)
        _do_point(source, target, mine, _number(task, rows, 0), kind, pixel, inside, plane, CHANNELS)
    elif kind == COLOR:
        _do_color(source, target, _float(task, rows, 0), pixel, inside, plane, CHANNELS)
    elif kind < AFFINE:
        partner = source
        if kind != FILL:
            slot = tl.load(table + (step * TASK + 1) * rows + _number(task, rows, 4))
            partner = _at(images, work, slot, CHANNELS * plane)
        _do_mix(source, target, partner, fill, task, rows, kind, pixel, inside, x, y, plane, CHANNELS)
    elif kind < SMOOTH:
        _do_move(source, target, task, rows, kind, pixel, inside, x, y, height, width, CHANNELS)
    elif kind == SMOOTH:
        _do_smooth(source, target, _float(task, rows, 0), pixel, inside, x, y, height, width, CHANNELS)
    else:
        _do_blur(source, target, pixel, inside, x, y, height, width, CHANNELS)


@triton.jit
@no_type_check
def _do_point(source, target, tables, number, kind, pixel, inside, plane, CHANNELS: tl.constexpr):
    """A value by its value alone: through a table, scaled, masked, or inverted from a threshold on."""
    factor = number.to(tl.float32, bitcast=True)
    for c in range(CHANNELS):
        value = _bytes(source + c * plane + pixel, inside)
        if kind == SCALE:
            value = _blend(tl.zeros_like(value), value, factor)
        elif kind == MASK:
            value = value & number
        elif kind == INVERT:
            value = tl.where(value < number, value, 255 - value)
        else:
            value = _bytes(tables + c * 256 + value, inside)
        tl.store(target + c * plane + pixel, value.to(tl.uint8), mask=inside)


@triton.jit
@no_type_check
def _do_color(source, target, factor, pixel, inside, plane, CHANNELS: tl.constexpr):
    """From grey to colour and beyond."""
    if CHANNELS == 3:
        red = _bytes(source + pixel, inside)
        green = _bytes(source + plane + pixel, inside)
        blue = _bytes(source + 2 * plane + pixel, inside)
        grey = _luma(red, green, blue)
        tl.store(target + pixel, _blend(grey, red, factor).to(tl.uint8), mask=inside)
        tl.store(target + plane + pixel, _blend(grey, green, factor).to(tl.uint8), mask=inside)
        tl.store(target + 2 * plane + pixel, _blend(grey, blue, factor).to(tl.uint8), mask=inside)


@triton.jit
@no_type_check
def _do_mix(source, target, partner, fill, task, rows, kind, pixel, inside, x, y, plane, CHANNELS: tl.constexpr):
    """A blend with the partner, or its pixels, or the fill, in a box."""
    x0 = _number(task, rows, 0)
    factor = x0.to(tl.float32, bitcast=True)
    box = inside
    if kind != BLEND:
        y0 = _number(task, rows, 1)
        x1 = _number(task, rows, 2)
        y1 = _number(task, rows, 3)
        box = inside & (x >= x0) & (x < x1) & (y >= y0) & (y < y1)
    for c in range(CHANNELS):
        value = _bytes(source + c * plane + pixel, inside)
        if kind == FILL:
            value = tl.where(box, tl.load(fill + c), value)
        elif kind == PASTE:
            value = tl.where(box, _bytes(partner + c * plane + pixel, box), value)
        else:
            value = _blend(value, _bytes(partner + c * plane + pixel, inside), factor)
        tl.store(target + c * plane + pixel, value.to(tl.uint8), mask=inside)


@triton.jit
@no_type_check
def _do_move(
    source, target, task, rows, kind, pixel, inside, x, y, height, width, CHANNELS: tl.constexpr
):  # fmt: skip
    """Fetch each pixel from where a matrix in 16.16 fixed point sends it; outside is black, or reflected."""
    from_x = _position(task, rows, 0, x, y) + (x >= _number(task, rows, 6)).to(tl.int32)
    from_y = _position(task, rows, 3, x, y) + (y >= _number(task, rows, 7)).to(tl.int32)
    if kind == REFLECT:
        from_x = width - 1 - tl.abs(width - 1 - tl.abs(from_x))
        from_y = height - 1 - tl.abs(height - 1 - tl.abs(from_y))
    seen = inside & (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    for c in range(CHANNELS):
        value = _bytes(source + c * (height * width) + from_y * width + from_x, seen)
        tl.store(target + c * (height * width) + pixel, value.to(tl.uint8), mask=inside)


@triton.jit
@no_type_check
def _position(task, rows, column, x, y):
    across = _number(task, rows, column)
    down = _number(task, rows, column + 1)
    return (_number(task, rows, column + 2) + down * y + across * x) >> 16


@triton.jit
@no_type_check
def _do_smooth(source, target, factor, pixel, inside, x, y, height, width, CHANNELS: tl.constexpr):
    """From the average of 3x3, the centre counted five times, to the image and beyond."""
    inner = inside & (x >= 1) & (x < width - 1) & (y >= 1) & (y < height - 1)
    for c in range(CHANNELS):
        here = source + c * (height * width) + pixel
        centre = _bytes(here, inside)
        total = 4 * centre
        for i in tl.static_range(9):
            total += _bytes(here + (i // 3 - 1) * width + (i % 3 - 1), inner)
        # The quotient by 13 is never near a half, so integers give what Pillow's floats give.
        smoothed = tl.where(inner, (2 * total + 13) // 26, centre)
        tl.store(target + c * (height * width) + pixel, _blend(smoothed, centre, factor).to(tl.uint8), mask=inside)


@triton.jit
@no_type_check
def _do_blur(source, target, pixel, inside, x, y, height, width, CHANNELS: tl.constexpr):
    """The average of the 16 pixels on the edge of 5x5."""
    inner = inside & (x >= 2) & (x < width - 2) & (y >= 2) & (y < height - 2)
    for c in range(CHANNELS):
        here = source + c * (height * width) + pixel
        total = tl.zeros_like(pixel)
        for i in tl.static_range(25):
            if i // 5 % 4 == 0 or i % 5 % 4 == 0:
                total += _bytes(here + (i // 5 - 2) * width + (i % 5 - 2), inner)
        value = tl.where(inner, (total + 8) >> 4, _bytes(here, inside))
        tl.store(target + c * (height * width) + pixel, value.to(tl.uint8), mask=inside)


@triton.jit(do_not_specialize=["step", "rows"])
@no_type_check
def _resize(
    images, work, table, step, rows, height, width, blocks, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Stretch a box over the whole where a step says so. Apart, as its doubles fill the registers."""
    task = table + step * TASK * rows + tl.program_id(0) // blocks
    if tl.load(task) == RESIZE:
        plane = height * width
        source = _at(images, work, tl.load(task + rows), CHANNELS * plane)
        target = work + tl.load(task + (TASK + 1) * rows).to(tl.int64) * (CHANNELS * plane)
        pixel = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
        _do_resize(source, target, task, rows, pixel, height, width, CHANNELS)


@triton.jit
@no_type_check
def _do_resize(source, target, task, rows, pixel, height, width, CHANNELS: tl.constexpr):
    """Across, rounded to bytes, then down."""
    plane = height * width
    inside = pixel < plane
    y = tl.minimum(pixel // width, height - 1)  # beyond the image no tap would weigh anything
    x = pixel % width
    left, a, b, c = _taps(x, _float(task, rows, 0), _float(task, rows, 1), width)
    top, d, e, f = _taps(y, _float(task, rows, 2), _float(task, rows, 3), height)
    for channel in range(CHANNELS):
        line = source + channel * plane
        total = d * _across(line + top * width, left, a, b, c, width, inside)
        total += e * _across(line + tl.minimum(top + 1, height - 1) * width, left, a, b, c, width, inside)
        total += f * _across(line + tl.minimum(top + 2, height - 1) * width, left, a, b, c, width, inside)
        value = (total + (1 << 21)) >> 22
        tl.store(target + channel * plane + pixel, value.to(tl.uint8), mask=inside)


@triton.jit
@no_type_check
def _across(line, left, a, b, c, width, inside):
    total = a * _bytes(line + left, inside)
    total += b * _bytes(line + tl.minimum(left + 1, width - 1), inside)
    total += c * _bytes(line + tl.minimum(left + 2, width - 1), inside)
    return (total + (1 << 21)) >> 22


@triton.jit
@no_type_check
def _taps(index, start, stop, side):
    """Return the first of Pillow's three taps, and their weights in 22 bits; all in doubles, as Pillow has them."""
    scale = (stop - start).to(tl.float64) / side  # never above 1 here, so the support is one pixel
    centre = start.to(tl.float64) + (index.to(tl.float64) + 0.5) * scale
    first = tl.maximum((centre - 1.0 + 0.5).to(tl.int32), 0)
    last = tl.minimum((centre + 1.0 + 0.5).to(tl.int32), side)
    a = _weight(first, centre, last)
    b = _weight(first + 1, centre, last)
    c = _weight(first + 2, centre, last)
    total = a + b + c
    return first, _in_22_bits(a, total), _in_22_bits(b, total), _in_22_bits(c, total)


@triton.jit
@no_type_check
def _weight(tap, centre, last):
    distance = tl.abs(tap.to(tl.float64) - centre + 0.5)
    return tl.where((distance < 1.0) & (tap < last), 1.0 - distance, 0.0)


@triton.jit
@no_type_check
def _in_22_bits(weight, total):
    return (0.5 + weight / total * 4194304.0).to(tl.int32)


@triton.jit(do_not_specialize=["steps", "rows"])
@no_type_check
def _finish(
    images, work, table, chosen, values, out, steps, rows, height, width, blocks,
    CHANNELS: tl.constexpr, NORMALIZED: tl.constexpr, CHANNELS_LAST: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Bring one block of one output home, as bytes or through the normalisation's table, in the output's order."""
    plane = height * width
    output = tl.program_id(0) // blocks
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = at < CHANNELS * plane
    if CHANNELS_LAST:
        channel = at % CHANNELS
        pixel = channel * plane + at // CHANNELS
    else:
        channel = at // plane
        pixel = at
    slot = tl.load(table + (steps * TASK + 1) * rows + tl.load(chosen + output))
    source = _at(images, work, slot, CHANNELS * plane)
    value = tl.load(source + pixel, mask=inside, other=0)
    if NORMALIZED:
        value = tl.load(values + channel * 256 + value.to(tl.int32), mask=inside, other=0)
    tl.store(out + output.to(tl.int64) * (CHANNELS * plane) + at, value, mask=inside)


def run(images: Images, packed: Packed, normalize: Normalize | None, out: Tensor) -> None:
    """Queue the launches of a plan on the current stream, and return without waiting for them."""
    channels, height, width = images.shape[1:]
    plane, rows = height * width, packed.rows
    buffer = packed.buffer.to(images.device, non_blocking=True)
    fill = buffer[packed.fill]
    with torch.cuda.device(images.device) if images.is_cuda else nullcontext():
        table = decode_on(buffer, packed, height, width)
        work = images.new_empty((2 * rows if any(packed.launches) else 1, channels, height, width))
        tables = images.new_empty((rows, channels, 256))
        for step, launches in enumerate(packed.launches):
            where = step, rows, height, width
            if launches & tasks.TABLES:
                block, _ = _blocks(plane, 4096)
                _launch(_make_tables, rows * channels, images, work, tables, table, *where, channels, block)
            if launches & tasks.STEP:
                block, blocks = _blocks(plane, 1024)
                _launch(_do_step, rows * blocks, images, work, tables, table, fill, *where, blocks, channels, block)
            if launches & tasks.RESIZES:
                block, blocks = _blocks(plane, 512)
                _launch(_resize, rows * blocks, images, work, table, *where, blocks, channels, block)
        _bring_home(images, work, table, buffer[packed.out], buffer[packed.values], normalize, out)


def decode_on(buffer: Tensor, packed: Packed, height: int, width: int) -> Tensor:
    """Return the tasks of a plan whose buffer is on the device, [steps + 1, TASK, rows]."""
    steps, rows = len(packed.launches), packed.rows
    table = buffer.new_empty((steps + 1, tasks.TASK, rows))
    parts = packed.meanings, packed.ops, packed.levels, packed.partners, packed.places, packed.source
    _launch(decode, triton.cdiv(rows, 64), *(buffer[part] for part in parts), table, rows, steps, height, width, 64)
    return table


def _bring_home(
    images: Images, work: Tensor, table: Tensor, chosen: Tensor, values: Tensor, normalize: Normalize | None, out: Tensor
) -> None:
    channels, height, width = images.shape[1:]
    block, blocks = _blocks(channels * height * width, 1024)
    # The numbers are only looked up and stored: integers of their size do, and two types share a kernel.
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[out.element_size()]
    what = images, work, table, chosen, values.view(kind), out.view(kind), len(table) - 1, table.shape[2]
    how = normalize is not None, normalize is not None and normalize.channels_last
    _launch(_finish, len(chosen) * blocks, *what, height, width, blocks, channels, *how, block)


def _launch(kernel: Any, programs: int, *arguments: Any) -> None:
    kernel[(programs,)](*arguments, num_warps=4, enable_fp_fusion=False)


def _blocks(count: int, most: int) -> tuple[int, int]:
    """Return how many pixels a program takes, a power of two of which there are few, as each is compiled; and how many do."""
    block = max(128, min(most, triton.next_power_of_2(count)))
    return block, triton.cdiv(count, block)
