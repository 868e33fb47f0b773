"""The backend for CPUs, in C++: one row at a time in cache; AVX-512, AVX2 or baseline code is selected at run time."""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from outspan.plan import Plan
from outspan.shapes import Fill, Images
from outspan.transforms.normalize import Normalize
from outspan.transforms.table import find

try:
    from outspan.transforms.kernels.cpu import _cpu
except ImportError:  # installed without a compiler
    _cpu = None

LARGEST_PLANE = 2**29  # pixels per channel; up to this size all positions and sizes in the kernel fit 32 bits


def is_built() -> bool:
    """Whether the compiled module is installed."""
    return _cpu is not None


@lru_cache(maxsize=256)
def knows(names: tuple[str, ...]) -> bool:
    """Whether the kernel has all of these transforms."""
    return _cpu is not None and set(names) <= set(_cpu.NAMES)


@lru_cache(maxsize=256)
def _meaning(names: tuple[str, ...]) -> Any:
    assert _cpu is not None
    transforms = [find(name) for name in names]
    low, high = zip(*(t.levels for t in transforms), strict=True) if transforms else ((), ())
    return _cpu.mean(list(names), [t.rest for t in transforms], [t.span for t in transforms], list(low), list(high))


def apply(images: Images, plan: Plan, *, fill: Fill, normalize: Normalize | None, out: Tensor) -> bool:
    """Execute a plan into `out`, or return False if it is not valid or the images are too large for 32-bit positions.

    The GIL is released meanwhile. At most `torch.get_num_threads()` threads are used.
    """
    assert _cpu is not None
    batch, channels, height, width = images.shape
    if height * width > LARGEST_PLANE or not plan.has_valid_layout():
        return False
    table, size, channels_last = 0, 0, False
    if normalize is not None:
        table, size, channels_last = normalize.table.data_ptr(), normalize.table.element_size(), normalize.channels_last
    images = images.contiguous()
    columns = [t.contiguous() for t in (plan.ops, plan.levels, plan.places, plan.partners, plan.source, plan.out)]
    return _cpu.apply(
        _meaning(plan.names),
        images.data_ptr(),
        (batch, channels, height, width),
        out.data_ptr(),
        [column.data_ptr() for column in columns],
        (*plan.ops.shape, plan.out.shape[0]),
        fill.data_ptr(),
        table,
        size,
        channels_last,
        torch.get_num_threads(),
    )
