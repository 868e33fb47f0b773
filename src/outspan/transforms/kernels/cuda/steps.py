"""The kernel of a step of a plan. A program does one step of one row on one block of pixels, in all channels."""

from typing import no_type_check

import triton
import triton.language as tl

from outspan.transforms.kernels.cuda import tasks
from outspan.transforms.kernels.cuda.pixels import blend_bytes, luma, place_of, read_bytes, read_float, read_number

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
    """Do one step of one row on one block of pixels, if the step changes the row."""
    plane = height * width
    row = tl.program_id(0) // blocks
    task = table + step * TASK * rows + row
    pixel = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < plane
    y = pixel // width
    x = pixel - y * width
    action = tl.load(task)
    source = place_of(images, work, tl.load(task + rows), CHANNELS * plane)
    target = work + tl.load(task + (TASK + 1) * rows).to(tl.int64) * (CHANNELS * plane)
    if (action == NOTHING) | (action == RESIZE):
        pass
    elif action < COLOR:
        row_tables = tables + row.to(tl.int64) * (CHANNELS * 256)
        _do_point(source, target, row_tables, read_number(task, rows, 0), action, pixel, inside, plane, CHANNELS)
    elif action == COLOR:
        _do_color(source, target, read_float(task, rows, 0), pixel, inside, plane, CHANNELS)
    elif action < AFFINE:
        partner = source
        if action != FILL:
            slot = tl.load(table + (step * TASK + 1) * rows + read_number(task, rows, 4))
            partner = place_of(images, work, slot, CHANNELS * plane)
        _do_mix(source, target, partner, fill, task, rows, action, pixel, inside, x, y, plane, CHANNELS)
    elif action < SMOOTH:
        _do_move(source, target, task, rows, action, pixel, inside, x, y, height, width, CHANNELS)
    elif action == SMOOTH:
        _do_smooth(source, target, read_float(task, rows, 0), pixel, inside, x, y, height, width, CHANNELS)
    else:
        _do_blur(source, target, pixel, inside, x, y, height, width, CHANNELS)


@triton.jit
@no_type_check
def _do_point(source, target, tables, number, action, pixel, inside, plane, CHANNELS: tl.constexpr):
    """Transform each value on its own: look it up, scale it, mask it, or invert it from a threshold on."""
    factor = number.to(tl.float32, bitcast=True)
    for c in range(CHANNELS):
        value = read_bytes(source + c * plane + pixel, inside)
        if action == SCALE:
            value = blend_bytes(tl.zeros_like(value), value, factor)
        elif action == MASK:
            value = value & number
        elif action == INVERT:
            value = tl.where(value < number, value, 255 - value)
        else:
            value = read_bytes(tables + c * 256 + value, inside)
        tl.store(target + c * plane + pixel, value.to(tl.uint8), mask=inside)


@triton.jit
@no_type_check
def _do_color(source, target, factor, pixel, inside, plane, CHANNELS: tl.constexpr):
    """Blend from gray to the image, or extrapolate."""
    if CHANNELS == 3:
        red = read_bytes(source + pixel, inside)
        green = read_bytes(source + plane + pixel, inside)
        blue = read_bytes(source + 2 * plane + pixel, inside)
        grey = luma(red, green, blue)
        tl.store(target + pixel, blend_bytes(grey, red, factor).to(tl.uint8), mask=inside)
        tl.store(target + plane + pixel, blend_bytes(grey, green, factor).to(tl.uint8), mask=inside)
        tl.store(target + 2 * plane + pixel, blend_bytes(grey, blue, factor).to(tl.uint8), mask=inside)


@triton.jit
@no_type_check
def _do_mix(source, target, partner, fill, task, rows, action, pixel, inside, x, y, plane, CHANNELS: tl.constexpr):
    """Blend with the partner, or paste the partner or the fill into a box."""
    x0 = read_number(task, rows, 0)
    factor = x0.to(tl.float32, bitcast=True)
    box = inside
    if action != BLEND:
        y0 = read_number(task, rows, 1)
        x1 = read_number(task, rows, 2)
        y1 = read_number(task, rows, 3)
        box = inside & (x >= x0) & (x < x1) & (y >= y0) & (y < y1)
    for c in range(CHANNELS):
        value = read_bytes(source + c * plane + pixel, inside)
        if action == FILL:
            value = tl.where(box, tl.load(fill + c), value)
        elif action == PASTE:
            value = tl.where(box, read_bytes(partner + c * plane + pixel, box), value)
        else:
            value = blend_bytes(value, read_bytes(partner + c * plane + pixel, inside), factor)
        tl.store(target + c * plane + pixel, value.to(tl.uint8), mask=inside)


@triton.jit
@no_type_check
def _do_move(
    source, target, task, rows, action, pixel, inside, x, y, height, width, CHANNELS: tl.constexpr
):  # fmt: skip
    """Sample each pixel where a matrix in 16.16 fixed point maps it; outside is black, or reflected."""
    from_x = _position(task, rows, 0, x, y) + (x >= read_number(task, rows, 6)).to(tl.int32)
    from_y = _position(task, rows, 3, x, y) + (y >= read_number(task, rows, 7)).to(tl.int32)
    if action == REFLECT:
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
    """Blend from the average of 3x3 pixels, with weight 5 for the center, to the image, or extrapolate."""
    inner = inside & (x >= 1) & (x < width - 1) & (y >= 1) & (y < height - 1)
    for c in range(CHANNELS):
        here = source + c * (height * width) + pixel
        center = read_bytes(here, inside)
        total = 4 * center
        for i in tl.static_range(9):
            total += read_bytes(here + (i // 3 - 1) * width + (i % 3 - 1), inner)
        # A quotient by 13 is never close to a half, so integers give the same result as Pillow's floats.
        smoothed = tl.where(inner, (2 * total + 13) // 26, center)
        tl.store(target + c * (height * width) + pixel, blend_bytes(smoothed, center, factor).to(tl.uint8), mask=inside)


@triton.jit
@no_type_check
def _do_blur(source, target, pixel, inside, x, y, height, width, CHANNELS: tl.constexpr):
    """Average the 16 pixels on the border of the 5x5 neighborhood."""
    inner = inside & (x >= 2) & (x < width - 2) & (y >= 2) & (y < height - 2)
    for c in range(CHANNELS):
        here = source + c * (height * width) + pixel
        total = tl.zeros_like(pixel)
        for i in tl.static_range(25):
            if i // 5 % 4 == 0 or i % 5 % 4 == 0:
                total += read_bytes(here + (i // 5 - 2) * width + (i % 5 - 2), inner)
        value = tl.where(inner, (total + 8) >> 4, read_bytes(here, inside))
        tl.store(target + c * (height * width) + pixel, value.to(tl.uint8), mask=inside)
