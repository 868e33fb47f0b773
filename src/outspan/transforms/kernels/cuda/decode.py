"""Turn a plan into a table of tasks on the device; magnitudes are computed in double precision, as on the host.

A task is one step of one row. A program decodes a block of rows, step by step. Products and sums must be rounded separately,
so no launch may fuse them (`enable_fp_fusion`).
"""

from typing import no_type_check

import triton
import triton.language as tl

from outspan.transforms.kernels.cuda import tasks

NOTHING = tl.constexpr(tasks.NOTHING)
LOOK_UP = tl.constexpr(tasks.LOOK_UP)
BLEND = tl.constexpr(tasks.BLEND)
FILL = tl.constexpr(tasks.FILL)
PASTE = tl.constexpr(tasks.PASTE)
AFFINE = tl.constexpr(tasks.AFFINE)
REFLECT = tl.constexpr(tasks.REFLECT)
BITS = tl.constexpr(tasks.BITS)
THRESHOLD = tl.constexpr(tasks.THRESHOLD)
TURN = tl.constexpr(tasks.TURN)
SHEAR_X = tl.constexpr(tasks.SHEAR_X)
SHEAR_Y = tl.constexpr(tasks.SHEAR_Y)
MOVE_X = tl.constexpr(tasks.MOVE_X)
MOVE_Y = tl.constexpr(tasks.MOVE_Y)
MIRROR_X = tl.constexpr(tasks.MIRROR_X)
MIRROR_Y = tl.constexpr(tasks.MIRROR_Y)
AS_SENT = tl.constexpr(tasks.AS_SENT)
DEFINITION = tl.constexpr(tasks.DEFINITION)
TASK = tl.constexpr(tasks.TASK)
NEVER = tl.constexpr(1 << 30)  # a position beyond any image


@triton.jit(do_not_specialize=["rows", "steps"])
@no_type_check
def decode(
    definitions, ops, levels, partners, places, source, table, rows, steps, height, width, BLOCK: tl.constexpr
):  # fmt: skip
    """Write the tasks of a block of rows into the table [steps + 1, TASK, rows]; the last entry has only the slots.

    Slot -1 - i is image i. Slots from 0 are in the work space, where each row alternates between two slots. So a step never
    writes what other rows read in it, and a row that does not change is not copied.
    """
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = row < rows
    image = -1 - tl.load(source + row, mask=there, other=0)
    done = tl.zeros_like(row)
    tl.store(table + rows + row, image, mask=there)
    for step in range(steps):
        entry = row * steps + step
        task = table + step * TASK * rows + row
        op = tl.load(ops + entry, mask=there, other=-1)
        level = tl.load(levels + entry, mask=there, other=0).to(tl.float32, bitcast=True)
        definition = definitions + op * DEFINITION
        action = tl.load(definition, mask=op >= 0, other=NOTHING)
        graded = tl.load(definition + 2, mask=op >= 0, other=0)
        action = tl.where((graded != 0) & (level == 0), NOTHING, action)
        acts = action != NOTHING
        done += acts.to(tl.int32)
        tl.store(task, action, mask=there)
        tl.store(task + (TASK + 1) * rows, tl.where(done == 0, image, row + rows * (done & 1)), mask=there)
        formula = tl.load(definition + 1, mask=acts, other=0)
        magnitude = _double(definition + 4, acts) + _double(definition + 6, acts) * level.to(tl.float64)
        partner = tl.load(partners + entry, mask=acts, other=0)
        _write(action, formula, magnitude, partner, places + 4 * entry, task + 2 * rows, rows, height, width, acts)


@triton.jit
@no_type_check
def _double(pointer, inside):
    low = tl.load(pointer, mask=inside, other=0).to(tl.int64) & 0xFFFFFFFF
    high = tl.load(pointer + 1, mask=inside, other=0).to(tl.int64)
    return (low | (high << 32)).to(tl.float64, bitcast=True)


@triton.jit
@no_type_check
def _write(action, formula, magnitude, partner, place, to, rows, height, width, acts):
    """Write the numbers of each action; the columns of the table are `rows` apart."""
    factor = magnitude.to(tl.float32).to(tl.int32, bitcast=True)
    moves = (action == AFFINE) | (action == REFLECT)
    boxes = (action == FILL) | (action == PASTE)
    one = tl.where(formula == BITS, _keep(magnitude), factor)
    one = tl.where(formula == THRESHOLD, magnitude.to(tl.int32), one)
    one = tl.where(formula == AS_SENT, tl.load(place, mask=acts, other=0), one)
    one = tl.where(action == LOOK_UP, formula, one)
    tl.store(to, one, mask=acts & ~moves & ~boxes)
    tl.store(to + rows, factor, mask=action == LOOK_UP)
    tl.store(to + 4 * rows, partner, mask=(action == BLEND) | (action == PASTE))
    for i in tl.static_range(1, 4):
        tl.store(to + i * rows, tl.load(place + i, mask=formula == AS_SENT, other=0), mask=acts & (formula == AS_SENT))
    _write_box(magnitude, place, to, rows, width, boxes)
    _write_box(magnitude, place + 1, to + rows, rows, height, boxes)
    _write_matrix(action, formula, magnitude, place, to, rows, height, width, moves)


