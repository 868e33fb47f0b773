"""What is printed about a run before it starts."""

import torch

from outspan.config import Recipe, changed_keys, default_recipe
from outspan.shapes import describe_size
from outspan.training.setup import Setup


def describe_setup(setup: Setup, device: torch.device) -> str:
    """Return one line about the data, the model, the policy and the device."""
    splits, data, recipe = setup.splits, setup.provenance.data, setup.provenance.recipe
    validation = "" if splits.validation is None else f", {len(splits.validation):,} for validation"
    samples = f"{data.train:,} train and {len(splits.test):,} test {splits.train.noun}{validation}"
    parameters = sum(parameter.numel() for parameter in setup.state.model.parameters())
    policy = recipe.policy + ("" if recipe.defaults == "none" else f", then {recipe.defaults}")
    changed = changed_keys(Recipe(), recipe)
    fold = f"fold {recipe.fold} of {recipe.folds}, " if recipe.folds else ""
    policy += "".join(
        f", {key} {changed[key][1]:g}" for key in ("strength", "finish", "by_confidence", "ema", "skip") if key in changed
    )
    processes = f", {setup.ranks.world} processes" if setup.ranks.is_group else ""
    model = f"model {recipe.model}, {parameters:,} parameters"
    about = f"{fold}{samples}, {len(data.classes)} classes, {describe_size(data.shape)}; {model}; policy {policy}"
    return f"{about}; device {device.type}{processes}"


def describe_defaults(recipe: Recipe, noun: str, samples: int) -> list[str]:
    """Return a line about the epochs, the rate and the length, as far as they are the defaults for texts and their model."""
    default = default_recipe(noun, recipe.optimizer, recipe.model)
    if not default.min_steps:  # for images, no default depends on the model or on the number of samples
        return []
    epochs, used = recipe.total_epochs(samples), []
    if (recipe.epochs, recipe.min_steps, recipe.steps) == (default.epochs, default.min_steps, default.steps):
        is_more = epochs > recipe.epochs
        used += [f"{epochs} epochs, " + (f"for at least {recipe.min_steps} steps" if is_more else "for the size of the model")]
    if recipe.lr == default.lr:
        used += [f"lr {recipe.lr:g}, for the size of the model"]
    if recipe.length == default.length:
        used += [f"length {recipe.length}, at most the positions of the model"]
    how = "`outspan grid` compares other values on held-out texts (docs/text.md)"
    return [f"defaults: {'; '.join(used)}. Next step: {how}"] if used else []
