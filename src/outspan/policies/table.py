"""The policies of recipes and the command line, by name. A new policy is its code and one line in POLICIES."""

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from torch import nn

from outspan.config import Recipe
from outspan.data.sets import Data
from outspan.messages import shown, unknown
from outspan.policies import files, published
from outspan.policies.adversarial import Adversarial
from outspan.policies.auto import Auto
from outspan.policies.drawing import find_defaults
from outspan.policies.objectives import MULTI_LABEL, find_objective, objective_for
from outspan.policies.plain import Plain
from outspan.policies.proposals import blend, natural, natural_names, over_range, sequence, uniform
from outspan.policies.protocols import Policy
from outspan.policies.ranks import within_ranks
from outspan.policies.settings import Settings
from outspan.policies.steps import Proposal, Schedule, Step
from outspan.policies.uncertain import Uncertain
from outspan.text.wordnet import open_wordnet
from outspan.transforms.normalize import Preprocess
from outspan.transforms.table import ALL, BY_NOUN, PAPER_16, TEXT_SETS

TRANSFORM_SETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "paper16": PAPER_16,
        "geometric": ("rotate", "shear_x", "shear_y", "translate_x", "translate_y", "cutout"),
        **TEXT_SETS,
    }
)
# The benchmark whose published settings a data set uses. For all others it is CIFAR.
BENCHMARKS = MappingProxyType({"svhn": "svhn", "digits": "none", "mnist": "none"})
_AUTOAUGMENT_TABLES = MappingProxyType({"svhn": "svhn", "imagenet-cropped": "imagenet"})
_DEFAULTS = MappingProxyType({"images": tuple(published.DEFAULTS), "texts": ("none",)})
_MIXES = MappingProxyType({"images": sequence(Step("cutmix", 0.0, 1.0)), "texts": None})  # what "auto" does in long runs


@dataclass(frozen=True)
class Context:
    """What a policy is built from: the recipe, the model, and properties of the data."""

    recipe: Recipe
    model: nn.Module
    preprocess: Preprocess
    classes: int
    noun: str  # of the data: "images" or "texts"
    benchmark: str  # the published settings for the data: "cifar", "svhn", "imagenet-cropped" or "none"
    shape: tuple[int, ...]  # of a sample
    samples: int  # number of training samples
    world: int = 1  # number of ranks
    multi_label: bool = False  # whether a sample can have several labels

    @property
    def epoch_steps(self) -> int:
        """Steps per epoch."""
        return self.recipe.steps_per_epoch(self.samples)

    @property
    def settings(self) -> Settings:
        """The arguments that all policies take."""
        recipe = self.recipe
        return {
            "classes": self.classes,
            "defaults": recipe.defaults if self.world == 1 else within_ranks(find_defaults(recipe.defaults), self.world),
            "preprocess": self.preprocess,
            "strength": recipe.strength,
            "finish": recipe.finish,
            "steps": recipe.total_steps(self.samples),
            "seed": recipe.seed,
            "rank": 0,  # a run passes the whole batch to its policy, as a `Part`
            "world": 1,
        }


@dataclass(frozen=True)
class Spec:
    """A policy of a recipe: how to build it, which keys of the recipe it reads, and its properties.

    All policies read `defaults`, `strength`, `finish` and `skip`. Policies that do not use the model also read `same_class`.
    """

    build: Callable[[Context], Policy]
    keys: tuple[str, ...] = ()  # keys of the recipe that only some policies read
    nouns: tuple[str, ...] = ("images",)  # types of data that it augments
    uses_model: bool = False  # scores candidates with it, or learns from its losses
    crops: bool = False  # has its own crops and flips, so that it needs no `defaults`
    rows: Callable[[Recipe], int] = lambda recipe: 1  # augmented samples per sample
    skip: float = 0.0  # default of the key `skip`

    @property
    def needs_file(self) -> bool:
        """Whether the policy is read from a published file."""
        return "policy_file" in self.keys


def _build_plain(propose: Callable[[Context], Proposal | Schedule]) -> Callable[[Context], Plain]:
    """Return a function that builds a plain policy from a proposal."""
    return lambda context: Plain(
        within_ranks(propose(context), context.world),
        same_class=context.recipe.same_class,
        **context.settings,
    )


def _build_uncertain(context: Context) -> Uncertain:
    recipe = context.recipe
    return Uncertain(
        context.model,
        within_ranks(_propose_uniform(context), context.world),
        candidates=recipe.candidates,
        keep=recipe.keep,
        select=_select(recipe.select),
        score=recipe.score,
        score_every=recipe.score_every,
        loss=objective_for(multi_label=context.multi_label).loss,
        **context.settings,
    )