@triton.jit
@no_type_check
def _keep(bits):
    """Return the mask that keeps this number of bits; halves are rounded to even, as in Python."""
    whole = tl.floor(bits + 0.5)
    odd = (whole.to(tl.int32) & 1) != 0
    kept = tl.where((whole - bits == 0.5) & odd, whole - 1.0, whole)
    return (0xFF00 >> kept.to(tl.int32)) & 0xFF


@triton.jit
@no_type_check
def _write_box(magnitude, place, to, rows, side, boxes):
    """Write the start of the box on one axis and, two columns later, its end."""
    length = (magnitude * side).to(tl.int32)
    start = (_place(place, boxes) * side).to(tl.int32) - length // 2
    tl.store(to, tl.maximum(start, 0), mask=boxes)
    tl.store(to + 2 * rows, tl.minimum(start + length, side), mask=boxes)


@triton.jit
@no_type_check
def _place(pointer, inside):
    return tl.load(pointer, mask=inside, other=0).to(tl.float32, bitcast=True).to(tl.float64)


@triton.jit
@no_type_check
def _write_matrix(action, formula, magnitude, place, to, rows, height, width, moves):
    """Write a matrix in 16.16 fixed point, and the index from which positions are one higher."""
    turns = moves & (formula == TURN)
    cosine = tl.where(turns, _double(place, turns), 1.0)
    sine = tl.where(turns, _double(place + 2, turns), 0.0)
    across = tl.where(formula == SHEAR_X, magnitude, sine)
    down = tl.where(formula == SHEAR_Y, magnitude, -sine)
    x = width * 0.5
    y = height * 0.5
    right = tl.where(turns, cosine * -x + sine * -y + x, 0.0)
    below = tl.where(turns, -sine * -x + cosine * -y + y, 0.0)
    # Half-pixel centers, added as in Pillow.
    right = _fixed(right + cosine * 0.5 + across * 0.5)
    below = _fixed(below + down * 0.5 + cosine * 0.5)
    # Pillow rotates a square by a quarter turn with a transposition, which has no centers.
    quarter = turns & (cosine == 0) & (height == width)
    right = tl.where(quarter, tl.where(sine < 0, width - 1, 0) << 16, right)
    below = tl.where(quarter, tl.where(sine < 0, 0, height - 1) << 16, below)
    right, late_x = _walk(action, formula == MOVE_X, formula == MIRROR_X, magnitude, place, right, width)
    below, late_y = _walk(action, formula == MOVE_Y, formula == MIRROR_Y, magnitude, place + 1, below, height)
    tl.store(to, tl.where(formula == MIRROR_X, -65536, _fixed(cosine)), mask=moves)
    tl.store(to + rows, _fixed(across), mask=moves)
    tl.store(to + 2 * rows, right, mask=moves)
    tl.store(to + 3 * rows, _fixed(down), mask=moves)
    tl.store(to + 4 * rows, tl.where(formula == MIRROR_Y, -65536, _fixed(cosine)), mask=moves)
    tl.store(to + 5 * rows, below, mask=moves)
    tl.store(to + 6 * rows, late_x, mask=moves)
    tl.store(to + 7 * rows, late_y, mask=moves)


@triton.jit
@no_type_check
def _fixed(value):
    return tl.floor(value * 65536.0 + 0.5).to(tl.int32)


@triton.jit
@no_type_check
def _walk(action, moved, mirrored, magnitude, place, offset, side):
    """Return the offset of a movement along one axis, and the index from which positions are one higher.

    Pillow starts at offset + 0.5 and adds 1.0 in doubles. A sum just below an integer can round up to it, once.
    """
    padding = (magnitude * side + 0.5).to(tl.int32)
    crop = (_place(place, action == REFLECT) * (2 * padding + 1)).to(tl.int32) - padding
    at = tl.where(moved, magnitude * side + 0.5, 0.0)
    shift = tl.floor(at)
    late = tl.zeros_like(offset) + NEVER
    if tl.max((at - shift > 1 - 1e-6).to(tl.int32), 0) > 0:
        for i in range(1, side):
            at += 1.0
            late = tl.where((late == NEVER) & (tl.floor(at) - i > shift), i, late)
    straight = tl.where(moved, shift.to(tl.int32), tl.where(action == REFLECT, crop, side - 1))
    return tl.where(moved | mirrored | (action == REFLECT), straight << 16, offset), late
