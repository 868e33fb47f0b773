"""Functions that the kernels share: addresses of images, numbers of tasks, and Pillow's arithmetic on bytes.

Bytes are widened to 32-bit integers before any arithmetic. Blends use C floats, and doubles are used only where Pillow uses
them. Products and sums must be rounded separately, so no launch may fuse them (`enable_fp_fusion`). `no_type_check` keeps the
type checker of the test suite from wrapping a kernel before Triton reads it.
"""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def place_of(images, work, slot, size):
    """Return the address of a slot: an image if the slot is negative, else a part of the work space."""
    start = slot.to(tl.int64)
    return tl.where(start < 0, images + (-1 - start) * size, work + start * size)


@triton.jit
@no_type_check
def read_number(task, rows, column):
    """Return a number of a task."""
    return tl.load(task + (2 + column) * rows)


@triton.jit
@no_type_check
def read_float(task, rows, column):
    """Return a number of a task that is a float."""
    return read_number(task, rows, column).to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def read_bytes(pointer, inside):
    """Return bytes as 32-bit integers, 0 outside."""
    return tl.load(pointer, mask=inside, other=0).to(tl.int32)


@triton.jit
@no_type_check
def blend_bytes(first, second, factor):
    """Pillow's blend: clipped, then truncated."""
    start = first.to(tl.float32)
    value = start + factor * (second.to(tl.float32) - start)
    return tl.minimum(tl.maximum(value, 0.0), 255.0).to(tl.int32)


@triton.jit
@no_type_check
def luma(red, green, blue):
    """Pillow's luma, in 16.16 fixed point."""
    return (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
