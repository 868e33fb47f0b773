"""The proposals of torchvision's automatic augmentations: the same transforms at the same magnitudes.

torchvision divides the range of every transform into bins. Here every bin that can be drawn is a step of its own. It translates
by whole pixels, so the proposals depend on the size of the images.
"""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

from outspan.policies.proposals import any_of, one_pair, parse_pairs
from outspan.policies.published import AUTOAUGMENT_PAIRS, FACTORS, mix_chains
from outspan.policies.steps import Proposal, Step
from outspan.transforms.table import find

Size = tuple[int, int]  # height and width
Ranges = Mapping[str, tuple[float, float]]  # the first and the last magnitude of each graded transform
_BINS = 10  # of AutoAugment and AugMix
_TRANSFORMS = (
    "identity", "auto_contrast", "equalize", "posterize", "solarize", "rotate", "shear_x", "shear_y",
    "translate_x", "translate_y", *FACTORS,
)  # fmt: skip


@lru_cache(maxsize=64)
def randaugment(num_ops: int, magnitude: int, bins: int, size: Size) -> Proposal:
    """Return the proposal of `RandAugment`: `num_ops` of 14 transforms, all at one bin."""
    ranges = _ranges(size, shift=150 / 331)
    return any_of([step for name in _TRANSFORMS for step in _steps(name, ranges, bins, [magnitude], size)], num_ops)


@lru_cache(maxsize=64)
def trivialaugment(bins: int, size: Size) -> Proposal:
    """Return the proposal of `TrivialAugmentWide`: one of 14 transforms at any bin."""
    wide = {"rotate": (0.0, 135.0), "posterize": (8.0, 2.0), **dict.fromkeys(("translate_x", "translate_y"), (0.0, 32.0))}
    ranges = {**wide, **dict.fromkeys((*FACTORS, "shear_x", "shear_y"), (0.0, 0.99)), "solarize": (1.0, 0.0)}
    return any_of([step for name in _TRANSFORMS for step in _steps(name, ranges, bins, range(bins), size)], 1)


@lru_cache(maxsize=64)
def autoaugment(data: str, size: Size) -> Proposal:
    """Return the proposal of `AutoAugment`: one of 25 pairs for "imagenet", "cifar" or "svhn"."""
    ranges = _ranges(size, shift=150 / 331)
    steps = []
    for name, probability, magnitude in parse_pairs(AUTOAUGMENT_PAIRS[data]):
        steps += _steps(name, ranges, _BINS, [magnitude], size, probability=probability)
    return one_pair(steps)


@lru_cache(maxsize=64)
def augmix(severity: int, width: int, lengths: tuple[int, int], alpha: float, all_ops: bool, size: Size) -> Proposal:
    """Return the proposal of `AugMix`: chains of 9 transforms, or 13, at any of the lowest `severity` of 10 bins."""
    ranges = {**_ranges(size, shift=1 / 3), "posterize": (4.0, 0.0)}
    names = [name for name in _TRANSFORMS if name != "identity" and (all_ops or name not in FACTORS)]
    steps = [step for name in names for step in _steps(name, ranges, _BINS, range(severity), size)]
    return mix_chains(any_of(steps, lengths[1]), width, lengths, alpha)


def _ranges(size: Size, *, shift: float) -> Ranges:
    """Return AutoAugment's ranges in torchvision's units; `shift` is the largest translation, as a fraction of the side."""
    return {
        **{"rotate": (0.0, 30.0), "posterize": (8.0, 4.0), "solarize": (1.0, 0.0)},
        **{"shear_x": (0.0, 0.3), "shear_y": (0.0, 0.3), **dict.fromkeys(FACTORS, (0.0, 0.9))},
        **{"translate_y": (0.0, shift * size[0]), "translate_x": (0.0, shift * size[1])},
    }


def _steps(name: str, ranges: Ranges, bins: int, chosen: Iterable[int], size: Size, *, probability: float = 1.0) -> list[Step]:
    """Return the step of each chosen bin."""
    transform, (first, last) = find(name), ranges.get(name, (0.0, 0.0))
    magnitudes = [round(first + (last - first) * k / (bins - 1), 9) for k in chosen]
    levels = [min(_level(name, magnitude, size), transform.levels[1]) for magnitude in magnitudes]
    return [Step(name, level, level, probability, mirrored=transform.signed) for level in levels]


def _level(name: str, magnitude: float, size: Size) -> float:
    """Return the level of a magnitude in the unit of torchvision's transform."""
    transform = find(name)
    if not transform.graded:
        return 0.0
    if name == "solarize":  # a byte is inverted if it is not below a threshold, which may be a fraction
        magnitude = math.ceil(round(255 * magnitude, 6)) - transform.rest
    elif name == "posterize":
        magnitude = round(magnitude) - transform.rest
    elif name.startswith("translate"):
        magnitude = int(magnitude) / size[name == "translate_x"]
    return magnitude / transform.span
