"""Policies by name, as recipes and the command line ask for them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import nn

from outspan.config import Recipe
from outspan.data.sets import Data
from outspan.messages import unknown
from outspan.policies import files, published
from outspan.policies.adversarial import Adversarial
from outspan.policies.plain import Plain
from outspan.policies.proposals import Proposal, Schedule, Step, blend, over_range, sequence, uniform
from outspan.policies.protocols import Policy
from outspan.policies.uncertain import Uncertain
from outspan.transforms.normalize import Preprocess
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


@dataclass(frozen=True)
class Context:
    """What a policy is built from: the recipe, and what the data and the model add to it."""

    recipe: Recipe
    model: nn.Module
    preprocess: Preprocess
    classes: int
    family: str  # whose published tables the data takes
    side: int  # of an image
    epoch_steps: int

    @property
    def common(self) -> dict[str, Any]:
        """The arguments that all policies take."""
        return {
            "classes": self.classes,
            "defaults": self.recipe.defaults,
            "preprocess": self.preprocess,
            "seed": self.recipe.seed,
        }


@dataclass(frozen=True)
class Spec:
    """A policy of a recipe: how to build it, which keys of a recipe it takes, and its properties.

    All policies take `defaults`, and those that do not ask the model take `same_class`.
    """

    build: Callable[[Context], Policy]
    keys: tuple[str, ...] = ()
    for_text: bool = False
    asks_model: bool = False  # scores or learns while the model trains, which makes a step longer
    rows: Callable[[Recipe], int] = lambda recipe: 1  # trained on per image

    @property
    def needs_file(self) -> bool:
        """Whether it is read from a published file."""
        return "policy_file" in self.keys


def _plain(propose: Callable[[Context], Proposal | Schedule]) -> Callable[[Context], Plain]:
    """Return a function that builds a plain policy from a proposal."""
    return lambda context: Plain(propose(context), same_class=context.recipe.same_class, **context.common)


def _uncertain(context: Context) -> Uncertain:
    recipe = context.recipe
    return Uncertain(
        context.model,
        _uniform(context),
        candidates=recipe.candidates,
        keep=recipe.keep,
        select=_select(recipe.select),
        score=recipe.score,
        score_every=recipe.score_every,
        **context.common,
    )


def _adversarial(context: Context) -> Adversarial:
    recipe = context.recipe
    return Adversarial(
        update_every=context.epoch_steps,
        policies=recipe.adversaries,
        subpolicies=recipe.subpolicies,
        lr=recipe.controller_lr,
        entropy=recipe.entropy,
        **context.common,
    )


def _pba(context: Context) -> Schedule:
    recipe, epoch_steps = context.recipe, context.epoch_steps
    return files.pba(recipe.policy_file, searched=recipe.policy_epochs, epochs=recipe.epochs, epoch_steps=epoch_steps)


def _uniform(context: Context) -> Proposal:
    recipe = context.recipe
    names = transforms_of(recipe.transforms)
    return uniform(recipe.depth, transforms=names, probability=recipe.probability, profile=recipe.profile)


def _steps(context: Context) -> list[Step]:
    """Return the transforms of a recipe in their order, each as `uniform` would apply it."""
    recipe = context.recipe
    return [over_range(name, recipe.probability, recipe.profile) for name in transforms_of(recipe.transforms)]


_UNIFORM = ("transforms", "depth", "probability", "profile")
_LISTED = ("transforms", "probability", "profile")
_CHOOSING = ("candidates", "keep", "select", "score", "score_every")
_LEARNING = ("adversaries", "subpolicies", "controller_lr", "entropy")
POLICIES: Mapping[str, Spec] = MappingProxyType(
    {
        "none": Spec(_plain(lambda context: sequence()), for_text=True),
        "baseline": Spec(_plain(lambda context: published.BASELINES[context.family])),
        "random": Spec(_plain(_uniform), _UNIFORM, for_text=True),
        "uncertain": Spec(_uncertain, (*_UNIFORM, *_CHOOSING), for_text=True, asks_model=True, rows=lambda recipe: recipe.keep),
        "randaugment": Spec(
            _plain(lambda context: published.randaugment(context.recipe.depth, context.recipe.magnitude)),
            ("depth", "magnitude"),
        ),
        "trivialaugment": Spec(_plain(lambda context: published.trivialaugment(side=context.side))),
        "uniformaugment": Spec(_plain(lambda context: published.uniformaugment(context.recipe.depth)), ("depth",)),
        "autoaugment": Spec(_plain(lambda context: published.autoaugment(_TABLE.get(context.family, "cifar")))),
        "augmix": Spec(_plain(lambda context: published.augmix())),
        "mixup": Spec(_plain(lambda context: published.mixup())),
        "cutmix": Spec(_plain(lambda context: published.cutmix())),
        "fastautoaugment": Spec(_plain(lambda context: files.fast_autoaugment(context.recipe.policy_file)), ("policy_file",)),
        "pba": Spec(_plain(_pba), ("policy_file", "policy_epochs")),
        "adversarial": Spec(_adversarial, _LEARNING, asks_model=True, rows=lambda recipe: recipe.adversaries),
        "sequence": Spec(_plain(lambda context: sequence(*_steps(context))), _LISTED, for_text=True),
        "blend": Spec(_plain(lambda context: blend(*_steps(context))), _LISTED),
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


def build_policy(recipe: Recipe, model: nn.Module, data: Data, preprocess: Preprocess) -> Policy:
    """Return the policy of a recipe for a model on a data set."""
    check_recipe(recipe)
    check_for(recipe, data.train.noun)
    family = "imagenet-cropped" if recipe.crop == "resized" else _FAMILY.get(data.name, "cifar")
    epoch_steps = -(-(len(data.train) - recipe.validation) // recipe.batch)
    side = data.train.shape[-1] if data.train.shape else 0  # documents have no shape before they are tokenized
    return POLICIES[recipe.policy].build(Context(recipe, model, preprocess, len(data.classes), family, side, epoch_steps))


def check_recipe(recipe: Recipe) -> None:
    """Refuse an unknown policy, and what a policy cannot be given."""
    spec = find_policy(recipe.policy)
    if recipe.same_class != -1 and spec.asks_model:
        raise ValueError(f"same_class is for policies that do not choose, got the policy {recipe.policy!r}")
    if spec.needs_file and not recipe.policy_file:
        raise ValueError(f"policy {recipe.policy!r} needs policy_file, the file that its authors publish")
    if recipe.policy_file and not spec.needs_file:
        names = " and ".join(name for name, other in POLICIES.items() if other.needs_file)
        raise ValueError(f"policy_file is for {names}, got it with policy {recipe.policy!r}")


def find_policy(name: str) -> Spec:
    """Return a policy by name; an unknown name is a ValueError with the nearest known one."""
    if name not in POLICIES:
        raise unknown("policy", name, POLICIES)
    return POLICIES[name]


def has_baseline(data: str) -> bool:
    """Return whether the policy "baseline" does anything to a data set."""
    return _FAMILY.get(data) != "none"


def without_effect(keys: Iterable[str], policy: str) -> list[str]:
    """Return the keys that are other policies' and that this one does not take."""
    others = {key for spec in POLICIES.values() for key in spec.keys}
    return [key for key in keys if key in others and key not in POLICIES[policy].keys]


def check_for(recipe: Recipe, noun: str) -> None:
    """Refuse a policy or transforms that are not for "images", or not for "texts"."""
    if noun == "texts":
        return _check_text(recipe)
    for name in transforms_of(recipe.transforms) if "transforms" in find_policy(recipe.policy).keys else ():
        if name in TEXT_TRANSFORMS:
            raise ValueError(f"transform {name!r} is for text; for images there are {', '.join(TRANSFORMS)}")


def _check_text(recipe: Recipe) -> None:
    if not find_policy(recipe.policy).for_text or recipe.defaults != "none":
        asked = f"{recipe.policy!r} with the defaults {recipe.defaults!r}"
        names = ", ".join(name for name, spec in POLICIES.items() if spec.for_text)
        raise ValueError(f"the policy of text is one of {names}, without defaults, got {asked}")
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
