"""Studies in their folders: k seeds of a baseline and of some configurations, begun or taken up where they stand."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outspan.config import Recipe
from outspan.data.sets import AnySplit, Data, is_textual, load_for
from outspan.data.splits import Files, InMemory
from outspan.files import digest_of
from outspan.measurement.runs import Folder, Task, run, title_of
from outspan.measurement.scores import Predictions
from outspan.shapes import Float32
from outspan.training.checkpoint import locked
from outspan.training.ensemble import MEMBER_KEYS, is_batchable, members_at_once
from outspan.training.pool import Watch, run_all, unwatched
from outspan.transforms.table import TEXT_TRANSFORMS, TRANSFORMS, find

BASELINE = "baseline"
# Of a recipe: a study sets them itself.
OWN_KEYS = ("policy", "policy_file", "seed", "transforms", "depth", "probability", "defaults", "same_class")


@dataclass(frozen=True, eq=False)
class Measured:
    """What a study came to: the predictions of the baseline and of each configuration, and what they were made with."""

    settings: Mapping[str, Any]
    seeds: Sequence[int]
    classes: Sequence[str]
    predictions: Mapping[str, Predictions]
    margins: Mapping[str, Float32[Tensor, "k n"]] = field(default_factory=dict)  # the likeliest class's probability's lead
    unfinished: Sequence[str] = ()  # transforms of which the folder has some seeds, and not all


def measurable(data: str = "", cache: str = "") -> tuple[str, ...]:
    """Return the transforms that can be measured: all that keep the label as it is; translation where there is a cache."""
    if is_textual(data):
        return tuple(name for name in TEXT_TRANSFORMS if cache or name != "back_translation")
    return tuple(name for name, transform in TRANSFORMS.items() if not transform.mixes and name != "identity")


def unaugmented(recipe: Recipe) -> Recipe:
    """Return a recipe without what it does to images, which a study decides: its transforms, defaults and policy's file."""
    return replace(recipe, transforms="paper16", depth=1, defaults="none", same_class=-1.0, policy_file="")


def configurations(recipe: Recipe, transforms: Iterable[str], probability: float) -> dict[str, Recipe]:
    """Return the recipe of the baseline and of each transform alone, at levels uniform over the paper's signed range."""
    if not 0 < probability <= 1:
        raise ValueError(f"probability must lie in (0, 1], got {probability}")
    baseline = replace(unaugmented(recipe), policy="none", probability=probability)
    transforms = list(transforms)
    check_transforms(recipe, transforms)
    return {BASELINE: baseline} | {name: one_after_another(baseline, [name]) for name in transforms}


def check_transforms(recipe: Recipe, transforms: Sequence[str]) -> None:
    """Refuse what cannot be measured on a recipe's data, by name and reason."""
    if not transforms:
        raise ValueError("there is no transform to measure")
    known, allowed = TEXT_TRANSFORMS if is_textual(recipe.data) else TRANSFORMS, measurable(recipe.data, recipe.cache)
    for name in transforms:
        transform = find(name, known)
        if name not in allowed:
            why = {"identity": "changes nothing: that is the baseline", "back_translation": "needs a cache: --set cache=FILE"}
            keeps = "mixes labels: only transforms that keep an image's label are measured"
            raise ValueError(f"{name!r} {keeps if transform.mixes else why[name]} (known: {', '.join(allowed)})")


def one_after_another(baseline: Recipe, transforms: Sequence[str]) -> Recipe:
    """Return the recipe of some transforms in their order, each with its own probability and level."""
    return replace(baseline, policy="sequence", transforms=",".join(transforms))


def measure(
    recipe: Recipe,
    transforms: Sequence[str],
    *,
    seeds: Sequence[int],
    out: Path,
    probability: float = 0.5,
    shared_batches: bool = False,
    device: str | torch.device = "cpu",
    jobs: int = 1,
    watch: Watch = unwatched,
) -> Measured:
    """Train every seed of the baseline and of each transform alone, and return what they predict for the test split.

    Transforms that the folder has of all seeds already are returned after those asked for: what is written from less would
    replace more.
    """
    recipes = configurations(recipe, transforms, probability)
    options = {"shared_batches": shared_batches, "device": device, "jobs": jobs, "watch": watch}
    study = Study(recipes[BASELINE], seeds=seeds, out=out, **options)
    known = measurable(recipe.data, recipe.cache)
    names = [*transforms, *(name for name in known if study.has(name))]
    measured = study.run(configurations(recipe, names, probability))
    return replace(measured, unfinished=[name for name in known if name not in names and study.has_some(name)])


