"""Published augmentation methods, each as a proposal. Ranges are converted to levels."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np
import torch

from outspan.limits import check_positive, check_whole
from outspan.plan import Plan
from outspan.policies.proposals import any_of, one_pair, parse_pairs, sequence
from outspan.policies.steps import Proposal, Step
from outspan.transforms.table import TRANSFORMS

FACTORS = ("brightness", "color", "contrast", "sharpness")


def _largest_levels(*, degrees: float, shear: float, shift: float, factor: float, bits: int) -> dict[str, float]:
    """Return the largest level of each of the 14 common transforms; it is 0 for ungraded ones."""
    level = {
        "rotate": degrees / 30,
        "shear_x": shear / 0.3,
        "shear_y": shear / 0.3,
        "translate_x": shift / (10 / 32),
        "translate_y": shift / (10 / 32),
        "posterize": bits / 4,
        "solarize": 1.0,
        **dict.fromkeys(FACTORS, factor / 0.9),
        **dict.fromkeys(("identity", "auto_contrast", "equalize"), 0.0),
    }
    return {name: min(level[name], TRANSFORMS[name].limit) for name in sorted(level)}


# arXiv:1909.13719 uses AutoAugment's ranges (arXiv:1805.09501, Table 6): 150 of 331 pixels, 30 degrees, 4 to 8 bits.
RANDAUGMENT_LEVELS = MappingProxyType(_largest_levels(degrees=30, shear=0.3, shift=150 / 331, factor=0.9, bits=4))


def randaugment(depth: int = 2, magnitude: float = 9) -> Proposal:
    """RandAugment (arXiv:1909.13719): `depth` of 14 transforms, all at magnitude/30 of their range, with random sign."""
    if not 0 <= magnitude <= 30:
        raise ValueError(f"magnitude must lie in [0, 30], got {magnitude}")
    levels = {name: largest * magnitude / 30 for name, largest in RANDAUGMENT_LEVELS.items()}
    return any_of([Step(name, level, level, mirrored=TRANSFORMS[name].signed) for name, level in levels.items()], depth)


def trivialaugment(*, wide: bool = True, side: int = 32) -> Proposal:
    """TrivialAugment (arXiv:2103.10158): one of 14 transforms at one of 31 strengths.

    The wide ranges translate by 32 pixels at any image size, so they need the side of the images.
    """
    check_whole("side", side, 1)
    narrow = _largest_levels(degrees=30, shear=0.3, shift=10 / 32, factor=0.9, bits=4)
    largest = _largest_levels(degrees=135, shear=0.99, shift=32 / side, factor=0.99, bits=6) if wide else narrow
    return any_of([Step(name, 0.0, top, mirrored=TRANSFORMS[name].signed, bins=31) for name, top in largest.items()], 1)


def uniformaugment(depth: int = 2) -> Proposal:
    """UniformAugment (arXiv:2003.14348): uniform transforms, strengths and probabilities; U(0, 1) is equivalent to 1/2.

    Its transforms are those of Fast AutoAugment: with inversion and cutout up to a fifth of the side, without identity.
    """
    largest = {name: top for name, top in RANDAUGMENT_LEVELS.items() if name != "identity"} | {"invert": 0.0, "cutout": 0.4}
    return any_of([Step(name, 0.0, top, 0.5, mirrored=TRANSFORMS[name].signed) for name, top in largest.items()], depth)


def autoaugment(data: str = "cifar") -> Proposal:
    """AutoAugment (arXiv:1805.09501): one of the 25 published pairs for "cifar", "svhn" or "imagenet"."""
    if data not in AUTOAUGMENT_PAIRS:
        raise ValueError(f"data must be one of {', '.join(AUTOAUGMENT_PAIRS)}, got {data!r}")
    steps = parse_pairs(AUTOAUGMENT_PAIRS[data])
    return one_pair([at_fraction(name, magnitude / 9, probability) for name, probability, magnitude in steps])


def at_fraction(name: str, fraction: float, probability: float = 1.0) -> Step:
    """Return the step of a transform at a fraction of AutoAugment's range."""
    if name in FACTORS:
        return Step(name, factor_level(fraction), factor_level(fraction), probability)
    largest = 2 * 60 / 331 if name == "cutout" else RANDAUGMENT_LEVELS.get(name, 0.0)
    return Step(name, largest * fraction, largest * fraction, probability, mirrored=TRANSFORMS[name].signed)


def factor_level(fraction: float) -> float:
    """Return the level of brightness, color, contrast or sharpness at a fraction of the factors from 0.1 to 1.9."""
    return 2 * fraction - 1


def mixup(alpha: float = 1.0) -> Proposal:
    """Mixup (arXiv:1710.09412): blend every image with another one, with a weight from Beta(alpha, alpha)."""
    check_positive("alpha", alpha)
    return partial(_draw_mixed, sequence(Step("mixup")), alpha)


def cutmix(alpha: float = 1.0) -> Proposal:
    """CutMix (arXiv:1905.04899): paste a square of another image, of area 1 - Beta(alpha, alpha)."""
    check_positive("alpha", alpha)
    return partial(_draw_mixed, sequence(Step("cutmix")), alpha)


