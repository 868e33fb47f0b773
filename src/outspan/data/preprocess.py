"""The preprocessing of a split, the last step before the model: images are normalized, texts are padded."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch

from outspan.text.executor import PadTokens
from outspan.transforms.normalize import Normalize, Preprocess


def _normalize(mean: Sequence[float], std: Sequence[float], dtype: torch.dtype, channels_last: bool) -> Normalize:
    return Normalize(tuple(mean), tuple(std), dtype, channels_last)


_PREPROCESS: Mapping[str, Callable[[Sequence[float], Sequence[float], torch.dtype, bool], Preprocess]] = MappingProxyType(
    {"images": _normalize, "texts": lambda *_: PadTokens()}
)


def make_preprocess(
    noun: str,
    mean: Sequence[float],
    std: Sequence[float],
    dtype: torch.dtype = torch.float32,
    *,
    channels_last: bool = False,
) -> Preprocess:
    """Return the preprocessing of "images" or "texts". Images need the mean and std per channel; texts have none."""
    return _PREPROCESS[noun](mean, std, dtype, channels_last)
