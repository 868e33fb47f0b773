"""Recipes: everything that decides a run's result. From TOML, flags or keyword arguments to a frozen dataclass."""

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias, TypeVar

from outspan.files import HOME, Json, expand_home
from outspan.limits import LIMITS, check_value
from outspan.messages import first_line, shown, unknown
from outspan.recipe_keys import DEFAULTS, StudyKeys, as_string, defaults_of, model_defaults

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

Value: TypeAlias = int | float | str  # of a recipe key
_T = TypeVar("_T")
_BY_DATA: Any = None  # the default of a key in DEFAULTS


@dataclass(frozen=True)
class Recipe:
    """All settings that determine the result of a run; docs/training.md describes them.

    Some defaults depend on the data and the optimizer: `outspan.train` uses those of texts if the data contains texts. Until
    then, and after `dataclasses.replace`, the values are those of images.
    """

    data: str = "digits"
    model: str = _BY_DATA
    weights: str = ""  # initial weights of a ResNet or a timm model: "published", or a .safetensors file
    policy: str = "auto"
    seed: int = 0
    epochs: int = _BY_DATA
    min_steps: int = _BY_DATA  # more epochs if these have fewer steps; 0 if `epochs` is set and this is not
    steps: int = 0  # total number of steps, instead of epochs; 0: as many as the epochs have
    batch: int = _BY_DATA
    lr: float = _BY_DATA
    optimizer: str = _BY_DATA  # "sgd" or "adamw"
    momentum: float = 0.9
    weight_decay: float = _BY_DATA  # on weights, not on biases and normalization layers
    schedule: str = _BY_DATA  # "cosine", "linear", "multistep" (times 0.1 at 30, 60 and 80 %) or "constant"
    warmup: float = _BY_DATA  # first fraction of the steps, in which the learning rate rises to lr
    label_smoothing: float = 0.0
    class_weights: str = ""  # of the loss: "balanced", or one number per class, separated by commas; empty: all are 1
    sampling: str = "shuffle"  # of the training samples of an epoch: "shuffle", or "balanced" for equally many per class
    clip: float = _BY_DATA  # maximum norm of the gradient; 0: no limit
    accumulate: int = 1  # number of parts of a batch, for gradient accumulation
    precision: str = "auto"  # "bf16", "fp16" (with loss scaling), "fp32", or "auto": bf16 on a GPU, otherwise fp32
    sync_bn: int = 0  # 1: BatchNorm uses the statistics of the whole batch; 0: those of the rows of each process
    size: int = 224  # side of images read from a folder
    channels: str = "auto"  # of images from files: "1" (grey), "3" (RGB), or "auto" for 1 if all of them are grey
    background: str = "white"  # colour behind transparent pixels of image files: white, black, grey or "#rrggbb"
    crop: str = "centre"  # how they are cropped: "centre", or "resized" (random resized crop when a file is read)
    fraction: float = 1.0  # of the train and test samples to use, evenly spaced; at least two batches
    length: int = 512  # maximum number of tokens of a text, with special tokens
    truncate: str = "tail"  # part of a longer text that is kept: "head", "tail" or "head+tail"
    text_column: str = "text"
    label_column: str = "label"  # several names, separated by commas: columns of 0 and 1, for several labels per sample
    weight_column: str = ""  # of a table: the weight of each training sample in the loss; empty: all are 1
    label_separator: str = ""  # between the labels in this column; empty: one label per sample
    cache: str = ""  # file of back-translated sentences
    wordnet: str = ""  # folder of WordNet's database; "": where Debian installs it
    validation: int = 0  # number of train samples held out for model selection
    folds: int = 0  # number of parts of the train samples for cross-validation; 0: the data's own test split
    fold: int = 0  # which of them is the test split
    patience: int = 0  # end after this number of epochs without a better validation score; 0: no early stopping
    best_metric: str = "accuracy"  # of the validation data, for the best epoch and patience: or "balanced_accuracy", "macro_f1"
    transforms: str = _BY_DATA  # "paper16", "geometric", or comma-separated names
    depth: int = _BY_DATA
    probability: float = _BY_DATA
    profile: str = "paper"  # ranges of strength: "paper", or "released" (the authors' code: posterize keeps 0 to 3 bits)
    candidates: int = 4
    keep: int = 1
    select: str = "max"  # "max", "proportional" or a power
    score: str = "loss"  # or "excess": the loss minus its minimum for a mixed label
    score_every: int = 1
    magnitude: float = 9.0  # of RandAugment
    defaults: str = "none"
    strength: float = 1.0  # scales the levels and probabilities of the policy's transforms, not of the defaults
    by_confidence: float = 0.0  # fraction of the strength that depends on the model's confidence in each sample
    freeze: str = "none"  # what does not train: "none", or "all but head"
    unfreeze: int = 0  # number of epochs after which everything trains; 0: never
    layer_decay: float = 1.0  # factor of the learning rate from each layer to the one before it, for fine-tuning
    ema: float = 0.0  # decay of the average of the weights that is evaluated; 0 evaluates the weights themselves
    finish: float = 0.0  # last fraction of the steps, in which only the defaults are applied
    skip: float = -1.0  # of the easy samples, the fraction that an epoch leaves out; -1: up to 0.5 with the policy auto, else 0
    same_class: float = -1.0  # fraction of mixing partners with the same class; -1 draws partners from all classes
    adversaries: int = 8  # number of policies per image, of "adversarial"
    subpolicies: int = 5  # pairs of operations in each of them
    controller_lr: float = 0.00035
    entropy: float = 1e-5  # weight of the entropy bonus of the controller
    policy_file: str = ""  # of the policies "fastautoaugment" and "pba"
    policy_epochs: int = 200  # number of epochs of the search that produced a PBA schedule

    unset: ClassVar[tuple[str, ...]] = ()  # keys of DEFAULTS that were not set; `build_recipe` sets them for the data

    def __post_init__(self) -> None:
        if self.epochs is not _BY_DATA and self.min_steps is _BY_DATA:
            object.__setattr__(self, "min_steps", 0)
        unset = tuple(key for key in DEFAULTS["images"] if getattr(self, key) is _BY_DATA)
        defaults = defaults_of("images", self.optimizer)
        strings = {field.name: getattr(self, field.name) for field in fields(self) if field.type is str}
        values = {key: as_string(key, value) for key, value in strings.items() if key not in unset}
        for key, value in {**values, **{key: defaults[key] for key in unset}, "unset": unset}.items():
            object.__setattr__(self, key, value)
        for key in LIMITS:
            check_value(key, getattr(self, key))
        if self.keep > self.candidates:
            raise ValueError(f"keep is out of range, got {self.keep} (allowed: 1 to candidates, {self.candidates})")
        if self.fold >= max(self.folds, 1):
            raise ValueError(f"fold must be below folds, {self.folds}, got {self.fold}")
        if self.unfreeze and self.freeze == "none":
            raise ValueError(f"unfreeze must be 0 unless freeze is 'all but head', got {self.unfreeze}")

    def total_steps(self, samples: int) -> int:
        """Return the number of steps of a run on this number of training samples."""
        epoch_steps = self.steps_per_epoch(samples)
        return self.steps or max(self.epochs, -(-self.min_steps // epoch_steps)) * epoch_steps

    def total_epochs(self, samples: int) -> int:
        """Return the number of epochs of such a run. With `steps`, the last epoch may be incomplete."""
        return -(-self.total_steps(samples) // self.steps_per_epoch(samples))

    def steps_per_epoch(self, samples: int) -> int:
        """Return the number of batches in an epoch of this number of training samples. The last batch may be smaller."""
        return -(-samples // self.batch)


RENAMED: Mapping[str, str] = MappingProxyType({"share": "fraction"})  # old keys of recipes and their new names
KEYS = tuple(field.name for field in fields(Recipe))
_STANDARD = Recipe()
_TYPES: Mapping[str, type] = {key: type(getattr(_STANDARD, key)) for key in KEYS}
NounOf = Callable[[str], str]  # from the name of a data set to "images" or "texts"


def read_values(path: Path) -> dict[str, Any]:
    """Return the values in a TOML file, which may have any type."""
    try:
        with open(_find_recipe(expand_home(path)), "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        if path.suffix == ".toml":
            raise ValueError(f"{path}: no such file") from None
        raise ValueError(f"recipe file {str(path)!r} not found; for a data set use --data {path}") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: a folder, not a recipe file; for a folder of data use --data {path}") from None
    except (ValueError, OSError, RecursionError) as error:  # ValueError: TOMLDecodeError, not UTF-8, or too many digits
        raise ValueError(f"{path}: not TOML ({first_line(error)})") from None


def _find_recipe(path: Path) -> Path:
    """Return the path of a recipe. Those of the package, recipes/..., are found from any folder."""
    is_ours = path.parts[:1] == ("recipes",) and ".." not in path.parts and not path.exists()
    return HOME / path if is_ours and (HOME / path).is_file() else path


def read_recipe(path: Path) -> Recipe:
    """Return the recipe in a TOML file. An unknown key is a ValueError that names it and the closest known key."""
    return build_recipe(path)


def write_recipe(recipe: Recipe, *comments: str) -> str:
    """Return a recipe as TOML after its comments. Keys at their default for all data are left out, except the policy.

    The policy is always written, because its default has changed and may change again.
    """
    written = [key for key in KEYS if key == "policy" or any(getattr(recipe, key) != value for value in _defaults(key))]
    lines = [f"{key} = {json.dumps(getattr(recipe, key), ensure_ascii=False)}" for key in written]
    return "".join(f"{line}\n" for line in [*(f"# {comment}" for comment in comments), *lines])


def _defaults(key: str) -> list[Value]:
    """Return the defaults of a key, for each noun."""
    return [defaults.get(key, getattr(_STANDARD, key)) for defaults in DEFAULTS.values()]


def with_values(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """Return the recipe with changed values. A string is converted to the type of its key. A wrong type is a ValueError.

    Without `min_steps`, `epochs` is the exact number of epochs.

    >>> with_values(Recipe(min_steps=100), {"epochs": 5}).min_steps
    0
    """
    return replace(recipe, **{key: _typed(key, value) for key, value in _with_exact_epochs(values).items()})


def _with_exact_epochs(values: Mapping[str, _T]) -> Mapping[str, _T | int]:
    """Return values with `min_steps` 0 if they have `epochs` and not `min_steps`."""
    return {"min_steps": 0, **values} if "epochs" in values else values


def stored_recipe(values: Mapping[str, Json]) -> Recipe:
    """Return the recipe that a checkpoint stores. Keys have the names of today or of older versions."""
    return with_values(Recipe(), with_new_names(values))


def with_new_names(values: Mapping[str, Json]) -> dict[str, Json]:
    """Return stored values with the old keys of a recipe renamed to their new names."""
    return {RENAMED.get(key, key): value for key, value in values.items()}


def read_changes(changes: Sequence[str]) -> dict[str, str]:
    """Return the `key=value` changes of a command line."""
    values = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise ValueError(f"--set needs key=value, e.g. --set lr=0.1, got {shown(change)}")
        values[key.strip()] = value.strip()
    return values


def build_recipe(
    recipe: Recipe | Path | str | None = None,
    keys: StudyKeys | Mapping[str, Value] = MappingProxyType({}),
    noun_of: NounOf = lambda data: "images",
) -> Recipe:
    """Return a recipe, or that in a TOML file, or the defaults for its data, with the values of `keys`.

    `noun_of` tells from the name of the data whether the defaults are those for "images" or for "texts". For texts they also
    depend on the size of the model.

    >>> build_recipe(Recipe(epochs=3), {"batch": 32}) == Recipe(epochs=3, batch=32)
    True
    """
    if isinstance(recipe, Recipe):
        changed, is_set = with_values(recipe, keys), _with_exact_epochs(keys)
        is_default = "model" in recipe.unset and "model" not in keys
        defaults = default_recipe(noun_of(changed.data), changed.optimizer, "" if is_default else changed.model)
        return replace(changed, **{key: getattr(defaults, key) for key in recipe.unset if key not in is_set})
    if not isinstance(recipe, Path | str | None):
        raise ValueError(f"recipe must be a Recipe or the path of a TOML file, got {shown(recipe)}: pass keys as keywords")
    stored = {} if recipe is None else read_values(Path(recipe))
    values = {**stored, **keys}
    noun = noun_of(as_string("data", values.get("data", "")))
    defaults = default_recipe(noun, str(values.get("optimizer", "")), str(values.get("model", "")))
    try:
        read = with_values(defaults, stored)
    except ValueError as error:
        raise ValueError(f"{recipe}: {error}") from None
    return with_values(read, keys)


def default_recipe(noun: str, optimizer: str = "", model: str = "") -> Recipe:
    """Return the default recipe for "images" or "texts". Some defaults also depend on the optimizer and the model."""
    defaults = defaults_of(noun, optimizer)
    return with_values(Recipe(), {**defaults, **model_defaults(noun, model or str(defaults["model"]))})


def check_scale(scale: float) -> None:
    """Refuse a scale outside (0, 1]."""
    if not 0 < scale <= 1:
        raise ValueError(f"scale must lie in (0, 1], got {scale}")


def scaled(recipe: Recipe, scale: float) -> Recipe:
    """Return a recipe with a fraction of its epochs and samples, at least one epoch and two batches, for a quick test."""
    check_scale(scale)
    validation = math.ceil(recipe.validation * scale)
    epochs = max(1, round(recipe.epochs * scale))
    steps, min_steps = (math.ceil(count * scale**2) for count in (recipe.steps, recipe.min_steps))  # fewer and shorter epochs
    fraction = recipe.fraction * scale
    return replace(recipe, epochs=epochs, steps=steps, min_steps=min_steps, fraction=fraction, validation=validation)


def _typed(key: str, value: Any) -> Value:
    if key in RENAMED:
        raise ValueError(f"key {key!r} is now called {RENAMED[key]!r}: rename it")
    if key not in KEYS:
        raise unknown("key", key, KEYS)
    type_ = _TYPES[key]
    if type_ is str:
        return as_string(key, value)
    try:
        is_exact = type_ is float and type(value) is int and abs(value) < 2**53
        converted = type_(value) if is_exact or isinstance(value, str) else value
    except ValueError:
        converted = value
    if type(converted) is not type_:
        raise ValueError(f"{key} must be {_TYPE_NAMES[type_]}, got {shown(value)}")
    return converted


_TYPE_NAMES: Mapping[type, str] = {int: "a whole number", float: "a number"}


def changed_keys(one: Recipe, other: Recipe) -> dict[str, tuple[Value, Value]]:
    """Return the keys in which two recipes differ, with both values."""
    left, right = asdict(one), asdict(other)
    return {key: (left[key], right[key]) for key in KEYS if left[key] != right[key]}
