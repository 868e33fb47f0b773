"""The metadata of a checkpoint, decoded from JSON: its types, and the checks of its values."""

import math
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypedDict, cast

from typing_extensions import NotRequired

from outspan.config import stored_recipe
from outspan.files import Json
from outspan.messages import shown
from outspan.shapes import channels_of_shape


class DataMetadata(TypedDict):
    """What identifies the data of a run: `DataProvenance`, without the values that are None."""

    train: int
    shape: list[int]
    classes: list[str]
    mean: list[float]
    std: list[float]
    policy_file: NotRequired[str]
    weights: NotRequired[str]
    train_digest: NotRequired[str]
    test_digest: NotRequired[str]
    cache: NotRequired[str]
    multi_label: NotRequired[bool]
    decoding: NotRequired[int]


class ProvenanceMetadata(TypedDict):
    """What identifies a run: `Provenance`."""

    recipe: dict[str, Json]
    data: DataMetadata
    setting: dict[str, Json]


class StateMetadata(TypedDict):
    """The `State` of a run, without its tensors."""

    seconds: float
    losses: float  # sum over the steps of this epoch
    chosen: dict[str, list[float]]  # by composition: how often it was chosen in this epoch, and the sum of its losses
    unchanged: NotRequired[list[int]]  # of the texts with transforms in this epoch, how many are unchanged, and their number
    metrics: list[dict[str, float]]
    step: int
    scaler: NotRequired[list[float]]  # of fp16: the scale of the loss, and how many steps have had this scale


class RunMetadata(ProvenanceMetadata, StateMetadata):
    """The metadata of a run's checkpoint."""


class EnsembleMetadata(TypedDict):
    """The metadata of an ensemble's checkpoint."""

    members: list[dict[str, Json]]  # their recipes
    step: int


Check = tuple[Callable[[Any], bool], str]  # whether a value is allowed, and the allowed values in words
_LARGEST = 2**63 - 1
_METRIC_KEYS = ("epoch", "step", "train_loss", "test_accuracy")


def is_count(value: Any, least: int = 0) -> bool:
    """Return whether a value is an integer of at least `least` that fits in 64 bits."""
    return type(value) is int and least <= value <= _LARGEST


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # a larger integer cannot be a float


def _is_nonnegative(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_list(value: Any, is_element: Callable[[Any], bool], least: int = 0) -> bool:
    return type(value) is list and len(value) >= least and all(map(is_element, value))


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_shape(value: Any) -> bool:
    return _is_list(value, lambda side: is_count(side, 1), 1) and math.prod(value) < 2**31


def _is_metrics_row(value: Any) -> bool:
    """Return whether a value is the metrics of one epoch."""
    return type(value) is dict and value.keys() >= {*_METRIC_KEYS} and all(map(_is_nonnegative, value.values()))


def _is_chosen(value: Any) -> bool:
    """Return whether a value is the compositions that were chosen in an epoch."""

    def is_entry(entry: Any) -> bool:
        return type(entry) is list and len(entry) == 2 and is_count(entry[0], 1) and _is_nonnegative(entry[1])

    return type(value) is dict and all(map(is_entry, value.values()))


def _is_scaler(value: Any) -> bool:
    """Return whether a value is the state of a loss scaler."""
    return _is_list(value, _is_nonnegative, 2) and len(value) == 2 and value[0] > 0 and is_count(value[1])


_OBJECT: Check = (lambda value: type(value) is dict, "an object")
_TEXT_CHECK: Check = (_is_text, "text")
_STEP: Mapping[str, Check] = MappingProxyType({"step": (is_count, "an integer of at least 0")})
# A dot separates a key from the key of its object; "?" marks a key that may be missing.
RUN_CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        **_STEP,
        "recipe": _OBJECT,
        "data": _OBJECT,
        "data.train": (lambda value: is_count(value, 1), "an integer of at least 1"),
        "data.shape": (_is_shape, "[C, H, W] or [T], integers of at least 1 whose product is below 2**31"),
        "data.classes": (lambda value: _is_list(value, _is_text, 2), "a list of two names or more"),
        "data.mean": (lambda value: _is_list(value, lambda x: _is_number(x) and 0 <= x <= 1), "a list of numbers in [0, 1]"),
        "data.std": (lambda value: _is_list(value, lambda x: _is_number(x) and 0 < x <= 1), "a list of numbers in (0, 1]"),
        "data.train_digest?": _TEXT_CHECK,
        "data.test_digest?": _TEXT_CHECK,
        "data.cache?": _TEXT_CHECK,
        "data.multi_label?": (lambda value: value is True, "true"),
        "data.decoding?": (is_count, "an integer of at least 0"),
        "data.policy_file?": _TEXT_CHECK,
        "data.weights?": _TEXT_CHECK,
        "setting": _OBJECT,
        "scaler?": (_is_scaler, "a list of a positive number and an integer of at least 0"),
        "seconds": (_is_nonnegative, "a number of at least 0"),
        "losses": (_is_nonnegative, "a number of at least 0"),
        "chosen": (_is_chosen, "an object of [count, loss]"),
        "unchanged?": (lambda value: _is_list(value, is_count) and len(value) == 2, "two integers of at least 0"),
        "metrics": (
            lambda value: _is_list(value, _is_metrics_row),
            f"a list of objects with {', '.join(_METRIC_KEYS)}",
        ),
    }
)
# The same for several models that are trained at once.
ENSEMBLE_CHECKS: Mapping[str, Check] = MappingProxyType(
    {**_STEP, "members": (lambda value: _is_list(value, lambda one: type(one) is dict, 1), "a list of recipes")}
)


def check_metadata(metadata: Any, checks: Mapping[str, Check]) -> None:
    """Refuse metadata with a missing key, a value of the wrong type, or values that contradict each other."""
    if type(metadata) is not dict:
        raise ValueError(f"metadata must be an object, got {shown(metadata)}")
    for key, (is_allowed, allowed) in checks.items():
        *parents, name = key.rstrip("?").split(".")
        values = metadata
        for parent in parents:
            values = values[parent]  # an object: it was checked before its keys
        if name not in values:
            if key.endswith("?"):
                continue
            raise ValueError(f"metadata has no key {key!r}, which must be {allowed}")
        if not is_allowed(values[name]):
            raise ValueError(f"metadata {key.rstrip('?')!r} must be {allowed}, got {shown(values[name])}")
    if checks is RUN_CHECKS:
        _check_run(cast(RunMetadata, metadata))


def _check_run(metadata: RunMetadata) -> None:
    """Refuse metadata of a run whose values contradict each other."""
    try:
        recipe = stored_recipe(metadata["recipe"])
    except ValueError as error:
        raise ValueError(f"metadata 'recipe': {error}") from None
    data, step = metadata["data"], metadata["step"]
    try:
        channels = channels_of_shape(data["shape"])
    except ValueError as error:
        raise ValueError(f"metadata 'data.shape': {error}") from None
    for key in ("mean", "std"):
        if len(data[key]) != channels:
            raise ValueError(f"metadata 'data.{key}' must have {channels} values, got {len(data[key])}")
    steps = recipe.total_steps(data["train"])
    if step > steps:
        raise ValueError(f"metadata 'step' must be at most the run's {steps} steps, got {step}")
    ended = recipe.total_epochs(data["train"]) if step == steps else step // recipe.steps_per_epoch(data["train"])
    if len(metadata["metrics"]) != ended:
        raise ValueError(f"metadata 'metrics' must have a row for each of {ended} epochs, got {len(metadata['metrics'])}")
