"""A trained model, loaded from the folder of a run."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from outspan.config import Recipe, stored_recipe
from outspan.training import checkpoint
from outspan.training.setup import make_preprocess
from outspan.training.state import new_state
from outspan.transforms.normalize import Preprocess


@dataclass(frozen=True, eq=False)
class Trained:
    """The model of a run, as its newest complete checkpoint has it, and what it was trained on."""

    folder: Path
    recipe: Recipe
    model: nn.Module
    shape: tuple[int, ...]  # of one sample: [C, H, W] for images, [T] for texts
    classes: tuple[str, ...]
    preprocess: Preprocess  # the last step before the model
    epochs: int  # finished
    train_digest: str | None = None  # identifies the training data; None in old checkpoints
    test_digest: str | None = None

    @property
    def noun(self) -> str:
        """What its samples are called in messages: "images" or "texts"."""
        return "images" if len(self.shape) == 3 else "texts"


def load(folder: Path | str) -> Trained:
    """Load the model of a run from its newest complete checkpoint, ready for evaluation. The data is not needed.

    Example::

        run = outspan.load("runs/a")
        logits = run.model(run.preprocess(images))  # images: uint8 [B, C, H, W] of size run.shape
    """
    folder = Path(folder)
    stored = checkpoint.load(folder)
    if stored is None:
        raise ValueError(f"{folder}: {'no complete checkpoint' if folder.is_dir() else 'no such folder'}")
    recipe, data = stored_recipe(stored.metadata["recipe"]), stored.metadata["data"]
    shape, classes = tuple(data["shape"]), tuple(data["classes"])
    start = replace(recipe, weights="")
    try:
        if len(shape) == 3 and not recipe.model.startswith("timm:"):
            with torch.device("meta"):  # uses no memory, however large the model in the metadata is
                sizes = new_state(start, shape, len(classes), torch.device("meta"))
            checkpoint.check_tensors(stored.tensors, sizes.model, sizes.optimizer)
        state = new_state(start, shape, len(classes), torch.device("cpu"))
        state.restore(*stored)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    return Trained(
        folder,
        recipe,
        state.model.eval(),
        shape,
        classes,
        make_preprocess(data["mean"], data["std"]),
        epochs=len(stored.metadata["metrics"]),
        train_digest=data.get("train_digest"),
        test_digest=data.get("test_digest"),
    )
