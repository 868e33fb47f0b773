"""Type names of tensors with their shapes.

The shapes are checked at run time only in the test suite, by its import hook. Without jaxtyping, which is
a development dependency, each name is the plain tensor type.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

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
Labels: TypeAlias = Int64[Tensor, " N"] | Bool[Tensor, "N classes"]  # class indices; or multi-hot: any number per sample
BatchLabels: TypeAlias = Num[Tensor, "B ..."] | Bool[Tensor, "B classes"]  # class indices or soft labels; or multi-hot
Fill: TypeAlias = UInt8[Tensor, " C"]
Normalized: TypeAlias = Num[Tensor, "B C H W"]


@runtime_checkable
class Inputs(Protocol):
    """A batch of samples as a split returns it: images [B, C, H, W], or documents, whose shape is [B, 1, 1].

    `mix_labels` computes the weights of labels from the last two sizes, the height and width.
    """

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


class _SampleType(NamedTuple):
    noun: str
    channel_axes: int  # the number of leading axes that are channels, with a mean and a std each
    unit: str = ""  # of the last axis


_SAMPLE_TYPES = {3: _SampleType("images", 1), 1: _SampleType("texts", 0, " tokens")}  # by the number of axes of a sample


def noun_of_shape(shape: Sequence[int]) -> str:
    """Return what samples of a shape are called: "images" for [C, H, W], "texts" for [T].

    >>> noun_of_shape((3, 32, 32)), noun_of_shape((512,))
    ('images', 'texts')
    """
    return _sample_type(shape).noun


def channels_of_shape(shape: Sequence[int]) -> int:
    """Return the number of channels of a sample: C for [C, H, W], 0 for [T].

    >>> channels_of_shape((3, 32, 32)), channels_of_shape((512,))
    (3, 0)
    """
    return sum(shape[: _sample_type(shape).channel_axes])


def describe_size(shape: Sequence[int]) -> str:
    """Return the size of a sample in words.

    >>> describe_size((3, 32, 32)), describe_size((512,))
    ('3 x 32 x 32', '512 tokens')
    """
    return " x ".join(map(str, shape)) + _sample_type(shape).unit


def _sample_type(shape: Sequence[int]) -> _SampleType:
    if len(shape) not in _SAMPLE_TYPES:
        raise ValueError(f"the shape of a sample must be [C, H, W] or [T], got {list(shape)}")
    return _SAMPLE_TYPES[len(shape)]