def _build_auto(context: Context) -> Auto:
    recipe, epochs = context.recipe, context.recipe.total_steps(context.samples) / context.epoch_steps
    names = natural_names(parse_transforms(recipe.transforms))
    propose = natural(min(recipe.depth, len(names)), transforms=names)  # `--set transforms=rotate` needs no depth
    is_default = parse_transforms(recipe.transforms) == PAPER_16  # who names other transforms wants only these
    is_cropped = recipe.crop == "resized" or recipe.defaults == "imagenet"
    transforms = {"weak": published.crop_and_flip(crop=not is_cropped) if is_default else None, "mix": _MIXES[context.noun]}
    transforms = {name: within_ranks(proposal, context.world) for name, proposal in transforms.items()}
    propose, smoothing = within_ranks(propose, context.world), recipe.label_smoothing
    options = {"label_smoothing": smoothing, "multi_label": context.multi_label}
    return Auto(propose, **transforms, epochs=epochs, **options, **context.settings)


def _build_adversarial(context: Context) -> Adversarial:
    recipe = context.recipe
    return Adversarial(
        update_every=context.epoch_steps,
        policies=recipe.adversaries,
        subpolicies=recipe.subpolicies,
        lr=recipe.controller_lr,
        entropy=recipe.entropy,
        **context.settings,
    )


def _propose_pba(context: Context) -> Schedule:
    recipe, epochs = context.recipe, context.recipe.total_epochs(context.samples)
    return files.pba(recipe.policy_file, searched=recipe.policy_epochs, epochs=epochs, epoch_steps=context.epoch_steps)


def _propose_uniform(context: Context) -> Proposal:
    recipe = context.recipe
    names = parse_transforms(recipe.transforms)
    return uniform(recipe.depth, transforms=names, probability=recipe.probability, profile=recipe.profile)


def _steps(context: Context) -> list[Step]:
    """Return the transforms of a recipe in order, each over the range that `uniform` draws from."""
    recipe = context.recipe
    return [over_range(name, recipe.probability, recipe.profile) for name in parse_transforms(recipe.transforms)]


_UNIFORM_KEYS = ("transforms", "depth", "probability", "profile")
_LISTED_KEYS = ("transforms", "probability", "profile")
_CHOOSING_KEYS = ("candidates", "keep", "select", "score", "score_every")
_LEARNING_KEYS = ("adversaries", "subpolicies", "controller_lr", "entropy")
_ALL_NOUNS = ("images", "texts")
POLICIES: Mapping[str, Spec] = MappingProxyType(
    {
        "none": Spec(_build_plain(lambda context: sequence()), nouns=_ALL_NOUNS),
        "baseline": Spec(_build_plain(lambda context: published.BASELINES[context.benchmark]), crops=True),
        "random": Spec(_build_plain(_propose_uniform), _UNIFORM_KEYS, _ALL_NOUNS),
        "auto": Spec(_build_auto, ("transforms", "depth"), _ALL_NOUNS, uses_model=True, skip=0.5),
        "uncertain": Spec(
            _build_uncertain, (*_UNIFORM_KEYS, *_CHOOSING_KEYS), _ALL_NOUNS, uses_model=True, rows=lambda recipe: recipe.keep
        ),
        "randaugment": Spec(
            _build_plain(lambda context: published.randaugment(context.recipe.depth, context.recipe.magnitude)),
            ("depth", "magnitude"),
        ),
        "trivialaugment": Spec(_build_plain(lambda context: published.trivialaugment(side=context.shape[-1]))),
        "uniformaugment": Spec(_build_plain(lambda context: published.uniformaugment(context.recipe.depth)), ("depth",)),
        "autoaugment": Spec(
            _build_plain(lambda context: published.autoaugment(_AUTOAUGMENT_TABLES.get(context.benchmark, "cifar")))
        ),
        "augmix": Spec(_build_plain(lambda context: published.augmix())),
        "mixup": Spec(_build_plain(lambda context: published.mixup())),
        "cutmix": Spec(_build_plain(lambda context: published.cutmix())),
        "fastautoaugment": Spec(
            _build_plain(lambda context: files.fast_autoaugment(context.recipe.policy_file)), ("policy_file",)
        ),
        "pba": Spec(_build_plain(_propose_pba), ("policy_file", "policy_epochs")),
        "adversarial": Spec(_build_adversarial, _LEARNING_KEYS, uses_model=True, rows=lambda recipe: recipe.adversaries),
        "sequence": Spec(_build_plain(lambda context: sequence(*_steps(context))), _LISTED_KEYS, _ALL_NOUNS),
        "blend": Spec(_build_plain(lambda context: blend(*_steps(context))), _LISTED_KEYS),
    }
)


def find_policy(name: str) -> Spec:
    """Return a policy by name; an unknown name raises a ValueError that suggests the nearest known one."""
    if name not in POLICIES:
        raise unknown("policy", name, POLICIES)
    return POLICIES[name]


