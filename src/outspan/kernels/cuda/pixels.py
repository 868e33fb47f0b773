"""What the kernels share: where an image lies, what a task says, and arithmetic on bytes as Pillow has it.

Bytes are widened to 32-bit integers before any arithmetic; blends are in C floats as Pillow's; doubles are used only
where Pillow does. Products and sums must round one after the other, so no launch may fuse them (`enable_fp_fusion`).
The suite's type checker would wrap a kernel before Triton reads it: `no_type_check` keeps it off, here and beside.
"""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def place_of(images, work, slot, size):
    """Return where a slot begins: below 0 it is an image, else a place in the work space."""
    start = slot.to(tl.int64)
    return tl.where(start < 0, images + (-1 - start) * size, work + start * size)


@triton.jit
@no_type_check
def read_number(task, rows, column):
    """Return one of the numbers that a task needs."""
    return tl.load(task + (2 + column) * rows)


@triton.jit
@no_type_check
def read_float(task, rows, column):
    """Return one of them that is a float."""
    return read_number(task, rows, column).to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def read_bytes(pointer, inside):
    """Return bytes as 32-bit integers, 0 where there are none."""
    return tl.load(pointer, mask=inside, other=0).to(tl.int32)


@triton.jit
@no_type_check
def blend(first, second, factor):
    """Pillow's blend: clipped, then truncated."""
    start = first.to(tl.float32)
    value = start + factor * (second.to(tl.float32) - start)
    return tl.minimum(tl.maximum(value, 0.0), 255.0).to(tl.int32)


@triton.jit
@no_type_check
def luma(red, green, blue):
    """Pillow's grey, in 16.16 fixed point."""
    return (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
