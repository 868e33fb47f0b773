"""A trained model, loaded from the folder of a run."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from outspan import devices, models
from outspan.config import Recipe, stored_recipe
from outspan.data.preprocess import make_preprocess
from outspan.files import expand_home
from outspan.shapes import noun_of_shape
from outspan.training import checkpoint
from outspan.training.exported import read_exported
from outspan.training.predicted import Predicted, predict_inputs
from outspan.training.state import new_state
from outspan.training.validation import has_stopped
from outspan.transforms.normalize import Preprocess


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model: what `outspan.load` returns."""

    folder: Path  # of the run
    recipe: Recipe
    model: nn.Module  # in evaluation mode, on the CPU; takes `preprocess(inputs)` and returns logits
    shape: tuple[int, ...]  # of one sample: [C, H, W] for images, [T] for texts
    classes: tuple[str, ...]  # their names, in the order of the logits
    mean: tuple[float, ...]  # per channel; empty for texts
    std: tuple[float, ...]
    step: int  # number of finished steps
    steps: int  # of the whole run
    train_digest: str | None = None  # identifies the training data; None in old checkpoints
    test_digest: str | None = None
    stopped_early: bool = False  # with `patience`
    is_best: bool = False  # whether the weights are those of the best epoch by validation
    train_count: int = 0  # number of training samples
    multi_label: bool = False  # whether a sample can have several labels

    @property
    def noun(self) -> str:
        """What its samples are called: "images" or "texts"."""
        return noun_of_shape(self.shape)

    @property
    def preprocess(self) -> Preprocess:
        """The last step before the model: `Normalize` for images."""
        return make_preprocess(self.noun, self.mean, self.std)

    @property
    def is_finished(self) -> bool:
        """Whether the run had reached its last step, or had stopped early, when these weights were saved."""
        return self.step == self.steps or self.stopped_early

    def predict(self, inputs: Any) -> Predicted:
        """Return the class probabilities of inputs; see `outspan.predict`."""
        return predict_inputs(self, inputs, devices.find_device())


def load(folder: Path | str, *, best: bool = False) -> Trained:
    """Load the model of a run from its newest complete checkpoint, in evaluation mode. The data is not needed.

    With `best`, the weights are those of the best epoch by validation, which a run with validation data keeps.
    `folder` may also be a folder that `outspan.export(…, format="huggingface")` wrote.

    Example::

        run = outspan.load("runs/a")
        logits = run.model(run.preprocess(images))  # images: uint8 [B, C, H, W] of size run.shape

    Raises:
        ValueError: If the folder does not exist, or has no complete checkpoint; with `best`, if it has none of a best epoch.
    """
    if not isinstance(folder, Path | str):
        raise ValueError(f"a run must be the path of its folder, or what outspan.load returns, got {type(folder).__name__}")
    folder = expand_home(folder)
    stored = _load_best(folder) if best else checkpoint.load(folder)
    if stored is None:
        exported = read_exported(folder)
        if exported is None:
            raise ValueError(f"{folder}: {_why_no_run(folder)}")
        flags = {key: exported.metadata.get(key) is True for key in ("stopped_early", "is_best")}
        return _make_trained(folder, exported.recipe, exported.model, exported.metadata, **flags)
    recipe, data = stored_recipe(stored.metadata["recipe"]), stored.metadata["data"]
    shape, classes = tuple(data["shape"]), tuple(data["classes"])
    start = replace(recipe, weights="")
    try:
        if not models.reads_files(recipe.model):
            with torch.device("meta"):  # uses no memory, however large the model in the metadata is
                sizes = new_state(start, shape, len(classes), torch.device("meta"))
            may_have_skipped = sizes.scaler.is_enabled()
            checkpoint.check_tensors(
                stored.tensors, sizes.model, sizes.optimizer, sizes.average_model, may_have_skipped=may_have_skipped
            )
        state = new_state(start, shape, len(classes), torch.device("cpu"))
        state.restore(*stored)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    stopped_early = has_stopped(stored.metadata["metrics"], recipe.patience)
    return _make_trained(folder, recipe, state.eval_model, stored.metadata, stopped_early=stopped_early, is_best=best)


def _make_trained(
    folder: Path, recipe: Recipe, model: nn.Module, metadata: Any, *, stopped_early: bool, is_best: bool
) -> Trained:
    data = metadata["data"]
    return Trained(
        folder,
        recipe,
        model.eval(),
        tuple(data["shape"]),
        tuple(data["classes"]),
        tuple(data["mean"]),
        tuple(data["std"]),
        step=metadata["step"],
        steps=recipe.total_steps(data["train"]),
        train_digest=data.get("train_digest"),
        test_digest=data.get("test_digest"),
        stopped_early=stopped_early,
        is_best=is_best,
        train_count=data["train"],
        multi_label=data.get("multi_label", False),
    )


def _load_best(folder: Path) -> checkpoint.Checkpoint | None:
    """Return the checkpoint of the best epoch. A folder that has only other checkpoints raises a ValueError."""
    path = folder / checkpoint.BEST_FILE
    if path.exists():
        return checkpoint.read(path)
    if checkpoint.has_checkpoints(folder):
        how = "they are kept if the run has validation samples, e.g. --set validation=500"
        raise ValueError(f"{folder}: has no weights of a best epoch ({checkpoint.BEST_FILE}); {how}")
    return None


def _why_no_run(folder: Path) -> str:
    """Return why a folder has no model to load, and what to pass instead."""
    runs = sorted(path for path in folder.iterdir() if checkpoint.has_checkpoints(path)) if folder.is_dir() else []
    example = f", e.g. {runs[0]}" if runs else ""
    if (folder / "comparison.json").exists():
        return f"contains a comparison; pass one of its runs{example}"
    problem = "no complete checkpoint" if folder.is_dir() else "not a folder" if folder.exists() else "no such folder"
    return f"{problem}; pass a folder that `outspan train -o` or outspan.train(out=…) wrote{example}"


def as_trained(run: Trained | Path | str) -> Trained:
    """Return `run` if it is a `Trained`. Otherwise load it from its folder."""
    return run if isinstance(run, Trained) else load(run)
