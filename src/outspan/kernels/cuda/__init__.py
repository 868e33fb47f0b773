"""The backend for NVIDIA GPUs: Triton, a launch or two a step, nothing that waits for the device.

`tasks` checks a plan and sends it as one buffer; `decode` turns it into tasks there; `device` works them off by the kernels of
`tables`, `steps` and `resize`. Triton is imported when the first plan is executed, and under TRITON_INTERPRET=1 the same
kernels run on the CPU, slowly, for the tests.
"""

import os
from functools import lru_cache
from importlib.util import find_spec

from torch import Tensor

from outspan.kernels.cuda import tasks
from outspan.plan import Plan
from outspan.shapes import Fill, Images
from outspan.transforms.normalize import Normalize


@lru_cache(maxsize=1)
def is_available() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


def is_interpreted() -> bool:
    """Whether Triton runs its kernels on the CPU, so that images there are allowed."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@lru_cache(maxsize=256)
def knows(names: tuple[str, ...]) -> bool:
    """Whether there is a kernel for every one of these transforms."""
    return is_available() and set(names) <= set(tasks.TRANSFORMS)


def apply(images: Images, plan: Plan, *, fill: Fill, normalize: Normalize | None, out: Tensor) -> bool:
    """Execute a plan into `out`, or return False where it is not valid or the images are too large for fixed point."""
    if not len(plan.out):
        return True
    packed = tasks.pack(plan, tuple(images.shape), fill, normalize, pin=images.is_cuda)
    if packed is None:
        return False
    from outspan.kernels.cuda import device  # Triton takes a second to import

    device.run(images.contiguous(), packed, normalize, out)
    return True
