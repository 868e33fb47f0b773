"""Train several perceptrons at once. Each member equals the model that `train` returns for its recipe, up to rounding."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from outspan import models
from outspan.config import Recipe, changed_keys
from outspan.data.sets import Data, load_for
from outspan.devices import current
from outspan.policies.table import find_policy
from outspan.training import OnStep
from outspan.training.ensemble_model import Ensemble
from outspan.training.ensemble_run import EnsembleRun
from outspan.training.loop import train_epochs
from outspan.transforms.normalize import Normalize

MEMBER_KEYS = ("policy", "seed", "transforms", "depth", "probability", "magnitude", "defaults", "same_class")  # may differ
_MAX_VALUES = 100_000_000  # of the normalized images of a step, over all members


def is_batchable(recipe: Recipe) -> bool:
    """Return whether a recipe can be a member of an ensemble.

    Its model must be a perceptron, its augmentation must not depend on the model or its losses, and it must have no ema,
    validation, early stopping, precision, frozen layers, random crops, weights of classes or samples, or balanced sampling.
    """
    depends_on_losses = find_policy(recipe.policy).uses_model or recipe.skip > 0 or recipe.by_confidence > 0
    is_tuned = recipe.precision != "auto" or recipe.freeze != "none" or recipe.layer_decay < 1
    is_balanced = recipe.class_weights or recipe.weight_column or recipe.sampling != "shuffle"
    others = recipe.ema or recipe.validation or recipe.patience or is_tuned or is_balanced or recipe.crop != "centre"
    return models.is_perceptron(recipe.model) and not depends_on_losses and not others


def members_at_once(recipe: Recipe, shape: tuple[int, ...]) -> int:
    """Return the largest number of members for which the images of a step fit into memory."""
    return max(1, _MAX_VALUES // (recipe.batch * math.prod(shape)))


def train_ensemble(
    members: Sequence[Recipe],
    *,
    data: Data | None = None,
    device: str | torch.device = "cpu",
    shared: int | None = None,
    out: Path | None = None,
    save_every: float = 30.0,
    on_step: OnStep | None = None,
) -> tuple[Ensemble, Normalize]:
    """Train several recipes of a perceptron at once, and return the models and their preprocessing.

    The recipes may differ in their seeds and in how they augment (`MEMBER_KEYS`). Each member has its own initialization,
    order of images and plans. With `shared` all members use the order and the draws of that seed. This is faster, but then
    members with the same augmentation differ in their initialization alone. With `out` the ensemble saves checkpoints there and
    resumes from them. If `on_step` returns True, it saves and raises `Stopped`.
    """
    _check_members(members)
    data = data or load_for(members[0])
    if data.train.weights is not None:
        raise ValueError(f"data {data.name!r} has sample weights, which an ensemble of perceptrons cannot use: leave them out")
    models.check_takes(members[0].model, data.train.noun)
    run = EnsembleRun(list(members), data, torch.device(device), shared=shared, out=out)
    with current(run.device):
        train_epochs(run, save_every=save_every, on_step=on_step)
    return run.model, run.preprocess


def _check_members(members: Sequence[Recipe]) -> None:
    if not members:
        raise ValueError("members must be at least one recipe, got none")
    for recipe in members:
        if not is_batchable(recipe):
            keys = ("model", "policy", "ema", "validation", "crop")
            got = ", ".join(f"{key} {getattr(recipe, key)!r}" for key in keys)
            needs = "model mlp, a policy that does not use the model, ema 0, validation 0 and crop 'centre'"
            raise ValueError(f"an ensemble needs {needs}, got {got}")
        for key, (one, other) in changed_keys(members[0], recipe).items():
            if key not in MEMBER_KEYS:
                raise ValueError(f"recipes trained at once must agree in {key}, got {one!r} and {other!r}")
