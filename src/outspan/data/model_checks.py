"""Check that a model takes the images of a split, before it is trained on them."""

import copy

import torch
from torch import nn

from outspan.messages import first_line
from outspan.models.evaluating import evaluating


def check_takes_images(model: nn.Module, name: str, shape: tuple[int, int, int], smallest_batch: int) -> None:
    """Refuse images of a shape that the model does not take, and batches of one image if it cannot normalize them.

    `name` is that of the model. `smallest_batch` is the smallest number of images that the model sees at once in training.
    """
    image = torch.zeros(1, *shape, device=next(model.parameters()).device)
    size = " x ".join(map(str, shape))
    try:
        with evaluating(model):
            model(image)
    except (RuntimeError, AssertionError, ValueError, IndexError) as error:
        raise ValueError(f"model {name!r} does not take images of {size} ({first_line(error)})") from None
    if smallest_batch > 1:
        return
    try:
        with torch.no_grad():
            copy.deepcopy(model).train()(image)  # a copy: its statistics would change
    except ValueError:
        raise ValueError(
            f"the last batch of an epoch, or a part of it, has one sample, and {name!r} cannot normalize a single "
            f"sample of {size}: use another batch, a smaller accumulate or larger images"
        ) from None
