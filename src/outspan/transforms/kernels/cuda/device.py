"""Launch the kernels that execute the tasks of a plan, and the last one, which writes the output."""

from contextlib import nullcontext
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from outspan.shapes import Images
from outspan.transforms.kernels.cuda import tasks
from outspan.transforms.kernels.cuda.decode import decode
from outspan.transforms.kernels.cuda.pixels import place_of
from outspan.transforms.kernels.cuda.resize import do_resizes
from outspan.transforms.kernels.cuda.steps import do_step
from outspan.transforms.kernels.cuda.tables import make_tables
from outspan.transforms.kernels.cuda.tasks import Packed
from outspan.transforms.normalize import Normalize

TASK = tl.constexpr(tasks.TASK)
_DECODED = 64  # rows that a program decodes


@triton.jit(do_not_specialize=["steps", "rows"])
@no_type_check
def finish(
    images, work, table, chosen, values, out, steps, rows, height, width, blocks,
    CHANNELS: tl.constexpr, NORMALIZED: tl.constexpr, CHANNELS_LAST: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Write one block of one output, as bytes or through the table of the normalization, in the output's memory format."""
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
    source = place_of(images, work, slot, CHANNELS * plane)
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
                _launch(make_tables, rows * channels, images, work, tables, table, *where, channels, block)
            if launches & tasks.STEP:
                block, blocks = _blocks(plane, 1024)
                _launch(do_step, rows * blocks, images, work, tables, table, fill, *where, blocks, channels, block)
            if launches & tasks.RESIZES:
                block, blocks = _blocks(plane, 512)
                _launch(do_resizes, rows * blocks, images, work, table, *where, blocks, channels, block)
        _write_output(images, work, table, buffer[packed.out], buffer[packed.values], normalize, out)


def decode_on(buffer: Tensor, packed: Packed, height: int, width: int) -> Tensor:
    """Return the tasks of a plan whose buffer is on the device, [steps + 1, TASK, rows]."""
    steps, rows = len(packed.launches), packed.rows
    table = buffer.new_empty((steps + 1, tasks.TASK, rows))
    parts = packed.definitions, packed.ops, packed.levels, packed.partners, packed.places, packed.source
    programs = triton.cdiv(rows, _DECODED)
    _launch(decode, programs, *(buffer[part] for part in parts), table, rows, steps, height, width, _DECODED)
    return table


def _write_output(
    images: Images, work: Tensor, table: Tensor, chosen: Tensor, values: Tensor, normalize: Normalize | None, out: Tensor
) -> None:
    channels, height, width = images.shape[1:]
    block, blocks = _blocks(channels * height * width, 1024)
    # Values are only looked up and stored, so integers of the same size can represent them, and dtypes share a kernel.
    dtype = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[out.element_size()]
    buffers = images, work, table, chosen, values.view(dtype), out.view(dtype), len(table) - 1, table.shape[2]
    options = normalize is not None, normalize is not None and normalize.channels_last
    _launch(finish, len(chosen) * blocks, *buffers, height, width, blocks, channels, *options, block)


def _launch(kernel: Any, programs: int, *arguments: Any) -> None:
    kernel[(programs,)](*arguments, num_warps=4, enable_fp_fusion=False)


def _blocks(count: int, most: int) -> tuple[int, int]:
    """Return the pixels per program and the number of programs. Few powers of two are used, as each is compiled."""
    block = max(128, min(most, triton.next_power_of_2(count)))
    return block, triton.cdiv(count, block)
