"""Models by name. A model is a function from preprocessed inputs to logits and does not depend on training."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import nn

from outspan.files import absolute
from outspan.messages import shown, unknown
from outspan.models.convnet import convnet
from outspan.models.from_timm import from_timm
from outspan.models.mlp import mlp
from outspan.models.pyramidnet import build_pyramidnet
from outspan.models.resnet import resnet
from outspan.models.shake_shake import shake_shake
from outspan.models.wide_resnet import wide_resnet
from outspan.shapes import noun_of_shape
from outspan.text.models import load_classifier

Shape = tuple[int, ...]  # [C, H, W] of images, [T] of texts


@dataclass(frozen=True)
class Family:
    """How the models of a pattern are built: `build(shape, classes, *parts)`, where the parts are the numbers in the name."""

    build: Callable[..., nn.Module]
    takes_weights: bool = False  # whether `build` has the keyword `weights`
    reads_files: bool = False  # whether building it reads or downloads files
    is_path: bool = False  # whether its name may be the path of a folder
    is_perceptron: bool = False  # whether it has only linear layers and ReLU, so that an ensemble can compute several at once


# By type of data and pattern: N is a number and NAME any name. The first pattern that matches is used.
FAMILIES: Mapping[str, Mapping[str, Family]] = MappingProxyType(
    {
        "images": {
            "mlp": Family(mlp, is_perceptron=True),
            "mlp-N": Family(lambda shape, classes, hidden: mlp(shape, classes, hidden=hidden), is_perceptron=True),
            "convnet": Family(convnet),
            "wide_resnet-N-N": Family(
                lambda shape, classes, depth, width: wide_resnet(shape, classes, depth=depth, width=width)
            ),
            "shake_shake-26-2xNd": Family(lambda shape, classes, width: shake_shake(shape, classes, width=width)),
            "pyramidnet-N-N": Family(
                lambda shape, classes, depth, alpha: build_pyramidnet(shape, classes, depth=depth, alpha=alpha)
            ),
            "resnet-N": Family(
                lambda shape, classes, depth, weights="": resnet(shape, classes, depth=depth, weights=weights),
                takes_weights=True,
            ),
            "timm:NAME": Family(
                lambda shape, classes, name, weights: from_timm(f"timm:{name}", shape, classes, weights),
                takes_weights=True,
                reads_files=True,
            ),
        },
        "texts": {
            "NAME": Family(
                lambda shape, classes, name: load_classifier(name, classes, shape[0]), reads_files=True, is_path=True
            ),
        },
    }
)
PUBLISHED_MODELS = (
    "mlp", "convnet", "wide_resnet-16-4", "wide_resnet-28-2", "wide_resnet-28-10", "wide_resnet-40-2", "shake_shake-26-2x96d",
    "pyramidnet-272-200", "resnet-18", "resnet-34", "resnet-50", "resnet-101",
)  # fmt: skip
_EXAMPLES = {"images": "mlp, resnet-18, timm:NAME, …", "texts": "a Hugging Face Hub name or a local folder"}


def build(name: str, shape: Shape, classes: int, weights: str = "") -> nn.Module:
    """Return a model by name for inputs of a shape: [C, H, W] of images, [T] of texts.

    A ResNet or a timm model may start from `weights`: "published", or a file.
    """
    family, parts = _find(name, noun_of_shape(shape))
    if weights and not family.takes_weights:
        allowed = "allowed: for models resnet-DEPTH and timm:NAME"
        raise ValueError(f"weights must be empty for model {shown(name)}, got {shown(weights)} ({allowed})")
    options = {"weights": weights} if family.takes_weights else {}
    try:
        return family.build(shape, classes, *parts, **options)
    except ValueError as error:
        raise ValueError(str(error) if family.reads_files else f"model {shown(name)}: {error}") from None


def check_takes(name: str, noun: str) -> None:
    """Refuse a model that does not take "images", or "texts"."""
    _find(name, noun)


def reads_files(name: str) -> bool:
    """Return whether building a model reads or downloads files."""
    return _matches(name)[0][1].reads_files


def starts_trained(name: str, weights: str) -> bool:
    """Return whether a model starts from trained weights: those that `weights` names, or those of its own folder."""
    return bool(weights) or _matches(name)[0][1].is_path


def is_perceptron(name: str) -> bool:
    """Return whether a model has only linear layers and ReLU."""
    return _matches(name)[0][1].is_perceptron


def locate(name: str) -> str:
    """Return the absolute path of a model that is a folder. Any other name is returned unchanged."""
    return absolute(name) if _matches(name)[0][1].is_path else name


def _find(name: str, noun: str) -> tuple[Family, list[int | str]]:
    """Return the family of a name for a noun, and the parts of the name."""
    first = _matches(name)[0]
    if first[0] == noun:
        return first[1:]
    if first[1].is_path:  # it matches any name
        raise unknown("model", name, PUBLISHED_MODELS, "mlp-HIDDEN", "timm:NAME for a model of timm, e.g. timm:efficientnet_b0")
    raise ValueError(f"model {shown(name)} is for {first[0]}; for {noun} use {_EXAMPLES[noun]}")


def _matches(name: str) -> list[tuple[str, Family, list[int | str]]]:
    """Return the noun, the family and the parts of a name for each pattern that matches it. The last matches any name."""
    matches = []
    for noun, families in FAMILIES.items():
        for pattern, family in families.items():
            types = [int if part == "N" else str for part in re.findall("NAME|N", pattern)]
            match = re.fullmatch(pattern.replace("NAME", "(.*)").replace("N", "([1-9][0-9]{0,4})"), name, re.DOTALL)
            if match is not None:
                matches.append((noun, family, [type_(part) for type_, part in zip(types, match.groups(), strict=True)]))
    return matches
