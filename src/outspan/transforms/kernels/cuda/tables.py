"""Look-up tables from histograms. A program makes the table of one channel of one row."""

from typing import no_type_check

import triton
import triton.language as tl

from outspan.transforms.kernels.cuda import tasks
from outspan.transforms.kernels.cuda.pixels import blend_bytes, luma, place_of, read_bytes, read_float, read_number

LOOK_UP = tl.constexpr(tasks.LOOK_UP)
STRETCH = tl.constexpr(tasks.STRETCH)
EQUALIZE = tl.constexpr(tasks.EQUALIZE)
TASK = tl.constexpr(tasks.TASK)


@triton.jit(do_not_specialize=["step", "rows"])
@no_type_check
def make_tables(
    images, work, tables, table, step, rows, height, width, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Make the look-up table of one channel of one row for a step, if the step needs one."""
    channel = tl.program_id(0) % CHANNELS
    row = tl.program_id(0) // CHANNELS
    task = table + step * TASK * rows + row
    if tl.load(task) == LOOK_UP:
        source = place_of(images, work, tl.load(task + rows), CHANNELS * height * width)
        values = _make_table(source, task, rows, channel, height * width, CHANNELS, BLOCK)
        tl.store(tables + (row.to(tl.int64) * CHANNELS + channel) * 256 + tl.arange(0, 256), values.to(tl.uint8))


@triton.jit
@no_type_check
def _make_table(source, task, rows, channel, plane, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the table computed from the histogram of a channel, or of the luma."""
    formula = read_number(task, rows, 0)
    counts = tl.zeros([256], dtype=tl.int32)
    for start in range(0, plane, BLOCK):
        pixel = start + tl.arange(0, BLOCK)
        inside = pixel < plane
        value = read_bytes(source + channel * plane + pixel, inside)
        if CHANNELS == 3:  # noqa: SIM102, the outer condition is evaluated at compile time
            if formula > EQUALIZE:
                value = luma(
                    read_bytes(source + pixel, inside),
                    read_bytes(source + plane + pixel, inside),
                    read_bytes(source + 2 * plane + pixel, inside),
                )
        counts += tl.histogram(value, 256)
    level = tl.arange(0, 256)
    counts -= tl.where(level == 0, (plane + BLOCK - 1) // BLOCK * BLOCK - plane, 0)  # pixels outside were read as 0
    if formula == STRETCH:
        values = _stretch(counts, level)
    elif formula == EQUALIZE:
        values = _equalize(counts, level, plane)
    else:
        total = tl.sum(counts.to(tl.int64) * level, 0)
        pivot = (2 * total + plane) // (2 * plane)
        values = blend_bytes(pivot.to(tl.int32) + tl.zeros_like(level), level, read_float(task, rows, 1))
    return values


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
