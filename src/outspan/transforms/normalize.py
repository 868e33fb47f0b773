"""The preprocessing of images: from bytes to the model's floats, through a table that is the same on every device."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from outspan.messages import shown
from outspan.plan import Plan
from outspan.shapes import Images, Normalized, Num, describe

NOT_BYTES = (
    "images must be a uint8 tensor with values from 0 to 255, got {}: "
    "use v2.PILToTensor() of torchvision instead of ToTensor(), or v2.ToDtype(torch.uint8, scale=True)"
)
_TYPES = (torch.float32, torch.bfloat16, torch.float16)


@runtime_checkable
class Preprocess(Protocol):
    """The last step before the model: `Normalize` for images, padding and special tokens for texts."""

    def __call__(self, inputs: Any, /) -> Tensor:
        """Return the model's input of a batch, without augmentation."""
        ...

    def execute(self, inputs: Any, plan: Plan, /) -> Tensor:
        """Apply a plan to a batch and return the model's input of its outputs."""
        ...

    def check(self, inputs: object, /) -> None:
        """Raise a ValueError if a batch is not of the type that this preprocess takes."""
        ...


@runtime_checkable
class Redrawable(Protocol):
    """The outputs of a plan, of which some may be drawn again because the plan does not change them."""

    def unchanged(self) -> np.ndarray:
        """Return which outputs have transforms and are equal to their sample, bool [M]."""
        ...

    def redraw(self, rows: np.ndarray, plan: Plan) -> np.ndarray:
        """Replace outputs by those of the first attempt that changes them. Return its number, or that of all if none does.

        The plan contains one or more attempts, one after another, each with one output for each of `rows`.
        """
        ...

    def to_inputs(self) -> Tensor:
        """Return the model's input of the outputs."""
        ...


@runtime_checkable
class RedrawingPreprocess(Preprocess, Protocol):
    """A preprocess that can tell which outputs a plan leaves unchanged. Policies draw these again."""

    def augment(self, inputs: Any, plan: Plan, /) -> Redrawable:
        """Apply a plan to a batch, like `execute`."""
        ...


