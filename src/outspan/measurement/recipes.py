"""The recipes that a study trains: a baseline without augmentation, and the same recipe with each transform."""

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from outspan.config import Recipe, build_recipe, default_recipe, read_values, with_values
from outspan.data.sets import noun_of
from outspan.messages import shown
from outspan.policies.table import TRANSFORM_SETS, warn_ignored_keys
from outspan.recipe_keys import StudyKeys
from outspan.training.setup import with_absolute_paths
from outspan.transforms.table import BY_NOUN, Transform, find

BASELINE = "baseline"
PAPER_FIVE = ("rotate", "random_crop", "cutout", "translate_x", "translate_y")  # in the paper's graph of compositions
# The recipe keys that a study sets itself. `StudyKeys` has all others.
SET_BY_STUDIES = (
    *("policy", "policy_file", "seed", "transforms", "depth", "probability", "defaults", "same_class"),
    *("patience", "best_metric", "folds", "fold"),
)
_OPTIONS = {"seed": "seeds", "transforms": "transforms", "probability": "probability", "same_class": "fractions"}
# The defaults of a study that differ from those of a recipe, by noun.
_STUDY_DEFAULTS: Mapping[str, Mapping[str, str]] = MappingProxyType({"images": {"model": "mlp"}, "texts": {}})


def study_recipe(study: str, recipe: Recipe | Path | str | None, keys: StudyKeys) -> Recipe:
    """Return the recipe that all models of a study share, from a recipe, a TOML file or the defaults, with changed keys.

    The default model for images is an mlp, as in the paper. `study` is the name of the study, for messages.
    """
    check_keys(study, keys)
    if isinstance(recipe, Recipe):
        built = build_recipe(recipe, keys, noun_of)
        warn_ignored_keys(keys, built, ["sequence"], subject=study, stacklevel=4)
        return with_absolute_paths(built)
    stored = {} if recipe is None else read_values(Path(recipe))
    # A value of "none" is no augmentation, so nothing is ignored.
    if ignored := [key for key, value in stored.items() if key in SET_BY_STUDIES and value != "none"]:
        names = ", ".join(ignored)
        warnings.warn(f"{study} sets these keys itself and ignores their values in {recipe}: {names}", stacklevel=3)
    built = build_recipe(recipe, keys, noun_of)
    warn_ignored_keys(keys, built, ["sequence"], subject=study, stacklevel=4)
    defaults = {key: value for key, value in _STUDY_DEFAULTS[noun_of(built.data)].items() if key not in {**stored, **keys}}
    return with_absolute_paths(with_values(built, defaults))


def check_keys(study: str, keys: Collection[str]) -> None:
    """Refuse recipe keys that a study sets itself. `study` is the name of its command."""
    for key in keys:
        if key in SET_BY_STUDIES:
            option = _OPTIONS.get(key)
            how = f"use the option --{option}" if option else "leave it out"
            raise ValueError(f"{study} sets {key} itself, so {key} cannot be changed: {how}")


def default_probability(data: str) -> float:
    """Return the probability of a transform in a study of this data: 0.5 for images, 1 for text, as in the paper."""
    return default_recipe(noun_of(data)).probability


def measurable(data: str = "", cache: str = "") -> tuple[str, ...]:
    """Return the transforms that can be measured: those that change a sample and not its label.

    Transforms of texts that need more than a cache are left out.
    """
    table = BY_NOUN[noun_of(data)]
    have = ("", "cache") if cache else ("",)
    usable = [name for name, transform in table.items() if not transform.mixes and transform.needs in have]
    return tuple(name for name in usable if name != "identity")


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
        if name not in allowed and transform.needs not in ("wordnet", "case"):  # what these need is checked when they run
            raise ValueError(f"{name!r} {_reason(transform)} (allowed: {', '.join(allowed)})")


def _reason(transform: Transform) -> str:
    """Return why a transform cannot be measured."""
    if transform.mixes:
        return "mixes labels: only transforms that keep the label of a sample can be measured"
    return "needs a cache: set cache=FILE" if transform.needs == "cache" else "changes nothing: it is the baseline"


def unaugmented(recipe: Recipe) -> Recipe:
    """Return a recipe with the default values of the augmentation keys, which the study sets itself."""
    return replace(recipe, transforms="paper16", depth=1, defaults="none", same_class=-1.0, policy_file="", folds=0, fold=0)


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
