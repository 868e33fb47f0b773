"""How the models of a study are trained, alone or as one, and where what they predict is kept."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outspan.config import Recipe
from outspan.data.sets import Data, as_read, load_for
from outspan.files import write_json, write_whole
from outspan.measure.ensemble import is_batchable, train_together
from outspan.measure.margins import margins
from outspan.train import OnStep
from outspan.train.loop import train
from outspan.train.trained import load_model, predict
from outspan.train.workers import named

Task = tuple[str, int]  # a configuration and a seed
Unit = Mapping[Task, Recipe]  # what is trained as one: several perceptrons, or one model


class Folder:
    """Where what finished models predict is, a file each, whole or not there."""

    def __init__(self, out: Path, settings: dict[str, Any], samples: int, classes: int) -> None:
        self.out, self.samples, self.classes = out, samples, classes
        if next(out.glob("step-*.safetensors"), None) is not None:
            raise ValueError(f"{out}: the folder of a run, not of a measure; give another")
        (out / "models").mkdir(parents=True, exist_ok=True)
        path = out / "settings.json"
        begun = any((out / "models").iterdir()) or (out / "running").exists()
        if path.exists() and begun:
            _same_settings(path, settings)
        else:
            write_json(path, settings)

    def path(self, name: str, seed: int) -> Path:
        return self.out / "models" / f"{name}-{seed}.npy"

    def running(self, name: str, seed: int | str) -> Path:
        return self.out / "running" / f"{name}-{seed}"

    def has(self, name: str, seed: int) -> bool:
        return self.path(name, seed).exists()

    def read(self, name: str, seed: int) -> tuple[Tensor, Tensor]:
        """Return the classes that a model predicts, and its margins."""
        path = self.path(name, seed)
        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(f"{path}: damaged ({error}); remove it and it is made again") from None
        fits = array.dtype == np.float64 and array.shape == (2, self.samples)
        if not fits or not (array.min() >= 0 and array[0].max() < self.classes and array[1].max() <= 1):
            raise ValueError(f"{path}: not what a model says of {self.samples} samples; remove it and it is made again")
        classes, lead = torch.from_numpy(array)
        return classes.long(), lead.float()

    def write(self, name: str, seed: int, logits: Tensor) -> None:
        both = torch.stack([logits.argmax(1).double(), margins(logits).double()])

        def write(partial: Path) -> None:
            with open(partial, "wb") as file:
                np.save(file, both.numpy(), allow_pickle=False)

        write_whole(self.path(name, seed), write)
        shutil.rmtree(self.running(name, seed), ignore_errors=True)


def _same_settings(path: Path, settings: Mapping[str, Any]) -> None:
    try:
        stored = json.loads(path.read_text())
        newer = {key: value for key, value in asdict(Recipe()).items() if key in settings}  # than the folder: at its default
        stored = newer | stored
        different = [key for key in dict.fromkeys([*stored, *settings]) if stored.get(key) != settings.get(key)]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not the settings of a measure ({error})") from None
    if different:
        shown = ", ".join(f"{key} {stored.get(key)!r} there, {settings.get(key)!r} asked" for key in different)
        raise ValueError(f"{path.parent}: a measure of other settings ({shown})")


def title_of(unit: Unit) -> str:
    """Return what a unit is called where its progress is shown."""
    names = list(dict.fromkeys(name for name, _ in unit))
    (_, first), *others = unit
    if not is_batchable(unit[names[0], first]):
        return f"{names[0]}, seed {first}"
    whose = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} others"
    return f"{whose}, {1 + len(others)} models"


def run(
    folder: Folder, unit: Unit, *, device: torch.device, shared: int | None, data: Data | None, on_step: OnStep | None
) -> None:
    """Train a unit, or go on with it, keep what its models predict, and let go of its checkpoints."""
    ((name, _), recipe), *others = unit.items()
    if not is_batchable(recipe):
        assert not others, "only perceptrons are trained as one"
        return _run_alone(folder, name, recipe, device, data, on_step)
    running = folder.running("together", hashlib.blake2b(repr(list(unit)).encode(), digest_size=8).hexdigest())
    data = data or load_for(recipe)
    options = {"data": data, "device": device, "shared": shared, "out": running, "on_step": on_step}
    model, last = train_together(list(unit.values()), **options)
    logits = predict(model, data.test, last, device)
    for i, task in enumerate(unit):
        folder.write(*task, logits[:, i])
    shutil.rmtree(running, ignore_errors=True)


def _run_alone(
    folder: Folder, name: str, recipe: Recipe, device: torch.device, data: Data | None, on_step: OnStep | None
) -> None:
    running, data = folder.running(name, recipe.seed), data or load_for(recipe)
    named(f"{name}, seed {recipe.seed}", partial(train, recipe, out=running, data=data, device=device), on_step=on_step)
    trained = load_model(running)
    logits = predict(trained.model.to(device), as_read(data.test, recipe), trained.last, device)
    folder.write(name, recipe.seed, logits)
