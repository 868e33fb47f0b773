"""Resize a box to the full image, as Pillow's bilinear filter does: horizontally, rounded to bytes, then vertically."""

from typing import no_type_check

import triton
import triton.language as tl

from outspan.transforms.kernels.cuda import tasks
from outspan.transforms.kernels.cuda.pixels import place_of, read_bytes, read_float

RESIZE = tl.constexpr(tasks.RESIZE)
TASK = tl.constexpr(tasks.TASK)


@triton.jit(do_not_specialize=["step", "rows"])
@no_type_check
def do_resizes(
    images, work, table, step, rows, height, width, blocks, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Do the resizes of a step. They have their own kernel, because their doubles need many registers."""
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
    """Resize horizontally, rounded to bytes, then vertically."""
    plane = height * width
    inside = pixel < plane
    y = tl.minimum(pixel // width, height - 1)  # outside the image all taps would have weight 0
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
    """Return the first of Pillow's three taps, and their weights in 22 bits, computed in doubles as in Pillow."""
    scale = (stop - start).to(tl.float64) / side  # at most 1, so the support is one pixel
    center = start.to(tl.float64) + (index.to(tl.float64) + 0.5) * scale
    first = tl.maximum((center - 1.0 + 0.5).to(tl.int32), 0)
    end = tl.minimum((center + 1.0 + 0.5).to(tl.int32), side)
    a = _weight(first, center, end)
    b = _weight(first + 1, center, end)
    c = _weight(first + 2, center, end)
    total = a + b + c
    return first, _in_22_bits(a, total), _in_22_bits(b, total), _in_22_bits(c, total)


@triton.jit
@no_type_check
def _weight(tap, center, end):
    distance = tl.abs(tap.to(tl.float64) - center + 0.5)
    return tl.where((distance < 1.0) & (tap < end), 1.0 - distance, 0.0)


@triton.jit
@no_type_check
def _in_22_bits(weight, total):
    return (0.5 + weight / total * 4194304.0).to(tl.int32)