def _draw_mixed(propose: Proposal, alpha: float, size: int, *, rng: np.random.Generator, candidates: int = 1) -> Plan:
    plan = propose(size, rng=rng, candidates=candidates)
    weight = rng.beta(alpha, alpha, tuple(plan.ops.shape))
    levels = np.sqrt(1 - weight) if plan.names == ("cutmix",) else weight
    return replace(plan, levels=torch.from_numpy(levels.astype(np.float32)))


def augmix(severity: float = 3, *, width: int = 3, depth: int = 3, alpha: float = 1.0) -> Proposal:
    """AugMix (arXiv:1912.02781): `width` chains of 1 to `depth` transforms, mixed with one another and with the image.

    The chains are helper rows. The row of the image blends in the chains one after another, in bytes. The paper omits color,
    contrast, brightness and sharpness, because its test corruptions contain them, and posterizes to at most 4 bits.
    """
    check_whole("width", width, 1)
    check_whole("depth", depth, 1)
    check_positive("alpha", alpha)
    if not 0 < severity <= 10:
        raise ValueError(f"severity must lie in (0, 10], got {severity}")
    largest = _largest_levels(degrees=30, shear=0.3, shift=1 / 3, factor=0, bits=4)
    names = [name for name in largest if name not in ("identity", *FACTORS)]
    low, high = 0.01, severity / 10
    graded = [Step(n, low * largest[n], high * largest[n], mirrored=TRANSFORMS[n].signed) for n in names if n != "posterize"]
    return mix_chains(any_of([*graded, Step("posterize", 1.0, 1 + high)], depth), width, (1, depth), alpha)


def mix_chains(chains: Proposal, width: int, lengths: tuple[int, int], alpha: float) -> Proposal:
    """Mix `width` chains of transforms with one another and with the image, as AugMix does.

    `chains` gives every row as many transforms as the longest chain has; `lengths` are the shortest and the longest length.
    """
    return partial(_draw_augmix, chains, width, lengths, alpha)


def _draw_augmix(
    chains: Proposal,
    width: int,
    lengths: tuple[int, int],
    alpha: float,
    size: int,
    *,
    rng: np.random.Generator,
    candidates: int = 1,
) -> Plan:
    rows, (shortest, depth) = size * candidates, lengths
    chain = chains(size, rng=rng, candidates=candidates * width)
    drawn = torch.from_numpy(rng.integers(shortest, depth + 1, rows * width))
    ops = chain.ops.masked_fill(torch.arange(depth) >= drawn.unsqueeze(1), -1)
    blend = len(chain.names)
    kept = rng.beta(alpha, alpha, (rows, 1))  # the weight of the image itself
    fractions = (1 - kept) * rng.dirichlet(np.full(width, alpha), rows)
    # The chains are blended in one after another, so a weight is relative to the image and the chains up to this one.
    totals = np.cumsum(np.concatenate([kept, fractions], axis=1), axis=1)[:, 1:]
    weights = torch.from_numpy((fractions / np.maximum(totals, 1e-12)).clip(0, 1).astype(np.float32))
    helpers = torch.arange(rows * width).view(rows, width) + rows
    return Plan(
        (*chain.names, "mixup"),
        _corners(torch.full((rows, width), blend, dtype=torch.int16), ops, -1),
        _corners(weights, chain.levels, 0.0),
        torch.zeros((rows * (width + 1), depth + width, 4)),
        _corners(helpers, torch.full((rows * width, depth), -1), -1),
        torch.cat([torch.arange(size).repeat_interleave(candidates), chain.source]),
        torch.arange(rows),
    )


def _corners(images: torch.Tensor, chains: torch.Tensor, empty: float) -> torch.Tensor:
    """Return a block matrix. Rows: images, then chains. Columns: steps of the chains, then blending steps.

    `images` are the blending steps of the images, and `chains` the steps of the chains. The other two blocks are `empty`.
    """
    above = images.new_full((len(images), chains.shape[1]), empty)
    below = chains.new_full((len(chains), images.shape[1]), empty)
    return torch.cat([torch.cat([above, images], dim=1), torch.cat([chains, below], dim=1)])


_CROP = Step("random_crop")  # 4 of 32 pixels, reflected
_FLIP = Step("horizontal_flip", probability=0.5)
_MIX = Step("mixup", 0.0, 1.0, 0.5)  # the authors' code mixes about half of the images, with a uniform weight
_JITTER = tuple(Step(name, 0.0, 0.4 / 0.9, mirrored=True) for name in ("brightness", "contrast", "color"))


def crop_and_flip(*, crop: bool = True) -> Proposal:
    """A random crop, shifted by up to an eighth of the side, and a horizontal flip of half of the images."""
    return sequence(_CROP, _FLIP) if crop else sequence(_FLIP)


