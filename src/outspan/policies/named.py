"""Policies by name, as recipes and the command line ask for them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from torch import nn

from outspan.config import Recipe, unknown
from outspan.data.sets import Data
from outspan.policies import published
from outspan.policies.plain import Plain
from outspan.policies.proposals import Proposal, sequence, uniform
from outspan.policies.uncertain import Uncertain
from outspan.transforms.normalize import Normalize
from outspan.transforms.table import PAPER_16, find

SETS_OF_TRANSFORMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "paper16": PAPER_16,
        "geometric": ("rotate", "shear_x", "shear_y", "translate_x", "translate_y", "cutout"),
    }
)
# Which published tables a data set takes; others take CIFAR's.
_FAMILY = MappingProxyType({"svhn": "svhn", "digits": "none", "mnist": "none"})
POLICIES = (
    "none", "baseline", "random", "uncertain", "randaugment", "trivialaugment", "uniformaugment", "autoaugment",
    "augmix", "mixup", "cutmix",
)  # fmt: skip


def transforms_of(text: str) -> tuple[str, ...]:
    """Return the transforms that a recipe names: "paper16", "geometric", or names with commas."""
    if text in SETS_OF_TRANSFORMS:
        return SETS_OF_TRANSFORMS[text]
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        find(name)
    return names


def build_policy(recipe: Recipe, model: nn.Module, data: Data, last: Normalize) -> Plain | Uncertain:
    """Return the policy of a recipe for a model on a data set."""
    family = _FAMILY.get(data.name, "cifar")
    side = data.train.shape[-1]
    common = {"defaults": recipe.defaults, "normalize": last, "seed": recipe.seed}
    if recipe.policy in ("random", "uncertain"):
        propose = uniform(recipe.depth, transforms=transforms_of(recipe.transforms), probability=recipe.probability)
        if recipe.policy == "random":
            return Plain(propose, len(data.classes), **common)
        return Uncertain(
            model,
            propose,
            candidates=recipe.candidates,
            keep=recipe.keep,
            select=_select(recipe.select),
            score=recipe.score,
            score_every=recipe.score_every,
            classes=len(data.classes),
            **common,
        )
    proposals: dict[str, Callable[[], Proposal]] = {
        "none": sequence,
        "baseline": lambda: published.BASELINES[family],
        "randaugment": lambda: published.randaugment(recipe.depth, recipe.magnitude),
        "trivialaugment": lambda: published.trivialaugment(side=side),
        "uniformaugment": lambda: published.uniformaugment(recipe.depth),
        "autoaugment": lambda: published.autoaugment("svhn" if family == "svhn" else "cifar"),
        "augmix": published.augmix,
        "mixup": published.mixup,
        "cutmix": published.cutmix,
    }
    check_policy(recipe.policy)
    return Plain(proposals[recipe.policy](), len(data.classes), **common)


def check_policy(name: str) -> None:
    """Refuse an unknown policy, with the nearest known one."""
    if name not in POLICIES:
        raise unknown("policy", name, POLICIES)


def _select(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
