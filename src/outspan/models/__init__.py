"""Models. A model knows nothing of training: bytes have become numbers before, logits come out."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from torch import nn

from outspan.messages import shown, unknown
from outspan.models.convnet import convnet
from outspan.models.from_timm import from_timm
from outspan.models.mlp import mlp
from outspan.models.pyramidnet import pyramidnet
from outspan.models.resnet import resnet
from outspan.models.shake_shake import shake_shake
from outspan.models.wide_resnet import wide_resnet
from outspan.text.models import load_classifier

Shape = tuple[int, ...]  # [C, H, W] of images, [T] of text
# A name's pattern: what it builds for images [C, H, W], a number of classes and the numbers in the name.
FAMILIES: Mapping[str, Callable[..., nn.Module]] = MappingProxyType(
    {
        "mlp": mlp,
        "mlp-N": lambda shape, classes, hidden: mlp(shape, classes, hidden=hidden),
        "convnet": convnet,
        "wide_resnet-N-N": lambda shape, classes, depth, width: wide_resnet(shape, classes, depth=depth, width=width),
        "shake_shake-26-2xNd": lambda shape, classes, width: shake_shake(shape, classes, width=width),
        "pyramidnet-N-N": lambda shape, classes, depth, alpha: pyramidnet(shape, classes, depth=depth, alpha=alpha),
        "resnet-N": lambda shape, classes, depth: resnet(shape, classes, depth=depth),
    }
)
PUBLISHED = (
    "mlp", "convnet", "wide_resnet-16-4", "wide_resnet-28-2", "wide_resnet-28-10", "wide_resnet-40-2", "shake_shake-26-2x96d",
    "pyramidnet-272-200", "resnet-18", "resnet-50",
)  # fmt: skip


def is_for_images(name: str) -> bool:
    """Return whether a name is one of a model of images."""
    return name.startswith("timm:") or any(_numbers(pattern, name) is not None for pattern in FAMILIES)


def check_noun(name: str, noun: str) -> None:
    """Refuse a model of images for texts."""
    if noun == "texts" and is_for_images(name):
        raise ValueError(f"model {shown(name)} is for images; for text give a name on the hub or a folder")


def _numbers(pattern: str, name: str) -> list[int] | None:
    found = re.fullmatch(pattern.replace("N", "([1-9][0-9]{0,4})"), name)
    return None if found is None else [int(number) for number in found.groups()]


def build(name: str, shape: Shape, classes: int, weights: str = "") -> nn.Module:
    """Return a model by name, for images [C, H, W]; `timm:NAME` where timm is installed; for text [T] one of transformers.

    A model of timm may begin with `weights`: "published", or a file of them.
    """
    if name.startswith("timm:") and len(shape) > 1:
        return from_timm(name, shape, classes, weights)
    if weights:
        raise ValueError(f"weights must be empty for model {shown(name)}, got {shown(weights)} (allowed: for models timm:NAME)")
    if len(shape) == 1:
        return load_classifier(name, classes, shape[0])
    for pattern, make in FAMILIES.items():
        if (numbers := _numbers(pattern, name)) is not None:
            try:
                return make(shape, classes, *numbers)
            except ValueError as error:
                raise ValueError(f"model {shown(name)}: {error}") from None
    raise unknown("model", name, PUBLISHED, "mlp-HIDDEN", "timm:NAME")
