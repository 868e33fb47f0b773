"""Train the models of a study, one by one or together, and store their predictions."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from outspan.config import Recipe
from outspan.data.sets import Data, load_for
from outspan.files import remove_partials, write_json, write_whole
from outspan.measurement.margins import compute_margins
from outspan.measurement.settings import StudySettings, check_settings
from outspan.training import OnStep
from outspan.training.ensemble import is_batchable, train_ensemble
from outspan.training.logits import compute_logits
from outspan.training.pool import run_with_title
from outspan.training.train import train
from outspan.training.trained import load

_PREDICTIONS = "predictions.safetensors"  # of all models of a unit, in the folder where it is trained
_REMOVED = ".removed-"
Task = tuple[str, int]  # a configuration and a seed
Unit = Mapping[Task, Recipe]  # what is trained together: several MLPs, or one other model


class Folder:
    """The folder of a study. It has one file of predictions per finished model. A file is complete or missing."""

    def __init__(self, out: Path, settings: StudySettings, samples: int, classes: int) -> None:
        self.out, self.samples, self.classes = out, samples, classes
        if next(out.glob("step-*.safetensors"), None) is not None:
            raise ValueError(f"{out}: contains a run of `outspan train`, not a measurement; choose another folder")
        (out / "models").mkdir(parents=True, exist_ok=True)
        path = out / "settings.json"
        is_used = any((out / "models").iterdir()) or (out / "running").exists()
        if path.exists() and is_used:
            check_settings(path, settings)
        else:
            write_json(path, settings.as_dict())

    def path(self, name: str, seed: int) -> Path:
        """Return the file with the predictions of a model."""
        return self.out / "models" / f"{name}-{seed}.npy"

    def running(self, name: str, seed: int | str) -> Path:
        """Return the folder where a unit is trained."""
        return self.out / "running" / f"{name}-{seed}"

    def has(self, name: str, seed: int) -> bool:
        """Return whether a model is finished."""
        return self.path(name, seed).exists()

    def read(self, name: str, seed: int) -> tuple[Tensor, Tensor]:
        """Return the classes that a model predicts for the test split, and its margins."""
        path = self.path(name, seed)
        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(f"{path}: damaged ({error}); remove it to train the model again") from None
        fits = array.dtype == np.float64 and array.shape == (2, self.samples)
        if not fits or not (array.min() >= 0 and array[0].max() < self.classes and array[1].max() <= 1):
            raise ValueError(f"{path}: not predictions for {self.samples} samples; remove it to train the model again")
        classes, values = torch.from_numpy(array)
        return classes.long(), values.float()

    def write(self, running: Path, logits: Mapping[Task, Tensor]) -> None:
        """Store the predictions of all models of a unit, and remove the folder where they were trained."""
        both = {
            f"{name}-{seed}": torch.stack([outputs.argmax(1).double(), compute_margins(outputs).double()])
            for (name, seed), outputs in logits.items()
        }
        data = safetensors.torch.save(both)
        running.mkdir(parents=True, exist_ok=True)
        write_whole(running / _PREDICTIONS, lambda partial: partial.write_bytes(data))
        self._collect(running)

    def recover(self) -> None:
        """Finish units that were killed after their training. Call it with the folder locked."""
        remove_partials(self.out / "models")
        for running in sorted(self.out.glob("running/*")):
            if (running / _PREDICTIONS).exists():
                self._collect(running)
            elif running.name.startswith(_REMOVED):
                shutil.rmtree(running, ignore_errors=True)

    def _collect(self, running: Path) -> None:
        """Write one file per model, then rename and remove the unit's folder. A renamed folder is not taken for a run."""
        path = running / _PREDICTIONS
        try:
            stored = safetensors.torch.load(path.read_bytes())
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{path}: damaged ({error}); remove the folder {running}") from None
        for name, both in stored.items():
            write_whole(self.out / "models" / f"{Path(name).name}.npy", partial(_save, both.numpy()))
        removed = running.with_name(f"{_REMOVED}{running.name}")
        shutil.rmtree(removed, ignore_errors=True)
        os.replace(running, removed)
        shutil.rmtree(removed, ignore_errors=True)


def _save(array: np.ndarray, path: Path) -> None:
    with open(path, "wb") as file:
        np.save(file, array, allow_pickle=False)


def title_of(unit: Unit) -> str:
    """Return the title of a unit for its progress bar."""
    names = list(dict.fromkeys(name for name, _ in unit))
    (_, first), *others = unit
    if not is_batchable(unit[names[0], first]):
        return f"{names[0]}, seed {first}"
    configurations = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} others"
    return f"{configurations}, {1 + len(others)} models"


def run(
    folder: Folder, unit: Unit, *, device: torch.device, shared: int | None, data: Data | None, on_step: OnStep | None
) -> None:
    """Train a unit, or resume it, store the predictions of its models, and remove its checkpoints."""
    ((name, _), recipe), *others = unit.items()
    if not is_batchable(recipe):
        assert not others, "only MLPs are trained together"
        return _run_alone(folder, name, recipe, device, data, on_step)
    running = folder.running("together", hashlib.blake2b(repr(list(unit)).encode(), digest_size=8).hexdigest())
    data = data or load_for(recipe)
    recipes = list(unit.values())
    model, preprocess = train_ensemble(recipes, data=data, device=device, shared=shared, out=running, on_step=on_step)
    logits = compute_logits(model, data.test.prepared(recipe), preprocess, device)
    folder.write(running, {task: logits[:, i] for i, task in enumerate(unit)})


def _run_alone(
    folder: Folder, name: str, recipe: Recipe, device: torch.device, data: Data | None, on_step: OnStep | None
) -> None:
    running, data = folder.running(name, recipe.seed), data or load_for(recipe)
    run_with_title(
        f"{name}, seed {recipe.seed}", partial(train, recipe, out=running, splits=data, device=device), on_step=on_step
    )
    trained = load(running)
    logits = compute_logits(trained.model.to(device), data.test.prepared(recipe), trained.preprocess, device)
    folder.write(running, {(name, recipe.seed): logits})
