"""The last step: from bytes to the model's numbers, by a table that is the same everywhere."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from outspan.shapes import Images, Normalized

NOT_BYTES = (
    "images must be bytes, torch.uint8 with values from 0 to 255, got {}: "
    "use torchvision.transforms.PILToTensor() instead of ToTensor()"
)
_TYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Normalize:
    """(value / 255 - mean) / std a channel, in float64, rounded once to `dtype`."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    dtype: torch.dtype = torch.float32
    channels_last: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", tuple(map(float, self.mean)))
        object.__setattr__(self, "std", tuple(map(float, self.std)))
        if len(self.mean) not in (1, 3) or len(self.std) != len(self.mean):
            raise ValueError(f"mean and std must both have 1 or 3 entries, got {len(self.mean)} and {len(self.std)}")
        if not np.isfinite(self.mean).all() or not np.isfinite(self.std).all() or min(self.std) <= 0:
            raise ValueError(f"mean must be finite and std positive, got {self.mean} and {self.std}")
        if max(self.mean) > 2:
            raise ValueError(
                f"mean must be that of bytes / 255, which lie in [0, 1], got {self.mean}: divide mean and std by 255"
            )
        if self.dtype not in _TYPES:
            raise ValueError(f"dtype must be one of {', '.join(map(str, _TYPES))}, got {self.dtype}")

    @cached_property
    def table(self) -> Tensor:
        """The value of every byte, [channels, 256]."""
        exact = (np.arange(256) / 255 - np.array(self.mean)[:, None]) / np.array(self.std)[:, None]
        if self.dtype == torch.float16:
            return torch.from_numpy(exact.astype(np.float16))
        if self.dtype == torch.bfloat16:
            # Through float32 it would be rounded twice; to 8 bits of mantissa first, the rest is exact.
            mantissa, exponent = np.frexp(exact)
            exact = np.ldexp(np.rint(mantissa * 256), exponent - 8)
        return torch.from_numpy(exact).to(self.dtype)

    @property
    def layout(self) -> torch.memory_format:
        """How the result lies in memory."""
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def __call__(self, images: Images) -> Normalized:
        """Look up every pixel."""
        if images.dtype != torch.uint8:
            raise ValueError(NOT_BYTES.format(images.dtype))
        channels = images.shape[1]
        if channels != len(self.mean):
            raise ValueError(f"mean and std are for {len(self.mean)} channels, the images have {channels}")
        index = images.long() + 256 * torch.arange(channels, device=images.device).view(-1, 1, 1)
        return self.table.to(images.device).flatten()[index].contiguous(memory_format=self.layout)


def normalize(
    images: Images,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    *,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = False,
) -> Normalized:
    """Turn bytes into the model's numbers: (value / 255 - mean) / std a channel.

    >>> normalize(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), (0.5,), (0.5,)).flatten().tolist()
    [-1.0, 1.0]
    """
    return Normalize(mean, std, dtype, channels_last)(images)
