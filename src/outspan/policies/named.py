"""Policies by name, as recipes and the command line ask for them."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from torch import nn

from outspan.config import Recipe, unknown
from outspan.data.sets import Data
from outspan.policies import files, published
from outspan.policies.adversarial import Adversarial
from outspan.policies.plain import Plain
from outspan.policies.proposals import Proposal, Schedule, Step, blend, over_range, sequence, uniform
from outspan.policies.uncertain import Uncertain
from outspan.text.apply import Framed
from outspan.transforms.normalize import Normalize
from outspan.transforms.table import ALL, PAPER_16, TEXT_TRANSFORMS, TRANSFORMS, find

SETS_OF_TRANSFORMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "paper16": PAPER_16,
        "geometric": ("rotate", "shear_x", "shear_y", "translate_x", "translate_y", "cutout"),
        "words": ("switchout", "word_replacement"),
        "paper3": ("switchout", "word_replacement", "back_translation"),
    }
)
# Which published tables a data set takes; others take CIFAR's.
_FAMILY = MappingProxyType({"svhn": "svhn", "digits": "none", "mnist": "none"})
_TABLE = MappingProxyType({"svhn": "svhn", "imagenet-cropped": "imagenet"})  # of AutoAugment, where it is not CIFAR's
FROM_FILES = ("fastautoaugment", "pba")
_FOR_TEXT = ("none", "random", "uncertain", "sequence")
_UNIFORM = ("transforms", "depth", "probability", "profile")
# Policies, and the keys of a recipe that each of them takes; all take `defaults`, and those that do not choose `same_class`.
POLICIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "none": (),
        "baseline": (),
        "random": _UNIFORM,
        "uncertain": (*_UNIFORM, "candidates", "keep", "select", "score", "score_every"),
        "randaugment": ("depth", "magnitude"),
        "trivialaugment": (),
        "uniformaugment": ("depth",),
        "autoaugment": (),
        "augmix": (),
        "mixup": (),
        "cutmix": (),
        "fastautoaugment": ("policy_file",),
        "pba": ("policy_file", "policy_epochs"),
        "adversarial": ("adversaries", "subpolicies", "controller_lr", "entropy"),
        "sequence": ("transforms", "probability", "profile"),
        "blend": ("transforms", "probability", "profile"),
    }
)


def transforms_of(text: str) -> tuple[str, ...]:
    """Return the transforms that a recipe names: "paper16", "geometric", for text "words", "paper3", or names with commas."""
    if text in SETS_OF_TRANSFORMS:
        return SETS_OF_TRANSFORMS[text]
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in ALL:
            raise unknown("transform", name, [*SETS_OF_TRANSFORMS, *ALL])
    return names


def build_policy(recipe: Recipe, model: nn.Module, data: Data, last: Normalize | Framed) -> Plain | Uncertain | Adversarial:
    """Return the policy of a recipe for a model on a data set."""
    check_recipe(recipe)
    if isinstance(last, Framed):
        check_text(recipe)
    elif "transforms" in POLICIES[recipe.policy]:
        for name in transforms_of(recipe.transforms):
            if name in TEXT_TRANSFORMS:
                raise ValueError(f"transform {name!r} is of text; for images there are {', '.join(TRANSFORMS)}")
    family = "imagenet-cropped" if recipe.crop == "resized" else _FAMILY.get(data.name, "cifar")
    epoch_steps = -(-(len(data.train) - recipe.validation) // recipe.batch)
    common = {"defaults": recipe.defaults, "normalize": last, "seed": recipe.seed}
    if recipe.policy == "uncertain":
        return Uncertain(
            model,
            _uniform(recipe),
            candidates=recipe.candidates,
            keep=recipe.keep,
            select=_select(recipe.select),
            score=recipe.score,
            score_every=recipe.score_every,
            classes=len(data.classes),
            **common,
        )
    if recipe.policy == "adversarial":
        return Adversarial(
            len(data.classes),
            epoch_steps,
            policies=recipe.adversaries,
            subpolicies=recipe.subpolicies,
            lr=recipe.controller_lr,
            entropy=recipe.entropy,
            **common,
        )
    proposals: dict[str, Callable[[], Proposal | Schedule]] = {
        "none": sequence,
        "random": lambda: _uniform(recipe),
        "sequence": lambda: sequence(*_steps(recipe)),
        "blend": lambda: blend(*_steps(recipe)),
        "baseline": lambda: published.BASELINES[family],
        "randaugment": lambda: published.randaugment(recipe.depth, recipe.magnitude),
        "trivialaugment": lambda: published.trivialaugment(side=data.train.shape[-1]),
        "uniformaugment": lambda: published.uniformaugment(recipe.depth),
        "autoaugment": lambda: published.autoaugment(_TABLE.get(family, "cifar")),
        "augmix": published.augmix,
        "mixup": published.mixup,
        "cutmix": published.cutmix,
        "fastautoaugment": lambda: files.fast_autoaugment(recipe.policy_file),
        "pba": lambda: files.pba(
            recipe.policy_file,
            searched=recipe.policy_epochs,
            epochs=recipe.epochs,
            epoch_steps=epoch_steps,
        ),
    }
    return Plain(proposals[recipe.policy](), len(data.classes), **common, same_class=recipe.same_class)


def _uniform(recipe: Recipe) -> Proposal:
    names = transforms_of(recipe.transforms)
    return uniform(recipe.depth, transforms=names, probability=recipe.probability, profile=recipe.profile)


def _steps(recipe: Recipe) -> list[Step]:
    """Return the transforms of a recipe in their order, each as `uniform` would apply it."""
    return [over_range(name, recipe.probability, recipe.profile) for name in transforms_of(recipe.transforms)]


def check_recipe(recipe: Recipe) -> None:
    """Refuse an unknown policy, and what a policy cannot be given."""
    check_policy(recipe.policy)
    if recipe.same_class != -1 and recipe.policy in ("uncertain", "adversarial"):
        raise ValueError(f"same_class is for policies that do not choose, got the policy {recipe.policy!r}")
    if recipe.policy in FROM_FILES and not recipe.policy_file:
        raise ValueError(f"policy {recipe.policy!r} needs policy_file, the file that its authors publish")
    if recipe.policy_file and recipe.policy not in FROM_FILES:
        raise ValueError(f"policy_file is for {' and '.join(FROM_FILES)}, got it with policy {recipe.policy!r}")


def check_policy(name: str) -> None:
    """Refuse an unknown policy, with the nearest known one."""
    if name not in POLICIES:
        raise unknown("policy", name, POLICIES)


def has_baseline(data: str) -> bool:
    """Return whether the policy "baseline" does anything to a data set."""
    return _FAMILY.get(data) != "none"


def without_effect(keys: Iterable[str], policy: str) -> list[str]:
    """Return the keys that are other policies' and that this one does not take."""
    others = {key for taken in POLICIES.values() for key in taken}
    return [key for key in keys if key in others and key not in POLICIES[policy]]


def check_text(recipe: Recipe) -> None:
    """Refuse what a text cannot be given: policies and transforms of images, and translation without its cache."""
    if recipe.policy not in _FOR_TEXT or recipe.defaults != "none":
        asked = f"{recipe.policy!r} with the defaults {recipe.defaults!r}"
        raise ValueError(f"the policy of text is one of {', '.join(_FOR_TEXT)}, without defaults, got {asked}")
    names = transforms_of(recipe.transforms) if recipe.policy != "none" else ()
    for name in names:
        find(name, TEXT_TRANSFORMS)
    if "back_translation" in names and not recipe.cache:
        how = "outspan text backtranslate CORPUS -o cache.jsonl, then --set cache=cache.jsonl"
        raise ValueError(f"back_translation needs a cache of translated sentences: {how}")


def _select(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
