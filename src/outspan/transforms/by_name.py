"""Transforms written as text, such as "rotate:0.5,invert": parse them, and apply them to an image."""

from typing import TypeAlias

import torch
from torch import Tensor

from outspan import rng
from outspan.plan import Plan
from outspan.shapes import Images, UInt8
from outspan.transforms.apply import apply
from outspan.transforms.color import grey
from outspan.transforms.table import find

_Partner: TypeAlias = UInt8[Tensor, "1 D h w"]  # its shape may differ from the image's


def parse_ops(text: str) -> tuple[list[str], list[float]]:
    """Return the names and levels of comma-separated transforms. A graded transform needs a level.

    >>> parse_ops("rotate:0.5, invert")
    (['rotate', 'invert'], [0.5, 0.0])
    """
    names, levels = [], []
    for part in text.split(","):
        name, _, level = part.strip().partition(":")
        if not name:
            raise ValueError(f"empty transform name in {text!r}")
        transform = find(name)
        if transform.graded and not level:
            raise ValueError(f"{name!r} needs a level, e.g. {name}:0.5")
        if not transform.graded and level:
            raise ValueError(f"{name!r} takes no level, got {level!r}")
        try:
            levels.append(float(level or 0))
        except ValueError:
            raise ValueError(f"level of {name!r} must be a number, got {level!r}") from None
        names.append(name)
    return names, levels


def apply_ops(image: Images, ops: str, *, partner: _Partner | None = None, seed: int = 0) -> Images:
    """Apply transforms written as text to one image [1, C, H, W]. The result is the same as with Pillow.

    `partner` [1, C, H, W] is the second image of mixup and cutmix. `seed` draws the positions of cutout, cutmix and crops.

    >>> import outspan
    >>> outspan.apply_ops(torch.tensor([[[[0, 200]]]], dtype=torch.uint8), "invert,horizontal_flip").tolist()
    [[[[55, 255]]]]
    """
    names, levels = parse_ops(ops)
    images = [image] if partner is None else [image, _match_channels(partner, image)]
    for name in names:
        if find(name).mixes and partner is None:
            raise ValueError(f"{name!r} mixes two images: pass the second with --partner (partner= in Python)")
    places = rng.generator(seed, "apply").random((len(names), 4)).tolist()
    partners = [len(images) - 1 if find(name).mixes else -1 for name in names]
    count = len(images)  # the partner is a row of the plan without transforms
    plan = Plan.of(
        [names, []][:count],
        levels=[levels, []][:count],
        places=[places, []][:count],
        partners=[partners, []][:count],
        out=[0],
    )
    return apply(torch.cat(images), plan)


def _match_channels(partner: _Partner, image: Images) -> Images:
    """Return the partner as grey or RGB, as the image is. Their heights and widths must be equal."""
    if partner.shape[-2:] != image.shape[-2:]:
        expected, got = list(image.shape[-2:]), list(partner.shape[-2:])
        raise ValueError(f"the partner must have the image's height and width {expected}, got {got}")
    if partner.shape[1] == image.shape[1]:
        return partner
    return partner.expand(-1, 3, -1, -1) if image.shape[1] == 3 else grey(partner)
