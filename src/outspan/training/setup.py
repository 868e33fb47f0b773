"""Build a run from its recipe and data: the splits, the model, the policy, and what identifies the run."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from outspan import models
from outspan.config import Recipe
from outspan.data.dataset import Data
from outspan.data.preprocess import make_preprocess
from outspan.data.sets import locate
from outspan.data.splits import Samples, Split
from outspan.data.stratify import MORE_TEST_SAMPLES, count_by_class, hold_out, warn_missing_classes
from outspan.files import absolute, expand_home
from outspan.models.precision import in_precision
from outspan.models.weights import PUBLISHED_WEIGHTS
from outspan.policies.balancing import find_class_weights
from outspan.policies.files import file_and_function
from outspan.policies.hard_samples import HardSamples
from outspan.policies.objectives import find_objective
from outspan.policies.protocols import LearningPolicy
from outspan.policies.table import Policy, build_policy, check_noun, find_policy
from outspan.sample_weights import normalize_weights
from outspan.shapes import channels_of_shape
from outspan.training.distributed import RankLearner, Ranks
from outspan.training.freezing import warn_without_effect
from outspan.training.graphs import GraphModel
from outspan.training.provenance import DataProvenance, Environment, Provenance, describe_data, describe_environment
from outspan.training.saving import Parts
from outspan.training.state import State, new_state
from outspan.training.step import Learner
from outspan.training.sync_batchnorm import synchronize
from outspan.training.validation import check_validation_keys
from outspan.transforms.normalize import Preprocess

_SKIP_EPOCHS = (100.0, 200.0), (1.0, 0.0)  # by the number of epochs: in long runs all samples are seen often enough


@dataclass(frozen=True)
class Options:
    """How a run is executed. This does not change its recipe."""

    device: torch.device
    compiled: bool = False
    graphs: bool = True  # record the steps as CUDA graphs; on a GPU only
    deterministic: bool = False
    channels_last: bool | None = None  # the memory format of images and model; None: on a GPU only
    ranks: Ranks = field(default_factory=Ranks)

    @property
    def uses_channels_last(self) -> bool:
        """Whether images and model have the channels as the last dimension in memory."""
        return self.device.type == "cuda" if self.channels_last is None else self.channels_last


@dataclass(frozen=True, eq=False)
class Splits:
    """The data of a run as the model reads it."""

    train: Split  # on the device, if it can be moved
    test: Split
    validation: Split | None
    preprocess: Preprocess  # the last step before the model


@dataclass(frozen=True, eq=False)
class Setup:
    """All parts of a run, before it starts or resumes."""

    splits: Splits
    state: State
    policy: Policy
    samples: HardSamples
    learner: Learner | RankLearner
    eval_model: nn.Module
    provenance: Provenance
    ranks: Ranks
    weights: Tensor | None  # of the training samples in the loss, on the device; their mean is 1

    @property
    def parts(self) -> Parts:
        """The parts of a run that have tensors of their own, by their prefix in a checkpoint."""
        policy: Parts = {"policy": self.policy} if isinstance(self.policy, LearningPolicy) else {}
        return {**policy, "samples": self.samples}


def build_setup(recipe: Recipe, data: Data, options: Options, *, has_begun: bool = False) -> Setup:
    """Build a run. A run that has begun no longer needs the weights file that it started from."""
    if recipe.sync_bn and recipe.accumulate > 1:
        raise ValueError(f"accumulate must be 1 with sync_bn, got {recipe.accumulate}: set one of them to its default")
    samples, validation, ranks = *_hold_out(recipe, data), options.ranks
    check_validation_keys(recipe, validation)
    check_noun(recipe, samples.noun)  # before texts are tokenized, which takes time
    models.check_takes(recipe.model, samples.noun)
    train, test = samples.prepared(recipe, train=True), data.test.prepared(recipe)
    _check_channels(recipe, train)
    if recipe.batch > len(train):
        one = f"an epoch is one step with all {len(train)} {train.noun}; a smaller batch gives more steps"
        warnings.warn(f"batch {recipe.batch} is larger than the training data: {one}", stacklevel=2)
    warn_without_effect(recipe, recipe.total_epochs(len(train)))
    validation = None if validation is None else validation.prepared(recipe)
    is_synchronized = bool(recipe.sync_bn) and ranks.is_group
    graphs = options.graphs and train.can_record_graphs(options.device) and not is_synchronized
    weights = normalize_weights(train.weights)
    weights = None if weights is None else weights.to(options.device)
    data_provenance = describe_data(recipe, data, samples, train)
    preprocess = _make_preprocess(recipe, options, train.noun, data_provenance)
    splits = Splits(train.to(options.device), test, validation, preprocess)
    start = replace(recipe, weights="") if has_begun else recipe
    state = new_state(start, train.shape, len(data.classes), options.device, channels_last=options.uses_channels_last)
    if is_synchronized:
        synchronize(state.model, ranks)
    train.check_model(state.model, recipe.model, _smallest_part(recipe, len(train), ranks.world))
    model: Any = torch.compile(state.model) if options.compiled else state.model
    model = in_precision(model, recipe.precision)
    learner = _build_learner(recipe, model, train.labels, len(data.classes), state, graphs=graphs)
    policy = build_policy(recipe, GraphModel(model) if graphs else model, data, preprocess, world=ranks.world)
    # Not the compiled model: compiling it for evaluation takes longer than it saves.
    eval_model = in_precision(state.eval_model, recipe.precision)
    eval_model = GraphModel(eval_model) if graphs else eval_model
    chosen = _choose_samples(recipe, train.labels, len(data.classes))
    if ranks.is_group:
        learner = RankLearner(learner, ranks, find_policy(recipe.policy).rows(recipe))
    provenance = Provenance(recipe, data_provenance, _describe_environment(options, graphs=graphs))
    return Setup(splits, state, policy, chosen, learner, eval_model, provenance, ranks, weights)


def _make_preprocess(recipe: Recipe, options: Options, noun: str, data: DataProvenance) -> Preprocess:
    is_half = options.device.type == "cuda" and recipe.precision in ("auto", "bf16")
    dtype = torch.bfloat16 if is_half else torch.float32
    return make_preprocess(noun, data.mean, data.std, dtype, channels_last=options.uses_channels_last)


def _describe_environment(options: Options, *, graphs: bool) -> Environment:
    return describe_environment(
        options.device,
        compiled=options.compiled,
        deterministic=options.deterministic,
        graphs=graphs,
        world=options.ranks.world,
        channels_last=options.uses_channels_last,
    )


def _build_learner(recipe: Recipe, model: nn.Module, labels: Tensor, classes: int, state: State, *, graphs: bool) -> Learner:
    if recipe.same_class != -1 and labels.ndim == 2:
        problem = f"same_class is for data with one label per sample, got same_class={recipe.same_class:g}"
        raise ValueError(f"{problem}: set it to -1")
    objective = find_objective(labels)
    weights = find_class_weights(recipe.class_weights, count_by_class(labels, classes), len(labels), objective)
    weights = None if weights is None else weights.to(next(model.parameters()).device)
    options = {"parts": recipe.accumulate, "objective": objective, "class_weights": weights, "scale": state.scaler.scale}
    return Learner(model, recipe.label_smoothing, graphs=graphs, **options)


def _choose_samples(recipe: Recipe, labels: Tensor, classes: int) -> HardSamples:
    count, balance = len(labels), None
    epochs = recipe.total_steps(count) / recipe.steps_per_epoch(count)
    default = find_policy(recipe.policy).skip * float(np.interp(epochs, *_SKIP_EPOCHS))
    if recipe.sampling == "balanced":
        if labels.ndim == 2:
            raise ValueError(
                "sampling must be 'shuffle' for data with several labels per sample, got 'balanced': use class_weights"
            )
        if recipe.skip > 0:
            raise ValueError(f"skip must be 0 with sampling 'balanced', got {recipe.skip:g}: leave one of them out")
        default, balance = 0.0, labels.cpu()
    skip = default if recipe.skip == -1 else recipe.skip
    options = {
        "skip": skip,
        "store": recipe.by_confidence > 0,
        "seed": recipe.seed,
        "balance": balance,
        "multi_label": labels.ndim == 2,
    }
    return HardSamples(count, epochs=epochs, classes=classes, **options)


def _hold_out(recipe: Recipe, data: Data) -> tuple[Samples, Samples | None]:
    """Return the training samples, and the validation samples: those held out of train, those of the data, or None."""
    train, validation = hold_out(data.train, recipe.validation, recipe.seed)
    if validation is not None and data.validation is not None:
        raise ValueError(f"validation must be 0 for data that has a validation split, got {recipe.validation}")
    validation, how = (
        (data.validation, "add samples") if validation is None else (validation, f"raise validation, now {recipe.validation}")
    )
    if validation is not None:
        warn_missing_classes(validation.labels, data.classes, "the validation split", how)
    if recipe.fraction == 1 and not recipe.folds:  # a fraction is for quick tests, and `with_fold` has its own warning
        warn_missing_classes(data.test.labels, data.classes, "the test split", MORE_TEST_SAMPLES)
    return train, validation


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """Return a recipe whose files and folders are found from any working directory."""
    file = file_and_function(recipe.policy_file)[0]
    recipe = replace(
        recipe,
        cache=absolute(recipe.cache),
        wordnet=absolute(recipe.wordnet),
        policy_file=absolute(file) + recipe.policy_file[len(file) :],
        model=models.locate(recipe.model),
        data=locate(recipe.data),
    )
    if recipe.weights in ("", PUBLISHED_WEIGHTS):
        return recipe
    # The file may be missing when a run is resumed.
    return replace(recipe, weights=str(expand_home(recipe.weights).resolve()))


@contextmanager
def use_algorithms(*, deterministic: bool) -> Iterator[None]:
    """Use the fastest algorithms of the GPU, or deterministic ones. Restore the previous settings at the end."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic, torch.are_deterministic_algorithms_enabled()
    cudnn.benchmark, cudnn.deterministic = not (deterministic or before[1]), deterministic or before[1]
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.deterministic = before[:2]
        if deterministic:  # this call imports modules of torch, which fails if an interruption left torch half imported
            torch.use_deterministic_algorithms(before[2])


def _check_channels(recipe: Recipe, train: Split) -> None:
    """Refuse a number of channels for images that are not converted when they are read."""
    channels = channels_of_shape(train.shape)
    if channels and recipe.channels not in ("auto", str(channels)):
        problem = f"channels must be 'auto' for images that are not files, got {recipe.channels!r}"
        raise ValueError(f"{problem}: those of data {recipe.data!r} have {channels}")


def _smallest_part(recipe: Recipe, count: int, world: int) -> int:
    """Return the number of rows in the smallest part of a batch that goes through the model of a rank at once."""
    rows = find_policy(recipe.policy).rows(recipe)
    parts = []
    for batch in {max(1, size // world) for size in {min(recipe.batch, count), count % recipe.batch} - {0}}:
        size = -(-rows * batch // recipe.accumulate)
        parts.append(rows * batch % size or size)
    return min(parts)
