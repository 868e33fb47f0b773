"""Checks of the arguments that the transforms share."""

from enum import Enum
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from outspan.limits import check_positive, check_whole
from outspan.messages import shown
from outspan.shapes import Images, describe
from outspan.transforms.apply import check_images
from outspan.transforms.normalize import check_channels

_MAX_ALPHA = 1e6


def unpack(images: Any, others: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...], bool]:
    """Return the images, the other arguments, and whether the result is a tuple. One tuple counts as all arguments."""
    if isinstance(images, tuple) and images and not others:
        return images[0], images[1:], True
    return images, others, bool(others)


def as_batch(images: Any) -> Images:
    """Return a batch, or an image as a batch of one. Anything else raises a ValueError."""
    check_tensor(images, "[B, C, H, W] or [C, H, W]")
    if images.ndim not in (3, 4):
        how = ": use images.unsqueeze(0) for one gray image" if images.ndim == 2 else ""
        raise ValueError(f"images must be a uint8 tensor [B, C, H, W] or [C, H, W], got {describe(images)}{how}")
    images = images.as_subclass(Tensor)
    if images.dtype == torch.uint8:
        check_channels(images)  # before an axis is added, so that the message shows the shape of the argument
    batch = images.unsqueeze(0) if images.ndim == 3 else images
    check_images(batch)
    return batch


def check_tensor(images: Any, shapes: str, how: str = "") -> None:
    """Raise a ValueError unless images are a tensor; `how` is the advice for types without one of their own."""
    if isinstance(images, Tensor):
        return
    library = type(images).__module__.split(".")[0]
    advice = {"PIL": "put v2.PILToTensor() before this transform", "numpy": "use torch.from_numpy(images)"}
    if isinstance(images, list):
        how = how or "pass the elements of a list one by one, as transform(*batch)"
    how = advice.get(library, how)
    raise ValueError(f"images must be a uint8 tensor {shapes}, got {describe(images)}" + (f": {how}" if how else ""))


def convert_whole(transform: object, name: str, least: int, most: int | None = None) -> None:
    """Store a whole number of another type, such as NumPy's, as an int. Other values raise a ValueError."""
    object.__setattr__(transform, name, check_whole(name, getattr(transform, name), least, most))


def convert_alpha(transform: object, alpha: Any) -> None:
    """Store alpha as a float. Raise a ValueError unless it is positive and at most a million."""
    check_positive("alpha", alpha)
    if alpha > _MAX_ALPHA:
        raise ValueError(f"alpha must be at most {_MAX_ALPHA:,.0f}, got {shown(alpha)}")
    object.__setattr__(transform, "alpha", float(alpha))


def check_pixels(interpolation: Any, fill: Any) -> None:
    """Refuse what the transforms cannot do: they take the nearest pixel, and black outside the image."""
    interpolation = enum_value(interpolation)
    if not isinstance(interpolation, str | int) or interpolation not in ("nearest", 0):
        raise ValueError(f"interpolation must be 'nearest', got {shown(interpolation)}: leave it out")
    values = fill if isinstance(fill, list | tuple) else [0 if fill is None else fill]
    if any(isinstance(value, bool) or not isinstance(value, Real) or value != 0 for value in values):
        raise ValueError(f"fill must be None or 0, which is black, got {shown(fill)}: leave it out")


def enum_value(member: Any) -> Any:
    """Return the value of a member of one of torchvision's enumerations, and any other argument as it is."""
    return member.value if isinstance(member, Enum) else member
