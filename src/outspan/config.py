"""Recipes: everything that decides a run's result, as data. TOML or flags in, a frozen dataclass out."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from outspan.files import HOME
from outspan.messages import first_line, shown, unknown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

PROFILES = ("paper", "released")  # whose ranges: the paper's, or those of its authors' code


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides a run's result, and nothing that does not."""

    data: str = "digits"
    model: str = "convnet"
    weights: str = ""  # what a model of timm begins with: "published", or a .safetensors file
    policy: str = "uncertain"
    seed: int = 0
    epochs: int = 20
    batch: int = 128
    lr: float = 0.1
    optimizer: str = "sgd"  # or "adamw"
    momentum: float = 0.9
    weight_decay: float = 5e-4  # on weights, not on biases and normalisation
    schedule: str = "cosine"  # "cosine", "linear", "multistep" (a tenth at 30, 60 and 80 %) or "constant"
    warmup: float = 0.02  # the share of steps in which lr rises to its value
    label_smoothing: float = 0.0
    clip: float = 0.0  # the largest norm of the gradient; 0 is none
    accumulate: int = 1  # parts that a batch goes through the model in, where it does not fit at once
    size: int = 224  # of images read from a folder
    crop: str = "centre"  # how they are cut to it: "centre", or "resized", at random, where they are read
    share: float = 1.0  # of the images, train and test, evenly spaced; at least two batches
    length: int = 512  # tokens of a text that the model reads, special ones and all
    truncate: str = "tail"  # the part of a longer text that is kept: "head", "tail" or "head+tail"
    text_column: str = "text"
    label_column: str = "label"
    cache: str = ""  # the file of back-translated sentences
    validation: int = 0  # train images held out for choosing; never trained on
    transforms: str = "paper16"  # "paper16", "geometric", or names with commas
    depth: int = 2
    probability: float = 0.5
    profile: str = "paper"  # whose ranges: "paper", or "released", the authors' code, whose posterize keeps 0 to 3 bits
    candidates: int = 4
    keep: int = 1
    select: str = "max"  # "max", "proportional" or a power
    score: str = "loss"  # or "excess": what it is above the least that a mixed label allows
    score_every: int = 1
    magnitude: float = 9.0  # of RandAugment
    defaults: str = "none"
    same_class: float = -1.0  # of mixing partners, the share of an image's own class; -1 takes them as they come
    adversaries: int = 8  # policies an image, of "adversarial"
    subpolicies: int = 5  # pairs of operations in each
    controller_lr: float = 0.00035
    entropy: float = 1e-5  # how much the controller is kept from making up its mind
    policy_file: str = ""  # of the policies "fastautoaugment" and "pba"
    policy_epochs: int = 200  # how long the search took that found a PBA schedule

    def __post_init__(self) -> None:
        for name, allowed in _ALLOWED.items():
            value = getattr(self, name)
            if not allowed.holds(value):
                raise ValueError(f"{name} is out of range, got {shown(value)} (allowed: {allowed})")
        if self.keep > self.candidates:
            raise ValueError(f"keep is out of range, got {self.keep} (allowed: 1 to candidates, {self.candidates})")


