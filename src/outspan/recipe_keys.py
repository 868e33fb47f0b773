"""The keys of a recipe: their types as keyword arguments of library functions, and the defaults that depend on the data."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict

from outspan.messages import shown


class StudyKeys(TypedDict, total=False):
    """The keys that every library function takes. A study, such as `outspan.measure`, sets all other keys itself."""

    data: str
    model: str
    weights: str
    epochs: int
    min_steps: int
    steps: int
    batch: int
    lr: float
    optimizer: str
    momentum: float
    weight_decay: float
    schedule: str
    warmup: float
    label_smoothing: float
    class_weights: str | Sequence[float]
    sampling: str
    clip: float
    accumulate: int
    precision: str
    sync_bn: int
    freeze: str
    unfreeze: int
    layer_decay: float
    size: int
    channels: str | int
    background: str
    crop: str
    fraction: float
    length: int
    truncate: str
    text_column: str
    label_column: str
    label_separator: str
    weight_column: str
    cache: str
    wordnet: str
    validation: int
    profile: str
    candidates: int
    keep: int
    select: str | float
    score: str
    score_every: int
    magnitude: float
    strength: float
    by_confidence: float
    ema: float
    finish: float
    skip: float
    adversaries: int
    subpolicies: int
    controller_lr: float
    entropy: float
    policy_epochs: int


class RecipeKeys(StudyKeys, total=False):
    """All keys of a recipe."""

    policy: str
    seed: int
    folds: int
    fold: int
    patience: int
    best_metric: str
    transforms: str
    depth: int
    probability: float
    defaults: str
    same_class: float
    policy_file: str


def as_string(key: str, value: Any) -> str:
    """Return the value of a key that is a string. A path, a number in `select` and another spelling are converted."""
    if key in ("select", "channels") and type(value) in (int, float):
        return str(value)
    if key == "class_weights" and isinstance(value, list | tuple) and all(type(one) in (int, float) for one in value):
        return ",".join(map(str, value))
    if isinstance(value, str | Path):
        return "centre" if (key, value) == ("crop", "center") else str(value)
    problem = f"{key} must be {'a name or a path' if key == 'data' else 'a string'}, got {' '.join(shown(value).split())}"
    if key in ("model", "policy", "defaults") and callable(value):
        raise ValueError(f"{problem}: use your own training loop, docs/loops.md")
    raise ValueError(problem + _STRING_HINTS.get(key, ""))


_STRING_HINTS: Mapping[str, str] = MappingProxyType(
    {"data": ": pass an outspan.data.sets.Data as splits=", "transforms": ": separate names by commas, e.g. 'rotate,invert'"}
)


# The defaults that depend on the data, by noun. For texts: BERT's fine-tuning, and one transform per candidate.
DEFAULTS: Mapping[str, Mapping[str, int | float | str]] = MappingProxyType(
    {
        "images": {
            "model": "convnet",
            "epochs": 20,
            "min_steps": 0,
            "batch": 128,
            "lr": 0.1,
            "optimizer": "sgd",
            "weight_decay": 5e-4,
            "schedule": "cosine",
            "warmup": 0.02,
            "clip": 0.0,
            "transforms": "paper16",
            "depth": 2,
            "probability": 0.5,
        },
        "texts": {
            "model": "google-bert/bert-base-uncased",
            "epochs": 3,
            "min_steps": 200,
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
        },
    }
)
_ADAMW_LR = 1e-3  # the default of adamw where the data's default is SGD, whose rate would be 100 times too large


def defaults_of(noun: str, optimizer: str | None) -> Mapping[str, int | float | str]:
    """Return the defaults for "images" or "texts". The default learning rate also depends on the optimizer."""
    defaults = DEFAULTS[noun]
    return {**defaults, "lr": _ADAMW_LR} if optimizer == "adamw" != defaults["optimizer"] else defaults


# Small encoders need a higher rate and fewer epochs: by noun, the most parameters in the layers, and the defaults.
_BY_SIZE = MappingProxyType({"texts": ((20_000_000, {"lr": 1e-4, "epochs": 2}), (60_000_000, {"lr": 5e-5}))})
_SMALL = re.compile(
    r"minilm|(?<![a-z])(tiny|mini)(?![a-z])", re.IGNORECASE
)  # in names of the Hub, whose size is not known here
_LENGTH = 512  # the default of the key `length`


def model_defaults(noun: str, model: str) -> dict[str, int | float | str]:
    """Return the defaults that depend on the size of a model of texts: a folder with config.json, or a name of the Hub."""
    sizes, parameters, positions = _BY_SIZE.get(noun, ()), 0, 0
    try:
        config = json.loads((Path(model).expanduser() / "config.json").read_text(encoding="utf-8"))
        width, layers = (config.get(one, config.get(other)) for one, other in _SIZE_KEYS)
        parameters, positions = 12 * layers * width**2, config.get("max_position_embeddings") or 0
    except (OSError, ValueError, TypeError, AttributeError, RuntimeError):  # whoever loads the model reports it
        parameters = 1 if _SMALL.search(model) else 0
    defaults: dict[str, int | float | str] = dict(next((keys for most, keys in sizes if 0 < parameters <= most), {}))
    return defaults | ({"length": positions} if sizes and 0 < positions < _LENGTH else {})


_SIZE_KEYS = (("hidden_size", "dim"), ("num_hidden_layers", "n_layers"))  # the second names are those of DistilBERT
