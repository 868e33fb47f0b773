"""The preprocessing of a split, the last step before the model: images are normalized, texts are padded."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch

from outspan.text.executor import PadTokens
from outspan.transforms.normalize import Normalize, Preprocess


def _normalize(mean: Sequence[float], std: Sequence[float], on_gpu: bool) -> Normalize:
    dtype = torch.bfloat16 if on_gpu else torch.float32
    return Normalize(tuple(mean), tuple(std), dtype, channels_last=on_gpu)


_PREPROCESS: Mapping[str, Callable[[Sequence[float], Sequence[float], bool], Preprocess]] = MappingProxyType(
    {"images": _normalize, "texts": lambda mean, std, on_gpu: PadTokens()}
)


def make_preprocess(noun: str, mean: Sequence[float], std: Sequence[float], *, on_gpu: bool = False) -> Preprocess:
    """Return the preprocessing of "images" or "texts". Images need the mean and std per channel; texts have none."""
    return _PREPROCESS[noun](mean, std, on_gpu)
