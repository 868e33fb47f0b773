"""The methods of the paper's comparisons as changes to the recipe of a row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from outspan.config import Recipe, read_recipe, with_values
from outspan.data.sets import IMAGENET
from outspan.messages import unknown
from outspan.policies.files import fast_autoaugment, pba
from outspan.recipe_keys import RecipeKeys
from outspan.reproduce.paper import ROWS, Item
from outspan.reproduce.status import recipe_folder


@dataclass(frozen=True)
class PolicyFile:
    """A published policy file: where to get it, and how to read it. A damaged file raises a ValueError when it is read."""

    source: str
    read: Callable[[Recipe], object]


@dataclass(frozen=True)
class Method:
    """A method of the comparisons: its changes to the recipe of a row, and the policy file that it needs, if any."""

    changes: Callable[[Recipe, str], RecipeKeys]  # from the recipe and the name of a row
    file: PolicyFile | None = None


# Default transforms after the published policies: on CIFAR, their papers crop, flip and cut out, and do not mix.
_DEFAULTS = MappingProxyType({"svhn": "svhn", IMAGENET: "flip"})
# RandAugment's number of transforms and magnitude by row (arXiv:1909.13719, Appendix A.2).
_RANDAUGMENT_SETTINGS = MappingProxyType(
    {
        "cifar10/wrn-28-10": (3, 5.0),
        "cifar10/shake-shake": (3, 9.0),
        "cifar10/pyramidnet": (3, 7.0),
        "cifar100/wrn-28-10": (2, 14.0),
        "svhn/wrn-28-10": (3, 9.0),
        "imagenet/resnet-50": (2, 9.0),
    }
)
_PBA_EPOCHS = MappingProxyType({"svhn": 160})  # epochs of the search for a published schedule; 200 for other data


def _published(policy: str, recipe: Recipe) -> RecipeKeys:
    """Return the changes of a published policy, with the default transforms that its paper uses."""
    return {"policy": policy, "defaults": _DEFAULTS.get(recipe.data, "cifar-cutout")}


def _randaugment(recipe: Recipe, row: str) -> RecipeKeys:
    depth, magnitude = _RANDAUGMENT_SETTINGS[row]
    return {**_published("randaugment", recipe), "depth": depth, "magnitude": magnitude}


def _pba(recipe: Recipe, row: str) -> RecipeKeys:
    return {**_published("pba", recipe), "policy_epochs": _PBA_EPOCHS.get(recipe.data, recipe.policy_epochs)}


_FAST_AUTOAUGMENT_FILE = PolicyFile(
    "FastAutoAugment/archive.py of github.com/kakaobrain/fast-autoaugment, with #fa_reduced_cifar10 or another",
    lambda recipe: fast_autoaugment(recipe.policy_file),
)
_PBA_FILE = PolicyFile(
    "schedules/rcifar10_16_wrn.txt or another of github.com/arcelien/pba",
    lambda recipe: pba(recipe.policy_file, searched=recipe.policy_epochs, epochs=recipe.epochs, epoch_steps=1),
)
# The recipe of a row is that of "uncertain". "ta" and "random" are not in the paper.
METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "baseline": Method(lambda recipe, row: {"policy": "baseline", "defaults": "none"}),
        "aa": Method(lambda recipe, row: _published("autoaugment", recipe)),
        "fast-aa": Method(lambda recipe, row: _published("fastautoaugment", recipe), _FAST_AUTOAUGMENT_FILE),
        "pba": Method(_pba, _PBA_FILE),
        "ra": Method(_randaugment),
        "ta": Method(lambda recipe, row: _published("trivialaugment", recipe)),
        "adv-aa": Method(lambda recipe, row: _published("adversarial", recipe)),
        "random": Method(lambda recipe, row: {"policy": "random"}),
        "uncertain": Method(lambda recipe, row: {}),
    }
)
# The published policy files, by method.
POLICY_FILES: Mapping[str, PolicyFile] = MappingProxyType(
    {name: method.file for name, method in METHODS.items() if method.file is not None}
)


def row_recipe(item: Item, row: str) -> Recipe:
    """Return the recipe of a row of a table. It is the recipe of the method "uncertain"."""
    if row not in item.cells:
        raise unknown("row", row, item.cells)
    return read_recipe(recipe_folder() / f"{ROWS[row]}.toml")


def recipe_of(item: Item, row: str, method: str, *, file: str = "") -> Recipe:
    """Return the recipe of a cell: that of the row with the changes of the method. `file` is a published policy file."""
    base = row_recipe(item, row)
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    recipe = with_values(base, {**METHODS[method].changes(base, row), **item.changes.get(method, {})})
    if method in POLICY_FILES:
        if not file:
            raise ValueError(f"{method} {needs_file(method)}")
        recipe = with_values(recipe, {"policy_file": file})
        POLICY_FILES[method].read(recipe)  # a damaged file is refused before training
    return recipe


def needs_file(method: str) -> str:
    """Return the message that a method needs a policy file."""
    return f"needs --policy-file {method}=FILE: {POLICY_FILES[method].source}"
