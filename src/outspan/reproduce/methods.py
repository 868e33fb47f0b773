"""The methods of the paper's comparisons as changes to the recipe of a row."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from outspan.config import Recipe, read_recipe, with_values
from outspan.data.sets import IMAGENET
from outspan.messages import unknown
from outspan.policies.files import fast_autoaugment, pba
from outspan.reproduce.paper import ROWS, Item
from outspan.reproduce.status import recipe_folder

# The changes to the recipe of a row, which is that of "uncertain". "ta" and "random" are not in the paper.
METHODS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "baseline": {"policy": "baseline", "defaults": "none"},
        "aa": {"policy": "autoaugment"},
        "fast-aa": {"policy": "fastautoaugment"},
        "pba": {"policy": "pba"},
        "ra": {"policy": "randaugment"},
        "ta": {"policy": "trivialaugment"},
        "adv-aa": {"policy": "adversarial"},
        "random": {"policy": "random"},
        "uncertain": {},
    }
)
# Default transforms after the published policies: on CIFAR, their papers crop, flip and cut out, and do not mix.
_DEFAULTS = MappingProxyType({"svhn": "svhn", IMAGENET: "flip"})
# RandAugment's number of transforms and magnitude by row (arXiv:1909.13719, Appendix A.2).
_RANDAUGMENT = MappingProxyType(
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
# The methods that need a published policy file, and where to get it.
POLICY_FILES = MappingProxyType(
    {
        "fast-aa": "FastAutoAugment/archive.py of github.com/kakaobrain/fast-autoaugment, with #fa_reduced_cifar10 or another",
        "pba": "schedules/rcifar10_16_wrn.txt or another of github.com/arcelien/pba",
    }
)


def recipe_of(item: Item, row: str, method: str, *, file: str = "") -> Recipe:
    """Return the recipe of a cell: that of the row with the changes of the method. `file` is a published policy file."""
    if row not in item.cells:
        raise unknown("row", row, item.cells)
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    base = read_recipe(recipe_folder() / f"{ROWS[row]}.toml")
    if method == "uncertain":
        return with_values(base, dict(item.changes))
    values = dict(METHODS[method])
    if method not in ("baseline", "random"):
        values["defaults"] = _DEFAULTS.get(base.data, "cifar-cutout")
    if method == "ra":
        values["depth"], values["magnitude"] = _RANDAUGMENT[row]
    if method == "pba":
        values["policy_epochs"] = _PBA_EPOCHS.get(base.data, base.policy_epochs)
    if method in POLICY_FILES:
        if not file:
            raise ValueError(f"{method} {needs_file(method)}")
        values["policy_file"] = file
    recipe = with_values(base, values)
    if method == "fast-aa":
        fast_autoaugment(file)  # a wrong file is refused before training
    if method == "pba":
        pba(file, searched=recipe.policy_epochs, epochs=recipe.epochs, epoch_steps=1)
    return recipe


def needs_file(method: str) -> str:
    """Return the message that a method needs a policy file."""
    return f"needs --policy-file {method}=FILE: {POLICY_FILES[method]}"