@dataclass(frozen=True)
class _Between:
    """Numbers from `low` to `high`, both allowed unless they are open; those of an integer key are integers."""

    low: float
    high: float
    open_low: bool = False
    open_high: bool = False
    whole: bool = True
    other: float | None = None  # one more value that is allowed

    def holds(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        above = value > self.low if self.open_low else value >= self.low  # NaN is neither
        below = value < self.high if self.open_high else value <= self.high
        return (above and below) or (self.other is not None and value == self.other)

    def __str__(self) -> str:
        if self.whole:
            return f"{self.low:,} to {self.high:,}"
        brackets = "(" if self.open_low else "[", ")" if self.open_high else "]"
        return f"{brackets[0]}{self.low:g}, {self.high:g}{brackets[1]}" + ("" if self.other is None else f", or {self.other:g}")


@dataclass(frozen=True)
class _OneOf:
    """Names."""

    names: tuple[str, ...]

    def holds(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.names

    def __str__(self) -> str:
        return ", ".join(self.names)


_RATE = _Between(0, 1e6, open_low=True, whole=False)
_COEFFICIENT = _Between(0, 1e6, whole=False)
_FRACTION = _Between(0, 1, open_high=True, whole=False)
# The upper ends are far beyond what anyone trains, and small enough for nothing to overflow or to fill the memory by itself.
_ALLOWED: Mapping[str, _Between | _OneOf] = MappingProxyType(
    {
        "seed": _Between(-(2**63), 2**63 - 1),
        "epochs": _Between(1, 1_000_000),
        "batch": _Between(1, 10_000_000),
        "lr": _RATE,
        "optimizer": _OneOf(("sgd", "adamw")),
        "momentum": _FRACTION,
        "weight_decay": _COEFFICIENT,
        "schedule": _OneOf(("cosine", "linear", "multistep", "constant")),
        "warmup": _FRACTION,
        "label_smoothing": _FRACTION,
        "clip": _COEFFICIENT,
        "accumulate": _Between(1, 10_000_000),
        "size": _Between(1, 4096),
        "crop": _OneOf(("centre", "resized")),
        "share": _Between(0, 1, open_low=True, whole=False),
        "length": _Between(1, 1_000_000),
        "truncate": _OneOf(("head", "tail", "head+tail")),
        "validation": _Between(0, 1_000_000_000),
        "depth": _Between(0, 100),
        "probability": _Between(0, 1, whole=False),
        "profile": _OneOf(PROFILES),
        "candidates": _Between(1, 1024),
        "keep": _Between(1, 1024),
        "score": _OneOf(("loss", "excess")),
        "score_every": _Between(1, 1_000_000_000),
        "magnitude": _Between(0, 30, whole=False),
        "same_class": _Between(0, 1, whole=False, other=-1),
        "adversaries": _Between(2, 1024),
        "subpolicies": _Between(1, 100),
        "controller_lr": _RATE,
        "entropy": _COEFFICIENT,
        "policy_epochs": _Between(1, 1_000_000),
    }
)
# What a recipe for text begins with: BERT's fine-tuning, and Algorithm 1 with one transform a candidate.
TEXT: Mapping[str, Any] = MappingProxyType(
    {
        "model": "google-bert/bert-base-uncased",
        "epochs": 3,
        "batch": 32,
        "lr": 2e-5,
        "optimizer": "adamw",
        "weight_decay": 0.01,
        "schedule": "linear",
        "warmup": 0.1,
        "clip": 1.0,
        "transforms": "words",
        "depth": 1,
        "probability": 1.0,
    }
)
_ADAMW_LR = 1e-3  # for images, where it is not said
KEYS = tuple(field.name for field in fields(Recipe))
_TYPES: dict[str, type] = {field.name: type(field.default) for field in fields(Recipe)}


def read_values(path: Path) -> dict[str, Any]:
    """Return what is in a TOML file, as it is."""
    try:
        with open(_shipped(path), "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: a folder, not a recipe; data is given with --data") from None
    except (ValueError, OSError, RecursionError) as error:  # ValueError: TOMLDecodeError, not UTF-8, or too many digits
        raise ValueError(f"{path}: not TOML ({first_line(error)})") from None


def _shipped(path: Path) -> Path:
    """Return the path of a recipe; the package's own, recipes/..., are found from any folder."""
    own = path.parts[:1] == ("recipes",) and ".." not in path.parts and not path.exists()
    return HOME / path if own and (HOME / path).is_file() else path


def read_recipe(path: Path) -> Recipe:
    """Return the recipe in a TOML file; an unknown key is a ValueError that names it and its neighbour."""
    return make_recipe(path, [])


def write_recipe(recipe: Recipe, *comments: str) -> str:
    """Return a recipe as TOML with its comments first; keys at their default, of images and of text, are left out."""
    changed = [key for key in KEYS if any(getattr(recipe, key) != known for known in _defaults(key))]
    lines = [f"{key} = {json.dumps(getattr(recipe, key), ensure_ascii=False)}" for key in changed]
    return "".join(f"{line}\n" for line in [*(f"# {comment}" for comment in comments), *lines])


def _defaults(key: str) -> tuple[Any, ...]:
    """Return what a key is where nothing is said: of images, and of text where that differs."""
    return (getattr(Recipe(), key), TEXT[key]) if key in TEXT else (getattr(Recipe(), key),)


def with_values(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    """Return the recipe with some values changed; text is read as its field's type."""
    return replace(recipe, **{key: _typed(key, value) for key, value in values.items()})


def read_changes(changes: Sequence[str]) -> dict[str, str]:
    """Return `key=value` changes as they are asked for on a command line."""
    values = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise ValueError(f"a change is key=value, got {shown(change)}")
        values[key.strip()] = value.strip()
    return values


def make_recipe(path: Path | None, changes: Sequence[str], is_text: Callable[[str], bool] = lambda data: False) -> Recipe:
    """Return the default recipe for images or for text, with what a file and then `key=value` changes say."""
    values = read_changes(changes)
    stored = {} if path is None else read_values(path)
    begun = default_recipe({**stored, **values}, is_text)
    try:
        made = with_values(begun, stored)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return with_values(made, values)


def default_recipe(values: Mapping[str, Any], is_text: Callable[[str], bool]) -> Recipe:
    """Return what a recipe of these values begins with: images and text differ, and of images SGD and AdamW."""
    if is_text(str(values.get("data", ""))):
        return with_values(Recipe(), dict(TEXT))
    return Recipe(lr=_ADAMW_LR) if values.get("optimizer") == "adamw" else Recipe()  # SGD's would be a hundred times too much


def check_scale(scale: float) -> None:
    """Refuse a scale that is no share."""
    if not 0 < scale <= 1:
        raise ValueError(f"scale must lie in (0, 1], got {scale}")


def scaled(recipe: Recipe, scale: float) -> Recipe:
    """Return a recipe with a share of its epochs and images, at least one epoch and two batches: to see that it runs."""
    check_scale(scale)
    held = -(-recipe.validation * scale // 1)  # rounded up
    epochs = max(1, round(recipe.epochs * scale))
    return replace(recipe, epochs=epochs, share=recipe.share * scale, validation=int(held))


def _typed(key: str, value: Any) -> Any:
    if key not in KEYS:
        raise unknown("key", key, KEYS)
    kind = _TYPES[key]
    if isinstance(value, str) and kind is not str:
        try:
            return kind(value)
        except ValueError:
            raise ValueError(f"{key} must be {_a(kind)}, got {shown(value)}") from None
    if kind is float and type(value) is int and abs(value) < 2**53:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{key} must be {_a(kind)}, got {shown(value)}")
    return value


def _a(kind: type) -> str:
    return {int: "a whole number", float: "a number", str: "text"}[kind]


def differing(one: Recipe, other: Recipe) -> dict[str, tuple[Any, Any]]:
    """Return the keys in which two recipes differ, with both values."""
    left, right = asdict(one), asdict(other)
    return {key: (left[key], right[key]) for key in KEYS if left[key] != right[key]}
