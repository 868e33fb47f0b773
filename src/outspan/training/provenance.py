"""What identifies a run: its recipe, its data, and the machine setting that its bits depend on."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from outspan.config import Recipe, changed_keys, stored_recipe
from outspan.data.dataset import AnySamples, Data
from outspan.data.splits import Split
from outspan.files import digest_of
from outspan.models.from_timm import PUBLISHED
from outspan.policies.files import file_and_function
from outspan.training.metadata import Metadata


@dataclass(frozen=True)
class DataProvenance:
    """The data that a run is trained on, and the files that its recipe names."""

    train: int  # number of samples
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    mean: tuple[float, ...]  # per channel; empty for text
    std: tuple[float, ...]
    policy_file: str | None = None  # SHA-256; None if the recipe has none
    weights: str | None = None  # SHA-256; None if the recipe has none or the file is gone
    train_digest: str = ""
    test_digest: str = ""
    cache: str = ""  # SHA-256 of the back-translations

    def to_metadata(self) -> Metadata:
        """Return the values as JSON has them, without those that are None."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        listed = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        return {key: value for key, value in listed.items() if value is not None}


@dataclass(frozen=True)
class Setting:
    """What may change the last bits of a result without changing the recipe."""

    device: str
    threads: int
    torch: str
    compiled: bool
    deterministic: bool
    graphs: bool


@dataclass(frozen=True)
class Provenance:
    """All that identifies a run. A run is resumed only with the same recipe and data."""

    recipe: Recipe
    data: DataProvenance
    setting: Setting

    def to_metadata(self) -> Metadata:
        """Return what a checkpoint stores."""
        return {"recipe": asdict(self.recipe), "data": self.data.to_metadata(), "setting": asdict(self.setting)}

    def check_same_run(self, stored: Metadata, out: Path) -> None:
        """Refuse to resume a run of another recipe or other data; warn if the result will not be bit-identical."""
        _check_same_recipe(self.recipe, stored["recipe"], out)
        check_same_data(self.data.to_metadata(), stored["data"], out)
        before, is_finished = stored["setting"], len(stored["metrics"]) == self.recipe.epochs
        now = asdict(self.setting)
        changed = [f"{key} {before.get(key)} then, {now[key]} now" for key in now if before.get(key) != now[key]]
        if changed and not is_finished:
            warnings.warn(f"{out}: the result will not be bit-identical ({', '.join(changed)})", stacklevel=4)

    def with_stored_weights(self, digest: str | None) -> "Provenance":
        """Return it with the stored digest of the weights file if the file is gone: a run needs it only at its start."""
        return replace(self, data=replace(self.data, weights=self.data.weights or digest))


def describe_data(recipe: Recipe, data: Data, train: AnySamples, prepared: Split) -> DataProvenance:
    """Return the provenance of the data; `train` are the training samples, and `prepared` is their split for the model."""
    mean, std = prepared.statistics()
    has_weights = recipe.weights != PUBLISHED and Path(recipe.weights).is_file()
    return DataProvenance(
        train=len(prepared),
        shape=prepared.shape,
        classes=tuple(data.classes),
        mean=mean,
        std=std,
        policy_file=digest_of(file_and_function(recipe.policy_file)[0]) if recipe.policy_file else None,
        weights=digest_of(recipe.weights) if has_weights else None,
        train_digest=train.digest,
        test_digest=data.test.digest,
        cache=digest_of(recipe.cache),
    )


def describe_setting(device: torch.device, *, compiled: bool, deterministic: bool, graphs: bool) -> Setting:
    """Return the setting of this process."""
    return Setting(device.type, torch.get_num_threads(), torch.__version__, compiled, deterministic, graphs)


def _check_same_recipe(recipe: Recipe, stored: Mapping[str, Any], out: Path) -> None:
    different = changed_keys(stored_recipe(stored), recipe)
    for key in {"data", "cache", "weights"} & different.keys():  # files that were moved: their contents are compared
        if all(Path(str(name)).is_absolute() for name in different[key]):
            del different[key]
    if different:
        shown = ", ".join(f"{key} {was!r} there, {now!r} requested" for key, (was, now) in different.items())
        raise ValueError(f"{out}: contains a run of another recipe ({shown}); choose another folder")


def check_same_data(now: Mapping[str, Any], stored: Mapping[str, Any], out: Path) -> None:
    """Refuse data that is not what the run in this folder was trained on."""
    for key, value in now.items():
        before = stored.get(key)
        if before != value and key in ("policy_file", "weights"):
            raise ValueError(f"{out}: the file of {key} has changed since (SHA-256 {before!s:.64} then, {value} now)")
        if before != value:
            raise ValueError(f"{out}: the data has changed since ({key} {before!r:.200} then, {value!r:.200} now)")
