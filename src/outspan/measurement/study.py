"""Studies: several seeds of a baseline and of other configurations, trained in one folder.

A configuration is a recipe without its seed: the baseline, one transform, or a composition of transforms.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from outspan.config import Recipe
from outspan.data.sets import Data, load_for
from outspan.devices import find_device
from outspan.files import output_folder
from outspan.measurement.predictions import Predictions
from outspan.measurement.runs import Folder, Task, run, title_of
from outspan.measurement.settings import StudySettings, study_settings
from outspan.messages import shown
from outspan.shapes import Float32
from outspan.training.ensemble import MEMBER_KEYS, is_batchable, members_at_once
from outspan.training.lock import locked
from outspan.training.pool import Pool, Watch, no_progress, run_all

_ONE_BY_ONE = Pool()


@dataclass(frozen=True, eq=False)
class StudyResult:
    """The predictions of every configuration of a study for the test split."""

    settings: StudySettings
    seeds: Sequence[int]
    classes: Sequence[str]
    predictions: Mapping[str, Predictions] = field(repr=False)  # by configuration
    margins: Mapping[str, Float32[Tensor, "k n"]] = field(default_factory=dict, repr=False)  # by configuration
    noun: str = "images"  # what the samples are called


class Study:
    """A folder with the predictions of trained models: some seeds of every configuration.

    Predictions of finished models are stored in the folder. So the same call resumes a study that was stopped, and more
    configurations and seeds can be added later.

    Args:
        baseline: The recipe that all configurations start from.
        seeds: The number of seeds (0, 1, …), or a list of seeds. At least 2.
        out: The folder.
        shared_batches: Whether all seeds are trained on the batches and random draws of seed 0.
        device: Where to train, as in `outspan.train`, e.g. "cpu" or "cuda:1".
        pool: Where models are trained, and how many at a time.
        watch: Shows progress, as in `outspan.compare`.
        data: Used instead of the data of the recipe, in this process only.

    MLPs are trained together as one batched model, other models one by one.
    """

    def __init__(
        self,
        baseline: Recipe,
        *,
        seeds: int | Sequence[int],
        out: Path | str,
        shared_batches: bool = False,
        device: str | torch.device | None = None,
        pool: Pool = _ONE_BY_ONE,
        watch: Watch = no_progress,
        data: Data | None = None,
    ) -> None:
        self.baseline, self.seeds = baseline, _list_seeds(seeds)
        self.shared_batches, self.device, self.watch = shared_batches, find_device(device), watch
        if shared_batches and not is_batchable(baseline):
            raise ValueError(f"shared_batches needs an mlp with validation 0, got {_describe_model(baseline)}: leave it out")
        if data is not None and not is_batchable(baseline):
            raise ValueError(
                f"choosing a weight decay on held-out images needs an mlp with validation 0, got {_describe_model(baseline)}"
            )
        self.pool = pool if data is None else _ONE_BY_ONE
        self.pool.check(self.device)
        self.data = data or load_for(baseline)
        if self.data.train.labels.ndim == 2:
            raise ValueError(f"a study needs data with one label per sample, got several: data {baseline.data!r}")
        self.settings = study_settings(baseline, self.data, self.device, shared_batches=shared_batches)
        self.folder = Folder(output_folder(out), self.settings, len(self.data.test), len(self.data.classes))

    def has(self, name: str) -> bool:
        """Return whether every seed of a configuration is in the folder."""
        return all(self.folder.has(name, seed) for seed in self.seeds)

    def has_any_seed(self, name: str) -> bool:
        """Return whether the folder has any seed of a configuration, of this study or of an earlier one."""
        return next(self.folder.path(name, 0).parent.glob(f"{name}-[0-9]*.npy"), None) is not None

    def run(self, recipes: Mapping[str, Recipe]) -> StudyResult:
        """Train what is missing of these configurations, by name, and return the predictions of all of them."""
        with locked(self.folder.out):
            self.folder.recover()
            self._train_missing(recipes)
        models = {name: [self.folder.read(name, seed) for seed in self.seeds] for name in recipes}
        test = self.data.test
        predictions = {
            name: Predictions(torch.stack([classes for classes, _ in read]), test.labels) for name, read in models.items()
        }
        margins = {name: torch.stack([values for _, values in read]) for name, read in models.items()}
        return StudyResult(self.settings, self.seeds, self.data.classes, predictions, margins, test.noun)

    def _train_missing(self, recipes: Mapping[str, Recipe]) -> None:
        missing = [(name, seed) for name in recipes for seed in self.seeds if not self.folder.has(name, seed)]
        tasks = {(name, seed): replace(recipes[name], seed=seed) for name, seed in missing}
        units = self._batches({task: recipe for task, recipe in tasks.items() if is_batchable(recipe)})
        units += [{task: recipe} for task, recipe in tasks.items() if not is_batchable(recipe)]
        shared = 0 if self.shared_batches else None
        data = self.data if self.pool.is_this_process else None  # each process loads its own
        train = partial(run, self.folder, device=self.device, shared=shared, data=data)
        runs = [(title_of(unit), partial(train, unit)) for unit in units]
        place = {"device": self.device, "out": self.folder.out, "recipes": [self.baseline]}
        run_all(runs, self.pool, **place, watch=self.watch)

    def _batches(self, tasks: Mapping[Task, Recipe]) -> list[dict[Task, Recipe]]:
        """Return which models are trained together: on a GPU as many as possible, otherwise the seeds of a configuration.

        A cluster may have many GPUs, so its runs are those of a CPU. No batch has more models than fit in memory.
        """
        groups: dict[tuple[Recipe, str], list[Task]] = {}
        on_gpu = self.device.type == "cuda" and self.pool.address is None
        for task, recipe in tasks.items():
            shared = replace(recipe, **{key: getattr(self.baseline, key) for key in MEMBER_KEYS})
            groups.setdefault((shared, "" if on_gpu else task[0]), []).append(task)
        batches = []
        for group in groups.values():
            size = members_at_once(self.baseline, self.data.train.shape)
            size = min(size, -(-len(group) // self.pool.jobs)) if on_gpu else size  # at least one batch per process
            batches += [{task: tasks[task] for task in group[i : i + size]} for i in range(0, len(group), size)]
        return batches


def _list_seeds(seeds: int | Sequence[int]) -> list[int]:
    result = list(range(seeds)) if isinstance(seeds, int) else list(seeds) if isinstance(seeds, Sequence) else []
    if len(result) < 2 or len(set(result)) < len(result) or not all(isinstance(seed, int) for seed in result):
        raise ValueError(f"seeds must be a number or a list of at least 2 different seeds, got {shown(seeds)}")
    return result


def _describe_model(recipe: Recipe) -> str:
    return recipe.model + (f" with validation {recipe.validation}" if recipe.validation else "")
