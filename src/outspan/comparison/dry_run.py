"""The function `dry_run`: what `outspan.train` would train, and how long it would take. It writes no run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from typing_extensions import Unpack

from outspan.comparison.timing import measure_steps
from outspan.config import Recipe, build_recipe
from outspan.data.sets import load_for, noun_of
from outspan.devices import current, find_device
from outspan.files import output_folder
from outspan.policies.table import check_recipe
from outspan.recipe_keys import RecipeKeys
from outspan.training import OnStep, checkpoint
from outspan.training.run import Run
from outspan.training.setup import Options, build_setup, with_absolute_paths


@dataclass(frozen=True)
class DryRun:
    """What would be trained."""

    description: str  # data, model, policy and device in one line; for texts another one about defaults
    recipe: Recipe
    steps: int
    epoch_steps: int
    step_seconds: Mapping[str, float]  # of a training step, by policy: that of the recipe, and "none"
    has_begun: bool  # whether the folder contains a run, which would be resumed or refused

    @property
    def seconds(self) -> float:
        """The training time of the whole run, without evaluation."""
        return self.steps * self.step_seconds[self.recipe.policy]

    @property
    def cost(self) -> float:
        """The time of a step relative to the same step without augmentation."""
        return self.step_seconds[self.recipe.policy] / self.step_seconds["none"]


def dry_run(
    recipe: Recipe | Path | str | None = None,
    *,
    out: Path | str,
    device: str | torch.device | None = None,
    workers: int | None = None,
    channels_last: bool | None = None,
    skip_bad: int = 0,
    on_step: OnStep | None = None,
    **keys: Unpack[RecipeKeys],
) -> DryRun:
    """Return what `outspan.train` would train with the same arguments. A few steps are trained to time them, and discarded.

    Nothing is written to the folder. What is wrong with the recipe, the data or the model raises the same errors.
    """
    where, folder = find_device(device), output_folder(out)
    built = with_absolute_paths(build_recipe(recipe, keys, noun_of))
    check_recipe(built)
    data = load_for(built, skip_bad=skip_bad, workers=workers)
    with current(where):
        run = Run(build_setup(built, data, Options(where, channels_last=channels_last)), folder, where)
        recipes = {"none": replace(built, policy="none", policy_file=""), built.policy: built}
        options = {"folder": folder, "device": str(where), "on_step": on_step, "channels_last": channels_last}
        seconds = measure_steps(recipes, data, is_quick=True, **options)
        return DryRun(run.describe(), built, run.steps, run.epoch_steps, seconds, checkpoint.has_checkpoints(folder))