# The default transforms that the paper applies after Algorithm 1 (Section 5).
DEFAULTS: Mapping[str, Proposal] = MappingProxyType(
    {
        "none": sequence(),
        "cifar": sequence(_CROP, _FLIP, Step("cutout"), _MIX),
        "cifar-cutout": sequence(_CROP, _FLIP, Step("cutout")),  # of RandAugment, TrivialAugment and AutoAugment
        "svhn": sequence(_CROP, Step("cutout")),
        "flip": sequence(_FLIP),
        "imagenet": sequence(Step("resized_crop"), _FLIP, *_JITTER, _MIX),
        "imagenet-cropped": sequence(_FLIP, *_JITTER, _MIX),  # for images that are cropped when they are read
        "mixup": mixup(),  # every image, after the policy's transforms
    }
)
# The augmentation of the paper's baseline.
BASELINES: Mapping[str, Proposal] = MappingProxyType(
    {
        "none": sequence(),
        "cifar": crop_and_flip(),
        "svhn": sequence(Step("cutout")),  # on every image, without a crop
        "imagenet-cropped": crop_and_flip(crop=False),
    }
)

# arXiv:1805.09501, Tables 7 to 9: transform, probability, magnitude on a scale from 0 to 9.
AUTOAUGMENT_PAIRS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "cifar": (
            "invert 0.1, contrast 0.2 6",
            "rotate 0.7 2, translate_x 0.3 9",
            "sharpness 0.8 1, sharpness 0.9 3",
            "shear_y 0.5 8, translate_y 0.7 9",
            "auto_contrast 0.5, equalize 0.9",
            "shear_y 0.2 7, posterize 0.3 7",
            "color 0.4 3, brightness 0.6 7",
            "sharpness 0.3 9, brightness 0.7 9",
            "equalize 0.6, equalize 0.5",
            "contrast 0.6 7, sharpness 0.6 5",
            "color 0.7 7, translate_x 0.5 8",
            "equalize 0.3, auto_contrast 0.4",
            "translate_y 0.4 3, sharpness 0.2 6",
            "brightness 0.9 6, color 0.2 8",
            "solarize 0.5 2, invert 0",
            "equalize 0.2, auto_contrast 0.6",
            "equalize 0.2, equalize 0.6",
            "color 0.9 9, equalize 0.6",
            "auto_contrast 0.8, solarize 0.2 8",
            "brightness 0.1 3, color 0.7 0",
            "solarize 0.4 5, auto_contrast 0.9",
            "translate_y 0.9 9, translate_y 0.7 9",
            "auto_contrast 0.9, solarize 0.8 3",
            "equalize 0.8, invert 0.1",
            "translate_y 0.7 9, auto_contrast 0.9",
        ),
        "svhn": (
            "shear_x 0.9 4, invert 0.2",
            "shear_y 0.9 8, invert 0.7",
            "equalize 0.6, solarize 0.6 6",
            "invert 0.9, equalize 0.6",
            "equalize 0.6, rotate 0.9 3",
            "shear_x 0.9 4, auto_contrast 0.8",
            "shear_y 0.9 8, invert 0.4",
            "shear_y 0.9 5, solarize 0.2 6",
            "invert 0.9, auto_contrast 0.8",
            "equalize 0.6, rotate 0.9 3",
            "shear_x 0.9 4, solarize 0.3 3",
            "shear_y 0.8 8, invert 0.7",
            "equalize 0.9, translate_y 0.6 6",
            "invert 0.9, equalize 0.6",
            "contrast 0.3 3, rotate 0.8 4",
            "invert 0.8, translate_y 0 2",
            "shear_y 0.7 6, solarize 0.4 8",
            "invert 0.6, rotate 0.8 4",
            "shear_y 0.3 7, translate_x 0.9 3",
            "shear_x 0.1 6, invert 0.6",
            "solarize 0.7 2, translate_y 0.6 7",
            "shear_y 0.8 4, invert 0.8",
            "shear_x 0.7 9, translate_y 0.8 3",
            "shear_y 0.8 5, auto_contrast 0.7",
            "shear_x 0.7 2, invert 0.1",
        ),
        "imagenet": (
            "posterize 0.4 8, rotate 0.6 9",
            "solarize 0.6 5, auto_contrast 0.6",
            "equalize 0.8, equalize 0.6",
            "posterize 0.6 7, posterize 0.6 6",
            "equalize 0.4, solarize 0.2 4",
            "equalize 0.4, rotate 0.8 8",
            "solarize 0.6 3, equalize 0.6",
            "posterize 0.8 5, equalize 1",
            "rotate 0.2 3, solarize 0.6 8",
            "equalize 0.6, posterize 0.4 6",
            "rotate 0.8 8, color 0.4 0",
            "rotate 0.4 9, equalize 0.6",
            "equalize 0, equalize 0.8",
            "invert 0.6, equalize 1",
            "color 0.6 4, contrast 1 8",
            "rotate 0.8 8, color 1 2",
            "color 0.8 8, solarize 0.8 7",
            "sharpness 0.4 7, invert 0.6",
            "shear_x 0.6 5, equalize 1",
            "color 0.4 0, equalize 0.6",
            "equalize 0.4, solarize 0.2 4",
            "solarize 0.6 5, auto_contrast 0.6",
            "invert 0.6, equalize 1",
            "color 0.6 4, contrast 1 8",
            "equalize 0.8, equalize 0.6",
        ),
    }
)
