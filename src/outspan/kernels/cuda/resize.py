"""Stretching a box over the whole image, as Pillow's bilinear filter does: across, rounded to bytes, then down."""

from typing import no_type_check

import triton
import triton.language as tl

from outspan.kernels.cuda import tasks
from outspan.kernels.cuda.pixels import place_of, read_bytes, read_float

RESIZE = tl.constexpr(tasks.RESIZE)
TASK = tl.constexpr(tasks.TASK)


@triton.jit(do_not_specialize=["step", "rows"])
@no_type_check
def resize(
    images, work, table, step, rows, height, width, blocks, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Stretch a box over the whole where a step says so. Apart, as its doubles fill the registers."""
    task = table + step * TASK * rows + tl.program_id(0) // blocks
    if tl.load(task) == RESIZE:
        plane = height * width
        source = place_of(images, work, tl.load(task + rows), CHANNELS * plane)
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
    left, a, b, c = _taps(x, read_float(task, rows, 0), read_float(task, rows, 1), width)
    top, d, e, f = _taps(y, read_float(task, rows, 2), read_float(task, rows, 3), height)
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
    total = a * read_bytes(line + left, inside)
    total += b * read_bytes(line + tl.minimum(left + 1, width - 1), inside)
    total += c * read_bytes(line + tl.minimum(left + 2, width - 1), inside)
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
