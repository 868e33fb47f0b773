"""The backend for NVIDIA GPUs, in Triton: one or two launches per step, and nothing waits for the device.

`tasks` checks a plan and packs it into one buffer, `decode` turns the buffer into tasks on the device, and `device` launches
the kernels of `tables`, `steps` and `resize`. Triton is imported when the first plan is executed. With TRITON_INTERPRET=1
the same kernels run slowly on the CPU, for the tests.
"""

import os
from functools import lru_cache
from importlib.util import find_spec

from torch import Tensor

from outspan.plan import Plan
from outspan.shapes import Fill, Images
from outspan.transforms.kernels.cuda import tasks
from outspan.transforms.normalize import Normalize


@lru_cache(maxsize=1)
def is_available() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


def is_interpreted() -> bool:
    """Whether Triton runs its kernels on the CPU, so that images on the CPU are allowed."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@lru_cache(maxsize=256)
def knows(names: tuple[str, ...]) -> bool:
    """Whether there is a kernel for each of these transforms."""
    return is_available() and set(names) <= set(tasks.TRANSFORMS)


def apply(images: Images, plan: Plan, *, fill: Fill, normalize: Normalize | None, out: Tensor) -> bool:
    """Execute a plan into `out`, or return False if it is not valid or the images are too large for fixed point."""
    if not len(plan.out):
        return True
    packed = tasks.pack(plan, tuple(images.shape), fill, normalize, pin=images.is_cuda)
    if packed is None:
        return False
    from outspan.transforms.kernels.cuda import device  # Triton takes a second to import

    device.run(images.contiguous(), packed, normalize, out)
    return True
