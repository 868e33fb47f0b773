"""Recipes: everything that decides a run's result, as data. TOML or flags in, a frozen dataclass out."""

import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

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
        checks = {
            "epochs": self.epochs >= 1,
            "batch": self.batch >= 1,
            "lr": 0 < self.lr <= 1e6,
            "momentum": 0 <= self.momentum < 1,
            "weight_decay": 0 <= self.weight_decay < float("inf"),
            "optimizer": self.optimizer in ("sgd", "adamw"),
            "schedule": self.schedule in ("cosine", "linear", "multistep", "constant"),
            "warmup": 0 <= self.warmup < 1,
            "label_smoothing": 0 <= self.label_smoothing < 1,
            "clip": 0 <= self.clip < float("inf"),
            "accumulate": self.accumulate >= 1,
            "size": self.size >= 1,
            "crop": self.crop in ("centre", "resized"),
            "share": 0 < self.share <= 1,
            "length": self.length >= 1,
            "truncate": self.truncate in ("head", "tail", "head+tail"),
            "validation": self.validation >= 0,
            "candidates": self.candidates >= 1,
            "keep": 1 <= self.keep <= self.candidates,
            "profile": self.profile in PROFILES,
            "score": self.score in ("loss", "excess"),
            "score_every": self.score_every >= 1,
            "same_class": self.same_class == -1 or 0 <= self.same_class <= 1,
            "adversaries": self.adversaries >= 2,
            "subpolicies": self.subpolicies >= 1,
            "controller_lr": 0 < self.controller_lr <= 1e6,
            "entropy": 0 <= self.entropy < float("inf"),
            "policy_epochs": self.policy_epochs >= 1,
        }
        for name, holds in checks.items():
            if not holds:
                allowed = _ALLOWED.get(name, "1 or more")
                raise ValueError(f"{name} is out of range, got {getattr(self, name)!r} (allowed: {allowed})")


_ALLOWED = {
    **dict.fromkeys(("lr", "controller_lr"), "above 0, at most 1e6"),
    **dict.fromkeys(("momentum", "warmup", "label_smoothing"), "[0, 1)"),
    **dict.fromkeys(("weight_decay", "clip", "entropy", "validation"), "0 or more"),
    "optimizer": "sgd, adamw",
    "schedule": "cosine, linear, multistep, constant",
    "crop": "centre, resized",
    "share": "(0, 1]",
    "truncate": "head, tail, head+tail",
    "keep": "1 to candidates",
    "profile": ", ".join(PROFILES),
    "score": "loss, excess",
    "same_class": "[0, 1], or -1",
    "adversaries": "2 or more",
}  # of all others: 1 or more
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
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: a folder, not a recipe; data is given with --data") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ValueError(f"{path}: not TOML ({error})") from None


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
            raise ValueError(f"a change is key=value, got {change!r}")
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


def unknown(kind: str, name: str, known: Collection[str], *others: str) -> ValueError:
    """Return the error for a name that is not known: it offers the nearest one and lists all, `others` after them."""
    near = get_close_matches(name, known, n=1, cutoff=0.0)
    hint = f", did you mean {near[0]!r}?" if near else ""
    return ValueError(f"unknown {kind} {name!r}{hint} (known: {', '.join([*known, *others]) or 'none'})")


def first_line(error: BaseException) -> str:
    """Return what an error of another library says, in one line, or its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _typed(key: str, value: Any) -> Any:
    if key not in KEYS:
        raise unknown("key", key, KEYS)
    kind = _TYPES[key]
    if isinstance(value, str) and kind is not str:
        try:
            return kind(value)
        except ValueError:
            raise ValueError(f"{key} must be {_a(kind)}, got {value!r}") from None
    if kind is float and type(value) is int and abs(value) < 2**53:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{key} must be {_a(kind)}, got {value!r}")
    return value


def _a(kind: type) -> str:
    return {int: "a whole number", float: "a number", str: "text"}[kind]


def differing(one: Recipe, other: Recipe) -> dict[str, tuple[Any, Any]]:
    """Return the keys in which two recipes differ, with both values."""
    left, right = asdict(one), asdict(other)
    return {key: (left[key], right[key]) for key in KEYS if left[key] != right[key]}
