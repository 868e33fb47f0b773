"""The executor of plans: checks a plan against its images, selects the backend, and defines what each step does."""

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from outspan.messages import shown
from outspan.plan import Plan
from outspan.shapes import Fill, Images, PerSample, UInt8
from outspan.transforms.kernels import cpu, cuda
from outspan.transforms.normalize import NOT_BYTES, Normalize, check_channels
from outspan.transforms.table import TRANSFORMS, Transform, find

Backend = Literal["auto", "reference", "cpu", "cuda"]
LARGEST_SIDE = 2**31 - 1


def apply(
    images: Images,
    plan: Plan,
    *,
    fill: Sequence[int] | None = None,
    backend: Backend = "auto",
    normalize: Normalize | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Apply a plan to images: every image gets its own transforms. The pixels are identical to Pillow's.

    Args:
        images: uint8 [B, C, H, W] with 1 or 3 channels.
        plan: Which transforms to apply; see `Plan`. The result has one image per entry of `plan.out`.
        fill: The color of cutout, one whole number from 0 to 255 per channel. The default is black.
        backend: "reference" (PyTorch), "cpu" (C++), "cuda" (Triton), or "auto" for the fastest one. All return the same
            bytes.
        normalize: If not None, the result is normalized, otherwise it is uint8.
        out: A tensor for the result. In a loop this is faster than a new tensor for each batch.

    >>> apply(torch.tensor([[[[0, 200]]]], dtype=torch.uint8), Plan.of([["invert"]])).tolist()
    [[[[255, 55]]]]
    """
    check_images(images)
    if not isinstance(plan, Plan):
        raise ValueError(f"plan must be a Plan, got {shown(plan)}: use Plan.of, or outspan.apply_ops for one image")
    if not isinstance(normalize, Normalize | None):
        raise ValueError(f"normalize must be an outspan.Normalize, got {type(normalize).__name__}")
    color = _fill(None if fill is None else tuple(fill) if isinstance(fill, Sequence) else (fill,), images.shape[1])
    if normalize is not None and len(normalize.mean) != images.shape[1]:
        raise ValueError(f"normalize must have one mean per channel, got {len(normalize.mean)} for {images.shape[1]} channels")
    selected = _select(backend, images, plan)
    out = _prepare_out(out, images, plan, normalize)
    kernel = {"cpu": cpu, "cuda": cuda}.get(selected)
    if kernel is not None and kernel.apply(images, plan, fill=color, normalize=normalize, out=out):
        return out
    check_plan(plan, len(images))  # the kernel refuses invalid plans without a message; this raises it
    done = _reference(images, plan, color)
    return out.copy_(done if normalize is None else normalize(done))


def magnitudes(plan: Plan, name: str, rows: Tensor, step: int) -> PerSample:
    """Return the levels of these rows in the unit of the transform, in double precision."""
    return TRANSFORMS[name].rest + TRANSFORMS[name].span * plan.levels[rows, step].double()


def rows_by_transform(plan: Plan, step: int, names: Collection[str] | None = None) -> dict[str, Tensor]:
    """Return the rows that a step changes, by transform: of `names`, or of all transforms. Level 0 changes nothing."""
    column, levels = plan.ops[:, step].numpy(), plan.levels[:, step].numpy()
    changed = {}
    for op, name in enumerate(plan.names):
        if names is not None and name not in names:
            continue
        acts = column == op
        if TRANSFORMS[name].graded:
            acts &= levels != 0
        if acts.any():
            changed[name] = torch.from_numpy(acts.nonzero()[0])
    return changed


def _reference(images: Images, plan: Plan, fill: Fill) -> UInt8[Tensor, "M C H W"]:
    """Execute a plan step by step in torch, on any device. The kernels must return the same bytes."""
    state = images[plan.source.to(images.device)]
    for step in range(plan.ops.shape[1]):
        before, state = state, state.clone()
        for name, rows in rows_by_transform(plan, step).items():
            transform = TRANSFORMS[name]
            here = rows.to(images.device)
            extra = {}
            if transform.placed:
                extra["place"] = plan.places[rows, step].double()
            if transform.fills:
                extra["fill"] = fill
            if transform.mixes:
                extra["partner"] = before[plan.partners[rows, step].to(images.device)]
            graded = (magnitudes(plan, name, rows, step),) if transform.graded else ()
            state[here] = transform.function(before[here], *graded, **extra)
    return state[plan.out.to(images.device)]


def _select(backend: Backend, images: Images, plan: Plan) -> Backend:
    device = images.device.type
    if backend == "reference":
        return backend
    if backend == "cpu":
        if not cpu.is_built():
            raise ValueError("backend 'cpu' is not built: install outspan with a C++ compiler, or use 'reference'")
        if device != "cpu":
            raise ValueError(f"backend 'cpu' needs images on the cpu, got {images.device}")
        return _check_names(backend, plan, cpu.knows)
    if backend == "cuda":
        if not cuda.is_available():
            raise ValueError("backend 'cuda' needs Triton, which is not installed: pip install triton, or use 'reference'")
        if device != "cuda" and not (device == "cpu" and cuda.is_interpreted()):
            raise ValueError(f"backend 'cuda' needs images on a GPU, got {images.device}")
        return _check_names(backend, plan, cuda.knows)
    if backend != "auto":
        raise ValueError(f"backend must be 'auto', 'reference', 'cpu' or 'cuda', got {backend!r}")
    if device == "cuda":
        return "cuda" if cuda.knows(plan.names) else "reference"
    if device == "cpu" and not cpu.is_built():
        _warn_slow()
    return "cpu" if device == "cpu" and cpu.knows(plan.names) else "reference"


def _check_names(backend: Backend, plan: Plan, knows: Callable[[tuple[str, ...]], bool]) -> Backend:
    for name in plan.names:
        find(name)  # an unknown name is a different error
        if not knows((name,)):
            raise ValueError(f"backend {backend!r} has no transform {name!r}: use 'auto' or 'reference'")
    return backend


@lru_cache(maxsize=1)  # warn once
def _warn_slow() -> None:
    warnings.warn(
        "outspan was installed without its compiled kernel, because there was no C++ compiler: using the reference backend, "
        "which returns the same bytes but is slower",
        stacklevel=4,
    )


def _prepare_out(out: Tensor | None, images: Images, plan: Plan, normalize: Normalize | None) -> Tensor:
    """Return the tensor for the result: a new one, or `out` if it has the right shape, dtype and device."""
    shape = (plan.out.shape[0], *images.shape[1:])
    dtype, layout = torch.uint8, torch.contiguous_format
    if normalize is not None:
        dtype, layout = normalize.dtype, normalize.layout
    if out is None:
        return torch.empty(shape, dtype=dtype, device=images.device, memory_format=layout)
    if out.shape != shape or out.dtype != dtype or out.device != images.device or not out.is_contiguous(memory_format=layout):
        expected = f"{dtype} {list(shape)} on {images.device}, {layout}"
        raise ValueError(f"out must be {expected}, got {out.dtype} {list(out.shape)} on {out.device}, strides {out.stride()}")
    begin, end = images.data_ptr(), images.data_ptr() + _extent(images)
    if out.data_ptr() < end and begin < out.data_ptr() + _extent(out):
        raise ValueError("out must not share memory with the images")
    return out


def _extent(tensor: Tensor) -> int:
    """Return the number of bytes from the first to the last byte of a tensor, including the gaps of its strides."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (reach + 1) * tensor.element_size() if tensor.numel() else 0


def check_images(images: Tensor) -> None:
    """Raise a ValueError unless images are a uint8 tensor [B, C, H, W] with 1 or 3 channels and at least one pixel."""
    if not isinstance(images, Tensor):
        raise ValueError(f"images must be a uint8 tensor [B, C, H, W], got {type(images).__name__}")
    if images.dtype != torch.uint8:
        raise ValueError(NOT_BYTES.format(images.dtype))
    shape = images.shape
    if len(shape) != 4:
        raise ValueError(f"images must have shape [batch, channels, height, width], got {list(shape)}")
    check_channels(images)
    height, width = shape[2:]
    if height < 1 or width < 1:
        raise ValueError(f"images must have at least one pixel, got {[height, width]}")
    if height > LARGEST_SIDE or width > LARGEST_SIDE:
        raise ValueError(
            f"images must have sides of at most {LARGEST_SIDE} pixels, got {[height, width]}: split them into tiles"
        )


def check_plan(plan: Plan, batch: int, known: Mapping[str, Transform] = TRANSFORMS) -> None:
    """Raise a ValueError if a plan does not fit a batch of this size: names, levels, partners, places, sources."""
    check_source(plan, batch)  # first, because it checks the bounds of all indices used below
    transforms = [find(name, known) for name in plan.names]
    # Op -1 reads the last entry.
    low, high = np.array([*(t.levels for t in transforms), (-np.inf, np.inf)], dtype=np.float32).T
    mixes = np.array([*(t.mixes for t in transforms), False])
    ops, levels = plan.ops.numpy(), plan.levels.numpy()
    wrong = ~((low[ops] <= levels) & (levels <= high[ops])) & (ops >= 0)
    if wrong.any():
        row, step = map(int, np.argwhere(wrong)[0])
        op, level = ops[row, step], levels[row, step]
        raise ValueError(f"level of {plan.names[op]!r} must lie in [{low[op]:g}, {high[op]:g}], got {level:g} in row {row}")
    alone = mixes[ops] & (levels != 0) & (plan.partners.numpy() < 0)
    if alone.any():
        row, step = map(int, np.argwhere(alone)[0])
        raise ValueError(f"{plan.names[ops[row, step]]!r} in row {row} needs a partner row, got {plan.partners[row, step]}")
    places = plan.places.numpy()
    if places.size and not (places.min() >= 0 and places.max() < 1):
        raise ValueError(f"places must lie in [0, 1), got {places.min():g} to {places.max():g}")


def check_source(plan: Plan, batch: int) -> None:
    """Raise a ValueError if a plan has invalid row numbers or reads images beyond a batch of this size."""
    plan.check()
    if plan.source.numel() and (largest := int(plan.source.numpy().max())) >= batch:
        raise ValueError(f"the plan reads image {largest}, but the batch has {batch} images")


@lru_cache(maxsize=64)
def _fill(fill: tuple[int, ...] | None, channels: int) -> Fill:
    values = (0,) * channels if fill is None else fill
    if len(values) != channels or not all(isinstance(value, int) and 0 <= value <= 255 for value in values):
        raise ValueError(f"fill must be {channels} whole numbers from 0 to 255, got {fill}")
    return torch.tensor(values, dtype=torch.uint8)
