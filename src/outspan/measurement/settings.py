"""The settings of a study: everything that its models share, and the file that stores it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from outspan.config import Recipe, with_new_names
from outspan.data.sets import Data
from outspan.data.splits import fingerprint
from outspan.files import Json, digest_of

_OWN_KEYS = ("seed", "transforms")  # keys of a recipe that differ between the models of a study
_FILES = ("cache", "weights")  # keys of a recipe that name a file


@dataclass(frozen=True)
class StudySettings:
    """Everything that decides the predictions of a model, except its configuration and its seed."""

    recipe: Recipe  # of the baseline
    shared_batches: bool  # whether all seeds are trained on the same batches
    device: str  # "cpu" or "cuda"
    train: str  # fingerprint of the train split
    test: str  # fingerprint of the test split
    digests: Mapping[str, str]  # of the files that the recipe names, by key of the recipe

    def as_dict(self) -> dict[str, Json]:
        """Return what settings.json contains."""
        values: dict[str, Json] = {key: value for key, value in asdict(self.recipe).items() if key not in _OWN_KEYS}
        values |= {"shared_batches": self.shared_batches, "device": self.device, "train": self.train, "test": self.test}
        return values | {f"{key}_digest": digest for key, digest in self.digests.items()}


def study_settings(recipe: Recipe, data: Data, device: torch.device, *, shared_batches: bool) -> StudySettings:
    """Return the settings of a study with this baseline."""
    digests = {key: digest_of(getattr(recipe, key)) for key in _FILES if getattr(recipe, key)}
    return StudySettings(recipe, shared_batches, device.type, fingerprint(data.train), fingerprint(data.test), digests)


def check_settings(path: Path, settings: StudySettings) -> None:
    """Raise a ValueError if the settings in a file differ from these. Keys that are newer than the file have their default."""
    requested = settings.as_dict()
    try:
        stored = json.loads(path.read_text())
        defaults = {key: value for key, value in asdict(Recipe()).items() if key in requested}
        stored = defaults | with_new_names(stored)
        different = [key for key in dict.fromkeys([*stored, *requested]) if stored.get(key) != requested.get(key)]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not the settings of a measurement ({error})") from None
    if different:
        shown = ", ".join(f"{key} {stored.get(key)!r} there, {requested.get(key)!r} requested" for key in different)
        raise ValueError(f"{path.parent}: contains a measurement with other settings ({shown}); choose another folder")