@dataclass(frozen=True)
class Normalize:
    """Normalize uint8 images [B, C, H, W] per channel: (value / 255 - mean) / std, in float64, rounded once to `dtype`.

    `mean` and `std` are those of pixels in [0, 1], as in torchvision. The input is uint8, not float as in torchvision.

    >>> Normalize((0.5,), (0.5,))(torch.tensor([[[[0, 255]]]], dtype=torch.uint8)).flatten().tolist()
    [-1.0, 1.0]
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    dtype: torch.dtype = torch.float32
    channels_last: bool = False

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            try:
                object.__setattr__(self, name, tuple(map(float, getattr(self, name))))
            except (TypeError, ValueError):
                value = shown(getattr(self, name))
                raise ValueError(f"{name} must be one number per channel, e.g. (0.5, 0.5, 0.5), got {value}") from None
        if len(self.mean) not in (1, 3) or len(self.std) != len(self.mean):
            raise ValueError(f"mean and std must both have 1 or 3 entries, got {len(self.mean)} and {len(self.std)}")
        if not np.isfinite(self.mean).all() or not np.isfinite(self.std).all() or min(self.std) <= 0:
            raise ValueError(f"mean must be finite and std positive, got {self.mean} and {self.std}")
        if max(self.mean) > 2:
            raise ValueError(f"mean must be that of pixels in [0, 1], got {self.mean}: divide mean and std by 255")
        if self.dtype not in _TYPES:
            raise ValueError(f"dtype must be one of {', '.join(map(str, _TYPES))}, got {self.dtype}")

    @cached_property
    def table(self) -> Tensor:
        """The normalized value of every byte, [channels, 256]."""
        exact = (np.arange(256) / 255 - np.array(self.mean)[:, None]) / np.array(self.std)[:, None]
        if self.dtype == torch.float16:
            return torch.from_numpy(exact.astype(np.float16))
        if self.dtype == torch.bfloat16:
            # A conversion through float32 would round twice. Round to 8 bits of mantissa here; the conversion is then exact.
            mantissa, exponent = np.frexp(exact)
            exact = np.ldexp(np.rint(mantissa * 256), exponent - 8)
        return torch.from_numpy(exact).to(self.dtype)

    @property
    def layout(self) -> torch.memory_format:
        """The memory format of the result."""
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def __call__(self, images: Images) -> Normalized:
        """Return the images as floats: every byte is looked up in the table."""
        if as_images(images).dtype != torch.uint8:
            raise ValueError(NOT_BYTES.format(images.dtype))
        self.check(images)
        index = images.long() + 256 * torch.arange(len(self.mean), device=images.device).view(-1, 1, 1)
        return self.table.to(images.device).flatten()[index].contiguous(memory_format=self.layout)

    @cached_property
    def fill(self) -> tuple[int, ...]:
        """The mean as a byte per channel: the color that cutout fills with."""
        return tuple(round(255 * min(max(mean, 0), 1)) for mean in self.mean)

    def execute(self, images: Images, plan: Plan) -> Num[Tensor, "M C H W"]:
        """Apply a plan and normalize its outputs; cutout fills with the mean."""
        from outspan.transforms.apply import apply  # it imports this module

        return apply(images, plan, fill=self.fill, normalize=self)

    def check(self, inputs: object) -> None:
        """Raise a ValueError unless the inputs are a batch of images with as many channels as the mean."""
        channels = as_images(inputs).shape[1]
        if len(self.mean) != channels:
            how = "pass one of each, or images.expand(-1, 3, -1, -1)" if channels == 1 else f"pass {channels} of each"
            problem = f"Normalize must have one mean and std per channel, got {len(self.mean)} for {channels} channels"
            raise ValueError(f"{problem}: {how}")


@dataclass(frozen=True)
class Scale:
    """Scale bytes to [0, 1], for images of any number of channels."""

    def __call__(self, images: Images) -> Normalized:
        """Return the images as floats in [0, 1]."""
        return _to_unit(images.shape[1])(images)

    def execute(self, images: Images, plan: Plan) -> Num[Tensor, "M C H W"]:
        """Apply a plan and scale its outputs; cutout fills with black."""
        return _to_unit(images.shape[1]).execute(images, plan)

    def check(self, inputs: object) -> None:
        """Raise a ValueError unless the inputs are a batch of images."""
        as_images(inputs)


DEFAULT_PREPROCESS: Preprocess = Scale()  # what policies use without `preprocess`


@lru_cache(maxsize=8)
def _to_unit(channels: int) -> Normalize:
    return Normalize((0.0,) * channels, (1.0,) * channels)


def as_images(inputs: object) -> Tensor:
    """Return the inputs if they are a tensor [B, C, H, W] with 1 or 3 channels. Anything else raises a ValueError."""
    if not isinstance(inputs, Tensor) or inputs.ndim != 4:
        how = ": a policy for texts needs preprocess=outspan.text.PadTokens()" if _are_texts(inputs) else ""
        raise ValueError(f"images must be a uint8 tensor [B, C, H, W], got {describe(inputs)}{how}")
    check_channels(inputs)
    return inputs


def _are_texts(inputs: object) -> bool:
    """Return whether inputs are tokens [B, T] or the texts of a policy, which have the shape of images of 1 x 1 pixels."""
    if isinstance(inputs, Tensor):
        return inputs.ndim == 2 and inputs.dtype == torch.int64
    return getattr(inputs, "shape", ())[1:] == (1, 1)


def check_channels(images: Tensor) -> None:
    """Raise a ValueError unless images [B, C, H, W], or one image [C, H, W], have 1 or 3 channels."""
    channels, last = images.shape[-3], images.shape[-1]
    if channels in (1, 3):
        return
    expected, order, start = ("[B, C, H, W]", "0, 3, 1, 2", ":, ") if images.ndim == 4 else ("[C, H, W]", "2, 0, 1", "")
    hint = ""
    if last in (1, 3):  # channels in the last axis are a common mistake
        hint = f": use images.permute({order})"
    elif channels == 4:
        hint = f": convert RGBA to RGB, for example with images[{start}:3]"
    elif last == 4:
        hint = f": convert RGBA to RGB and move the channels, with images[..., :3].permute({order})"
    raise ValueError(f"images must be {expected} with 1 or 3 channels, got {list(images.shape)}{hint}")