class Study:
    """A folder of models, some seeds of every configuration that is asked for: begun, or taken up where it stands.

    What a finished model predicts is in the folder, so the same call goes on where one was stopped, and more configurations and
    seeds may be asked of the same folder. Perceptrons train as one batched model, others one after another; with `jobs` so many
    at a time, a process of one thread each. With `shared_batches` all seeds see the images and draws of seed 0. `watch` is
    asked, with the title of what begins, for the `on_step` that shows its progress and may stop it. `data` stands for the
    recipe's own, and is trained on in this process alone.
    """

    def __init__(
        self,
        baseline: Recipe,
        *,
        seeds: Sequence[int],
        out: Path,
        shared_batches: bool = False,
        device: str | torch.device = "cpu",
        jobs: int = 1,
        watch: Watch = unwatched,
        data: Data | None = None,
    ) -> None:
        self.baseline, self.seeds = baseline, list(seeds)
        self.shared_batches, self.device, self.watch = shared_batches, torch.device(device), watch
        if len(self.seeds) < 2 or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"a measure needs at least 2 different seeds, got {self.seeds}: one model alone cannot disagree")
        if shared_batches and not is_batchable(baseline):
            raise ValueError(f"shared batches need an mlp without validation images, got {baseline.model}")
        if data is not None and not is_batchable(baseline):
            raise ValueError(f"images held out for choosing need an mlp without validation images, got {baseline.model}")
        self.jobs = jobs if data is None else 1
        self.data = data or load_for(baseline)
        self.settings = _settings(baseline, self.data, self.device, shared_batches)
        self.folder = Folder(out, self.settings, len(self.data.test), len(self.data.classes))

    def has(self, name: str) -> bool:
        """Return whether every seed of a configuration is in the folder."""
        return all(self.folder.has(name, seed) for seed in self.seeds)

    def has_some(self, name: str) -> bool:
        """Return whether the folder has any seed of a configuration, asked for or not."""
        return next(self.folder.path(name, 0).parent.glob(f"{name}-[0-9]*.npy"), None) is not None

    def run(self, recipes: Mapping[str, Recipe]) -> Measured:
        """Train what is missing of these configurations, by name, and return what all of them predict for the test split."""
        with locked(self.folder.out):
            self.folder.recover()
            self._train_missing(recipes)
        read = {name: [self.folder.read(name, seed) for seed in self.seeds] for name in recipes}
        predictions = {
            name: Predictions(torch.stack([classes for classes, _ in models]), self.data.test.labels)
            for name, models in read.items()
        }
        margins = {name: torch.stack([own for _, own in models]) for name, models in read.items()}
        return Measured(self.settings, self.seeds, self.data.classes, predictions, margins)

    def _train_missing(self, recipes: Mapping[str, Recipe]) -> None:
        missing = [(name, seed) for name in recipes for seed in self.seeds if not self.folder.has(name, seed)]
        tasks = {(name, seed): replace(recipes[name], seed=seed) for name, seed in missing}
        units = [*self._batches({task: own for task, own in tasks.items() if is_batchable(own)})]
        units += [{task: own} for task, own in tasks.items() if not is_batchable(own)]
        options = {"device": self.device, "shared": 0 if self.shared_batches else None}
        options["data"] = self.data if self.jobs == 1 else None  # processes read their own
        runs = [(title_of(unit), partial(run, self.folder, unit, **options)) for unit in units]
        run_all(runs, jobs=self.jobs, watch=self.watch)

    def _batches(self, tasks: Mapping[Task, Recipe]) -> list[dict[Task, Recipe]]:
        """Return which models train as one: on a GPU as many as can, elsewhere the seeds of a configuration, if they fit."""
        alike: dict[Any, list[Task]] = {}
        on_gpu = self.device.type == "cuda"
        for task, own in tasks.items():
            must_agree = replace(own, **{key: getattr(self.baseline, key) for key in MEMBER_KEYS})
            alike.setdefault((must_agree, "" if on_gpu else task[0]), []).append(task)
        found = []
        for some in alike.values():
            at_once = members_at_once(self.baseline, self.data.train.shape)
            at_once = min(at_once, -(-len(some) // self.jobs)) if on_gpu else at_once  # a part for every process
            found += [{task: tasks[task] for task in some[i : i + at_once]} for i in range(0, len(some), at_once)]
        return found


def _settings(recipe: Recipe, data: Data, device: torch.device, shared_batches: bool) -> dict[str, Any]:
    """Return everything that decides a model's predictions but its configuration, which is its name, and its seed."""
    kept = {key: value for key, value in asdict(recipe).items() if key not in ("seed", "transforms")}
    about = {"train": _fingerprint(data.train), "test": _fingerprint(data.test)}
    about |= {f"{key}_digest": digest_of(getattr(recipe, key)) for key in ("cache", "weights") if getattr(recipe, key)}
    return kept | {"shared_batches": shared_batches, "device": device.type} | about


def _fingerprint(split: AnySplit) -> str:
    digest = hashlib.blake2b(split.labels.numpy().tobytes(), digest_size=8)
    if isinstance(split, InMemory):
        digest.update(split.images.numpy().tobytes())
    elif isinstance(split, Files):  # reading them all would take as long as an epoch
        seen = ((str(path), path.stat()) for path in split.paths)
        digest.update("\0".join(f"{path} {found.st_size} {found.st_mtime_ns}" for path, found in seen).encode())
    else:
        digest.update("\0".join(split.texts).encode())
    return f"{len(split)} {split.noun}, {digest.hexdigest()}"
