"""The recipes that a study trains: a baseline without augmentation, and the same recipe with each transform."""

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from outspan.config import Recipe, build_recipe, default_recipe, read_values
from outspan.data.sets import noun_of
from outspan.messages import shown
from outspan.policies.table import TRANSFORM_SETS
from outspan.training.setup import with_absolute_paths
from outspan.transforms.table import BY_NOUN, find

BASELINE = "baseline"
PAPER_FIVE = ("rotate", "random_crop", "cutout", "translate_x", "translate_y")  # in the paper's graph of compositions
# The recipe keys that a study sets itself.
STUDY_KEYS = ("policy", "policy_file", "seed", "transforms", "depth", "probability", "defaults", "same_class")
_OPTIONS = {"seed": "seeds", "transforms": "transforms", "probability": "probability", "same_class": "fractions"}
_MODELS: Mapping[str, str] = MappingProxyType({"images": "mlp"})  # by noun; otherwise the default of the recipe


def study_recipe(study: str, recipe: Recipe | Path | str | None, keys: Mapping[str, Any]) -> Recipe:
    """Return the recipe that all models of a study share, from a recipe, a TOML file or the defaults, with changed keys.

    The default model for images is an mlp, as in the paper. `study` is the name of the study, for messages.
    """
    check_keys(study, keys)
    if isinstance(recipe, Recipe):
        return with_absolute_paths(build_recipe(recipe, keys))
    stored = {} if recipe is None else read_values(Path(recipe))
    # Without a policy there is nothing to ignore.
    if ignored := [key for key, value in stored.items() if key in STUDY_KEYS and value != "none"]:
        names = ", ".join(ignored)
        warnings.warn(f"{study} sets these keys itself and ignores their values in {recipe}: {names}", stacklevel=3)
    noun = noun_of(str({**stored, **keys}.get("data", "")))
    if noun in _MODELS and "model" not in stored:
        keys = {"model": _MODELS[noun], **keys}
    return with_absolute_paths(build_recipe(recipe, keys, noun_of))


def check_keys(study: str, keys: Collection[str]) -> None:
    """Refuse recipe keys that a study sets itself. `study` is the name of its command."""
    for key in keys:
        if key in STUDY_KEYS:
            option = _OPTIONS.get(key)
            how = f"use the option --{option}" if option else "leave it out"
            raise ValueError(f"{study} sets {key} itself, so {key} cannot be changed: {how}")


def default_probability(data: str) -> float:
    """Return the probability of a transform in a study, by the name of the data: 0.5 for images, 1 for text (the paper's)."""
    return default_recipe(noun_of(data)).probability


def measurable(data: str = "", cache: str = "") -> tuple[str, ...]:
    """Return the transforms that can be measured: those that keep the label. Back-translation needs a cache."""
    table = BY_NOUN[noun_of(data)]
    excluded = {"identity"} if cache else {"identity", "back_translation"}
    return tuple(name for name, transform in table.items() if not transform.mixes and name not in excluded)


def select_transforms(transforms: str | Sequence[str], recipe: Recipe) -> tuple[str, ...]:
    """Return names of transforms, without repetitions.

    Args:
        transforms: Names as a list or separated by commas, "all", or the name of a set of transforms, e.g. "geometric". From
            a set, and from "all", only the transforms that can be measured on the data are returned.
        recipe: The recipe with the data.
    """
    if isinstance(transforms, str):
        if transforms.strip() in ("all", *TRANSFORM_SETS):
            allowed = TRANSFORM_SETS.get(transforms.strip())
            return tuple(name for name in measurable(recipe.data, recipe.cache) if allowed is None or name in allowed)
        transforms = [name.strip() for name in transforms.split(",") if name.strip()]
    if not isinstance(transforms, Sequence) or not all(isinstance(name, str) for name in transforms):
        raise ValueError(f"transforms must be names such as 'rotate', or 'all', got {shown(transforms)}")
    return tuple(dict.fromkeys(transforms))


def check_transforms(recipe: Recipe, transforms: Sequence[str]) -> None:
    """Refuse transforms that cannot be measured on the data of a recipe."""
    if not transforms:
        raise ValueError("there is no transform to measure: pass at least one name, or 'all'")
    allowed = measurable(recipe.data, recipe.cache)
    for name in transforms:
        transform = find(name, BY_NOUN[noun_of(recipe.data)])
        if name not in allowed:
            reasons = {"identity": "changes nothing: it is the baseline", "back_translation": "needs a cache: set cache=FILE"}
            mixes = "mixes labels: only transforms that keep the label of a sample can be measured"
            raise ValueError(f"{name!r} {mixes if transform.mixes else reasons[name]} (allowed: {', '.join(allowed)})")


def unaugmented(recipe: Recipe) -> Recipe:
    """Return a recipe with the default values of the augmentation keys, which the study sets itself."""
    return replace(recipe, transforms="paper16", depth=1, defaults="none", same_class=-1.0, policy_file="")


def baseline_recipe(recipe: Recipe, probability: float | None = None) -> Recipe:
    """Return the recipe of the baseline, which has no augmentation. `probability` is for the recipes with transforms."""
    probability = default_probability(recipe.data) if probability is None else probability
    if not 0 < probability <= 1:
        raise ValueError(f"probability must lie in (0, 1], got {probability}")
    return replace(unaugmented(recipe), policy="none", probability=probability)


def single_transforms(baseline: Recipe, transforms: Iterable[str]) -> dict[str, Recipe]:
    """Return the recipes of the baseline and of each transform alone, with levels uniform over the paper's range."""
    transforms = list(transforms)
    check_transforms(baseline, transforms)
    return {BASELINE: baseline} | {name: chain(baseline, [name]) for name in transforms}


def chain(baseline: Recipe, transforms: Sequence[str]) -> Recipe:
    """Return the recipe that applies transforms one after another, each with its own probability and level."""
    return replace(baseline, policy="sequence", transforms=",".join(transforms))
