"""Which part of a model trains in an epoch, for fine-tuning."""

import warnings

from torch import nn

from outspan.config import Recipe
from outspan.models import starts_trained
from outspan.models.layers import find_layers

FROZEN_BODY = "all but head"  # the value of `freeze` with which only the head trains


def is_frozen(recipe: Recipe, epoch: int) -> bool:
    """Return whether only the head trains in an epoch.

    >>> [is_frozen(Recipe(freeze="all but head", unfreeze=2), epoch) for epoch in range(4)]
    [True, True, False, False]
    """
    return recipe.freeze == FROZEN_BODY and (not recipe.unfreeze or epoch < recipe.unfreeze)


def warn_without_effect(recipe: Recipe, epochs: int) -> None:
    """Warn if the head is trained on random features, or if the run ends before the other layers train."""
    if recipe.freeze == FROZEN_BODY and not starts_trained(recipe.model, recipe.weights):
        how = "set weights, e.g. to published, or leave out freeze"
        warnings.warn(f"freeze is {FROZEN_BODY!r}, so the head is trained on random features: {how}", stacklevel=3)
    if recipe.unfreeze >= epochs and recipe.freeze == FROZEN_BODY:
        warnings.warn(f"unfreeze {recipe.unfreeze} has no effect in a run of {epochs} epochs: set a smaller one", stacklevel=3)


def set_training(model: nn.Module, *, frozen: bool) -> bool:
    """Put a model into training mode. With `frozen`, all of it but the head stays as it is: in evaluation mode, no gradients.

    So the batch normalization of the frozen part uses its stored statistics, and does not change them. Return whether other
    parameters train than before.
    """
    head = find_layers(model)[-1]
    trained = {id(parameter) for parameter in head.parameters}
    before = [parameter.requires_grad for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.requires_grad_(not frozen or id(parameter) in trained)
    model.train(not frozen)
    for module in head.modules:
        module.train()
    return before != [parameter.requires_grad for parameter in model.parameters()]