def build_policy(recipe: Recipe, model: nn.Module, data: Data, preprocess: Preprocess, *, world: int = 1) -> Policy:
    """Return the policy of a recipe for a model and a data set, in a run with `world` ranks."""
    check_recipe(recipe)
    if recipe.same_class != -1 and world > 1:
        problem = f"same_class is for a single process, got same_class={recipe.same_class:g} and {world} processes"
        raise ValueError(f"{problem}: leave same_class out, or start one process")
    check_noun(recipe, data.train.noun)
    multi_label = find_objective(data.train.labels) is MULTI_LABEL
    benchmark = "imagenet-cropped" if recipe.crop == "resized" else BENCHMARKS.get(data.name, "cifar")
    samples = len(data.train) - recipe.validation
    of_data = len(data.classes), data.train.noun, benchmark, data.train.shape, samples
    return POLICIES[recipe.policy].build(Context(recipe, model, preprocess, *of_data, world, multi_label))


def parse_transforms(text: str) -> tuple[str, ...]:
    """Return the transforms that a recipe names: the name of a set (TRANSFORM_SETS), or names separated by commas."""
    if text in TRANSFORM_SETS:
        return TRANSFORM_SETS[text]
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in ALL:
            raise unknown("transform", name, [*TRANSFORM_SETS, *ALL])
    return names


def check_recipe(recipe: Recipe) -> None:
    """Raise a ValueError for an unknown policy, or for keys that the policy needs or cannot take."""
    spec = find_policy(recipe.policy)
    if recipe.same_class != -1 and spec.uses_model:
        problem = f"same_class is for policies that do not use the model, got policy {recipe.policy!r}"
        raise ValueError(f'{problem}: use another one (--policy random, or policy="random"), or set same_class to -1')
    if spec.needs_file and not recipe.policy_file:
        raise ValueError(f"policy {recipe.policy!r} needs policy_file, the file that its authors published")
    if recipe.policy_file and not spec.needs_file:
        names = " and ".join(name for name, other in POLICIES.items() if other.needs_file)
        raise ValueError(f"policy_file is for {names}, got it with policy {recipe.policy!r}")


def check_noun(recipe: Recipe, noun: str) -> None:
    """Raise a ValueError if the policy, the defaults or a transform of a recipe cannot augment "images", or "texts"."""
    spec = find_policy(recipe.policy)
    if noun not in spec.nouns:
        names = ", ".join(name for name, other in POLICIES.items() if noun in other.nouns)
        raise ValueError(f"policy {recipe.policy!r} is not for {noun}: use one of {names}")
    if recipe.defaults not in _DEFAULTS[noun]:
        raise ValueError(f"defaults for {noun} must be one of {', '.join(_DEFAULTS[noun])}, got {shown(recipe.defaults)}")
    names = parse_transforms(recipe.transforms) if "transforms" in spec.keys else ()
    for name in names:
        if name not in BY_NOUN[noun]:
            raise ValueError(f"transform {name!r} is not for {noun}: use one of {', '.join(BY_NOUN[noun])}")
        if BY_NOUN[noun][name].needs == "wordnet":
            open_wordnet(recipe.wordnet)  # refuses a folder without it
        command = {"cache": "backtranslate CORPUS", "proposals": "propose CORPUS --model MODEL"}.get(BY_NOUN[noun][name].needs)
        if command is not None and not recipe.cache:
            how = f"run `outspan text {command} -o cache.jsonl`, then `--set cache=cache.jsonl`"
            raise ValueError(f"transform {name!r} needs a cache of sentences: {how}")


def ignored_keys(keys: Iterable[str], policy: str) -> list[str]:
    """Return the keys that only other policies read."""
    others = {key for spec in POLICIES.values() for key in spec.keys}
    return [key for key in keys if key in others and key not in find_policy(policy).keys]


def warn_ignored_keys(
    keys: Collection[str], recipe: Recipe, policies: Sequence[str], *, subject: str = "", stacklevel: int = 3
) -> None:
    """Warn about keys that were set but have no effect in runs of a recipe with these policies."""
    if ignored := [key for key in keys if all(ignored_keys([key], policy) for policy in policies)]:
        subject = subject or f"policy {', '.join(policies)}"
        warnings.warn(f"{subject} ignores these keys: {', '.join(ignored)}", stacklevel=stacklevel)
    if "momentum" in keys and recipe.optimizer == "adamw":
        warnings.warn("optimizer adamw ignores the key momentum", stacklevel=stacklevel)


def augmentation_of(recipe: Recipe) -> str:
    """Return a short name of a recipe's augmentation: its transforms if its policy reads them, else the policy."""
    return recipe.transforms.replace(",", "+") if "transforms" in find_policy(recipe.policy).keys else recipe.policy


def _select(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
