"""Type names of tensors with their shapes.

The shapes are checked at run time only in the test suite, by its import hook. Without jaxtyping, which is
a development dependency, each name is the plain tensor type.
"""

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Float64, Int16, Int64, Num, UInt8
else:
    try:
        from jaxtyping import Bool, Float32, Float64, Int16, Int64, Num, UInt8
    except ImportError:

        class _Shapeless:
            def __class_getitem__(cls, item: Any) -> Any:
                return item[0]

        Bool = Float32 = Float64 = Int16 = Int64 = Num = UInt8 = _Shapeless

Images: TypeAlias = UInt8[Tensor, "B C H W"]
PerSample: TypeAlias = Float64[Tensor, " B"]  # magnitudes, in a transform's unit, on the host
Places: TypeAlias = Float64[Tensor, "B 4"]  # on the host
Fill: TypeAlias = UInt8[Tensor, " C"]
Normalized: TypeAlias = Num[Tensor, "B C H W"]


@runtime_checkable
class Inputs(Protocol):
    """A batch of samples as a split returns it: images [B, C, H, W], or documents, whose last two sizes are 1."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def device(self) -> torch.device: ...

    def __len__(self) -> int: ...


def describe(value: object) -> str:
    """Return what a value is, for messages about wrong arguments: a tensor's dtype and shape, or else its type."""
    if isinstance(value, Tensor):
        return f"{value.dtype} {list(value.shape)}"
    name = type(value).__name__
    return f"a {name} of {type(value[0]).__name__}" if isinstance(value, list | tuple) and value else f"a value of type {name}"


_NOUNS = {3: "images", 1: "texts"}  # by the number of axes of a sample


def noun_of_shape(shape: tuple[int, ...]) -> str:
    """Return what samples of a shape are called: "images" for [C, H, W], "texts" for [T].

    >>> noun_of_shape((3, 32, 32)), noun_of_shape((512,))
    ('images', 'texts')
    """
    if len(shape) not in _NOUNS:
        raise ValueError(f"the shape of a sample must be [C, H, W] or [T], got {list(shape)}")
    return _NOUNS[len(shape)]
