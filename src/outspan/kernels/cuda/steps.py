"""The steps of a plan. A program does one step of one row on one block of pixels, all channels."""

from typing import no_type_check

import triton
import triton.language as tl

from outspan.kernels.cuda import tasks
from outspan.kernels.cuda.pixels import blend, luma, place_of, read_bytes, read_float, read_number

NOTHING = tl.constexpr(tasks.NOTHING)
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
TASK = tl.constexpr(tasks.TASK)


@triton.jit(do_not_specialize=["step", "rows"])
@no_type_check
def do_step(
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
    code = tl.load(task)
    source = place_of(images, work, tl.load(task + rows), CHANNELS * plane)
    target = work + tl.load(task + (TASK + 1) * rows).to(tl.int64) * (CHANNELS * plane)
    if (code == NOTHING) | (code == RESIZE):
        pass
    elif code < COLOR:
        mine = tables + row.to(tl.int64) * (CHANNELS * 256)
        _do_point(source, target, mine, read_number(task, rows, 0), code, pixel, inside, plane, CHANNELS)
    elif code == COLOR:
        _do_color(source, target, read_float(task, rows, 0), pixel, inside, plane, CHANNELS)
    elif code < AFFINE:
        partner = source
        if code != FILL:
            slot = tl.load(table + (step * TASK + 1) * rows + read_number(task, rows, 4))
            partner = place_of(images, work, slot, CHANNELS * plane)
        _do_mix(source, target, partner, fill, task, rows, code, pixel, inside, x, y, plane, CHANNELS)
    elif code < SMOOTH:
        _do_move(source, target, task, rows, code, pixel, inside, x, y, height, width, CHANNELS)
    elif code == SMOOTH:
        _do_smooth(source, target, read_float(task, rows, 0), pixel, inside, x, y, height, width, CHANNELS)
    else:
        _do_blur(source, target, pixel, inside, x, y, height, width, CHANNELS)


@triton.jit
@no_type_check
def _do_point(source, target, tables, number, code, pixel, inside, plane, CHANNELS: tl.constexpr):
    """A value by its value alone: through a table, scaled, masked, or inverted from a threshold on."""
    factor = number.to(tl.float32, bitcast=True)
    for c in range(CHANNELS):
        value = read_bytes(source + c * plane + pixel, inside)
        if code == SCALE:
            value = blend(tl.zeros_like(value), value, factor)
        elif code == MASK:
            value = value & number
        elif code == INVERT:
            value = tl.where(value < number, value, 255 - value)
        else:
            value = read_bytes(tables + c * 256 + value, inside)
        tl.store(target + c * plane + pixel, value.to(tl.uint8), mask=inside)


@triton.jit
@no_type_check
def _do_color(source, target, factor, pixel, inside, plane, CHANNELS: tl.constexpr):
    """From grey to colour and beyond."""
    if CHANNELS == 3:
        red = read_bytes(source + pixel, inside)
        green = read_bytes(source + plane + pixel, inside)
        blue = read_bytes(source + 2 * plane + pixel, inside)
        grey = luma(red, green, blue)
        tl.store(target + pixel, blend(grey, red, factor).to(tl.uint8), mask=inside)
        tl.store(target + plane + pixel, blend(grey, green, factor).to(tl.uint8), mask=inside)
        tl.store(target + 2 * plane + pixel, blend(grey, blue, factor).to(tl.uint8), mask=inside)


@triton.jit
@no_type_check
def _do_mix(source, target, partner, fill, task, rows, code, pixel, inside, x, y, plane, CHANNELS: tl.constexpr):
    """A blend with the partner, or its pixels, or the fill, in a box."""
    x0 = read_number(task, rows, 0)
    factor = x0.to(tl.float32, bitcast=True)
    box = inside
    if code != BLEND:
        y0 = read_number(task, rows, 1)
        x1 = read_number(task, rows, 2)
        y1 = read_number(task, rows, 3)
        box = inside & (x >= x0) & (x < x1) & (y >= y0) & (y < y1)
    for c in range(CHANNELS):
        value = read_bytes(source + c * plane + pixel, inside)
        if code == FILL:
            value = tl.where(box, tl.load(fill + c), value)
        elif code == PASTE:
            value = tl.where(box, read_bytes(partner + c * plane + pixel, box), value)
        else:
            value = blend(value, read_bytes(partner + c * plane + pixel, inside), factor)
        tl.store(target + c * plane + pixel, value.to(tl.uint8), mask=inside)


@triton.jit
@no_type_check
def _do_move(
    source, target, task, rows, code, pixel, inside, x, y, height, width, CHANNELS: tl.constexpr
):  # fmt: skip
    """Fetch each pixel from where a matrix in 16.16 fixed point sends it; outside is black, or reflected."""
    from_x = _position(task, rows, 0, x, y) + (x >= read_number(task, rows, 6)).to(tl.int32)
    from_y = _position(task, rows, 3, x, y) + (y >= read_number(task, rows, 7)).to(tl.int32)
    if code == REFLECT:
        from_x = width - 1 - tl.abs(width - 1 - tl.abs(from_x))
        from_y = height - 1 - tl.abs(height - 1 - tl.abs(from_y))
    seen = inside & (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    for c in range(CHANNELS):
        value = read_bytes(source + c * (height * width) + from_y * width + from_x, seen)
        tl.store(target + c * (height * width) + pixel, value.to(tl.uint8), mask=inside)


@triton.jit
@no_type_check
def _position(task, rows, column, x, y):
    across = read_number(task, rows, column)
    down = read_number(task, rows, column + 1)
    return (read_number(task, rows, column + 2) + down * y + across * x) >> 16


@triton.jit
@no_type_check
def _do_smooth(source, target, factor, pixel, inside, x, y, height, width, CHANNELS: tl.constexpr):
    """From the average of 3x3, the centre counted five times, to the image and beyond."""
    inner = inside & (x >= 1) & (x < width - 1) & (y >= 1) & (y < height - 1)
    for c in range(CHANNELS):
        here = source + c * (height * width) + pixel
        centre = read_bytes(here, inside)
        total = 4 * centre
        for i in tl.static_range(9):
            total += read_bytes(here + (i // 3 - 1) * width + (i % 3 - 1), inner)
        # The quotient by 13 is never near a half, so integers give what Pillow's floats give.
        smoothed = tl.where(inner, (2 * total + 13) // 26, centre)
        tl.store(target + c * (height * width) + pixel, blend(smoothed, centre, factor).to(tl.uint8), mask=inside)


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
                total += read_bytes(here + (i // 5 - 2) * width + (i % 5 - 2), inner)
        value = tl.where(inner, (total + 8) >> 4, read_bytes(here, inside))
        tl.store(target + c * (height * width) + pixel, value.to(tl.uint8), mask=inside)
