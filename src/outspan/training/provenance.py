"""What identifies a run: its recipe, its data, and the environment that the last bits of its result depend on."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import cast

import torch

from outspan.config import Recipe, changed_keys, stored_recipe
from outspan.data.dataset import Data
from outspan.data.splits import Samples, Split
from outspan.files import Json, digest_of
from outspan.models.weights import PUBLISHED_WEIGHTS
from outspan.policies.files import file_and_function
from outspan.training.metadata import DataMetadata, ProvenanceMetadata, RunMetadata
from outspan.training.validation import has_stopped


@dataclass(frozen=True)
class DataProvenance:
    """The data that a run is trained on, and the files that its recipe names."""

    train: int  # number of samples
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    mean: tuple[float, ...]  # per channel; empty for texts
    std: tuple[float, ...]
    policy_file: str | None = None  # SHA-256; None if the recipe has none
    weights: str | None = None  # SHA-256; None if the recipe has none or the file no longer exists
    train_digest: str = ""
    test_digest: str = ""
    cache: str = ""  # SHA-256 of the back-translations
    multi_label: bool | None = None  # True if a sample can have several labels, otherwise None
    decoding: int | None = None  # version of the decoder of image files; None for other data

    def to_metadata(self) -> DataMetadata:
        """Return what a checkpoint stores: the values without those that are None. Tuples become lists."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        listed = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        return cast(DataMetadata, {key: value for key, value in listed.items() if value is not None})


@dataclass(frozen=True)
class Environment:
    """What may change the last bits of a result although the recipe is the same."""

    device: str
    threads: int
    torch: str
    compiled: bool
    deterministic: bool
    graphs: bool
    world: int = 1  # number of processes
    channels_last: bool = False


@dataclass(frozen=True)
class Provenance:
    """All that identifies a run. A run is resumed only with the same recipe and data."""

    recipe: Recipe
    data: DataProvenance
    environment: Environment

    def to_metadata(self) -> ProvenanceMetadata:
        """Return what a checkpoint stores."""
        return {"recipe": asdict(self.recipe), "data": self.data.to_metadata(), "setting": asdict(self.environment)}

    def check_same_run(self, stored: RunMetadata, out: Path) -> None:
        """Refuse to resume a run of another recipe or other data; warn if the result will not be bit-identical."""
        _check_same_recipe(self.recipe, stored["recipe"], out)
        check_same_data(self.data.to_metadata(), stored["data"], out)
        setting = stored["setting"]
        before = {"world": 1, "channels_last": setting.get("device") == "cuda", **setting}
        is_finished = stored["step"] == self.recipe.total_steps(self.data.train)
        is_finished |= has_stopped(stored["metrics"], self.recipe.patience)
        now = asdict(self.environment)
        changed = [f"{key} {before.get(key)} then, {now[key]} now" for key in now if before.get(key) != now[key]]
        if changed and not is_finished:
            warnings.warn(f"{out}: the result will not be bit-identical ({', '.join(changed)})", stacklevel=4)

    def with_stored_weights(self, digest: str | None) -> "Provenance":
        """Return a copy with the stored digest if the weights file no longer exists."""
        return replace(self, data=replace(self.data, weights=self.data.weights or digest))


def describe_data(recipe: Recipe, data: Data, train: Samples, prepared: Split) -> DataProvenance:
    """Return the provenance of the data; `train` are the training samples, and `prepared` is their split for the model."""
    mean, std = prepared.statistics()
    has_weights = recipe.weights != PUBLISHED_WEIGHTS and Path(recipe.weights).is_file()
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
        multi_label=train.labels.ndim == 2 or None,
        decoding=train.decoding or None,
    )


def describe_environment(
    device: torch.device,
    *,
    compiled: bool,
    deterministic: bool,
    graphs: bool,
    world: int = 1,
    channels_last: bool = False,
) -> Environment:
    """Return the environment of a run in this process."""
    threads = torch.get_num_threads()
    return Environment(device.type, threads, torch.__version__, compiled, deterministic, graphs, world, channels_last)


def _check_same_recipe(recipe: Recipe, stored: Mapping[str, Json], out: Path) -> None:
    different = changed_keys(stored_recipe(stored), recipe)
    for key in {"data", "cache", "weights"} & different.keys():  # files that were moved: their contents are compared
        if all(Path(str(name)).is_absolute() for name in different[key]):
            del different[key]
    if different:
        shown = ", ".join(f"{key} {was!r} there, {now!r} requested" for key, (was, now) in different.items())
        raise ValueError(f"{out}: contains a run of another recipe ({shown}); choose another folder")


def check_same_data(now: DataMetadata, stored: DataMetadata, out: Path) -> None:
    """Refuse data that is not what the run in this folder was trained on."""
    for key, value in now.items():
        check_same_value(key, value, stored.get(key), out)


def check_same_value(key: str, now: object, stored: object, out: Path) -> None:
    """Refuse data if a value, e.g. its shape, differs from the one that the run in this folder stored."""
    if now == stored:
        return
    if key in ("policy_file", "weights"):
        raise ValueError(f"{out}: the file of {key} has changed since (SHA-256 {stored!s:.64} then, {now} now)")
    if key == "decoding":
        how = "finish it with that version, or choose another folder"
        raise ValueError(f"{out}: contains a run of another version of outspan, which reads image files differently: {how}")
    raise ValueError(f"{out}: the data has changed since ({key} {stored!r:.200} then, {now!r:.200} now)")
