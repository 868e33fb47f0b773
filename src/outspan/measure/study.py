"""Studies in their folders: k seeds of a baseline and of some configurations, begun or taken up where they stand."""

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outspan.config import Recipe
from outspan.data.sets import AnySplit, Data, is_textual, load_for
from outspan.data.splits import Files, Split
from outspan.files import write_whole
from outspan.measure.ensemble import MEMBER_KEYS, is_batchable, members_at_once, train_together
from outspan.measure.margins import margins
from outspan.measure.scores import Predictions
from outspan.shapes import Float32
from outspan.train import Stopped
from outspan.train.loop import load_run, predict, train
from outspan.transforms.table import TEXT_TRANSFORMS, TRANSFORMS, find

BASELINE = "baseline"
OWN_KEYS = ("policy", "seed", "transforms", "depth", "probability")  # of a recipe: a measure sets them itself
OnStep = Callable[[dict[str, Any]], bool | None]
Task = tuple[str, int]  # a configuration and a seed
Watch = Callable[[str], AbstractContextManager[OnStep | None]]


@dataclass(frozen=True, eq=False)
class Measured:
    """What a study came to: the predictions of the baseline and of each configuration, and what they were made with."""

    settings: Mapping[str, Any]
    seeds: Sequence[int]
    classes: Sequence[str]
    predictions: Mapping[str, Predictions]
    margins: Mapping[str, Float32[Tensor, "k n"]] = field(default_factory=dict)  # the likeliest class's probability's lead


def measurable(data: str = "", cache: str = "") -> tuple[str, ...]:
    """Return the transforms that can be measured: all that keep the label as it is; translation where there is a cache."""
    if is_textual(data):
        return tuple(name for name in TEXT_TRANSFORMS if cache or name != "back_translation")
    return tuple(name for name, transform in TRANSFORMS.items() if not transform.mixes and name != "identity")


def configurations(recipe: Recipe, transforms: Iterable[str], probability: float) -> dict[str, Recipe]:
    """Return the recipe of the baseline and of each transform alone, at levels uniform over the paper's signed range."""
    if not 0 < probability <= 1:
        raise ValueError(f"probability must lie in (0, 1], got {probability}")
    baseline = replace(recipe, policy="none", transforms="paper16", depth=1, probability=probability)
    found = {BASELINE: baseline} | {name: one_after_another(baseline, [name]) for name in transforms}
    if len(found) == 1:
        raise ValueError("there is no transform to measure")
    return found


def one_after_another(baseline: Recipe, transforms: Sequence[str]) -> Recipe:
    """Return the recipe of some transforms in their order, each with its own probability and level."""
    for name in transforms:
        if find(name).mixes:
            others = ", ".join(measurable(baseline.data, baseline.cache))
            raise ValueError(f"{name!r} mixes labels: only transforms that keep an image's label are measured ({others})")
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
    watch: Watch = lambda title: nullcontext(),
) -> Measured:
    """Train every seed of the baseline and of each transform alone, and return what they predict for the test split."""
    recipes = configurations(recipe, transforms, probability)
    options = {"shared_batches": shared_batches, "device": device, "jobs": jobs, "watch": watch}
    return Study(recipes[BASELINE], seeds=seeds, out=out, **options).run(recipes)


class Study:
    """A folder of models, some seeds of every configuration that is asked for: begun, or taken up where it stands.

    What a finished model predicts is in the folder, so the same call goes on where one was stopped, and more configurations and
    seeds may be asked of the same folder. Perceptrons train as one batched model; others one after another, or `jobs` at a time
    with a thread each. With `shared_batches` all seeds see the images and draws of seed 0. `watch` is asked, with the title
    of what begins, for the `on_step` that shows its progress and may stop it. `data` stands for the recipe's own.
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
        watch: Watch = lambda title: nullcontext(),
        data: Data | None = None,
    ) -> None:
        self.baseline, self.seeds = baseline, list(seeds)
        self.shared_batches, self.device, self.jobs, self.watch = shared_batches, torch.device(device), jobs, watch
        if len(self.seeds) < 2 or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"a measure needs at least 2 different seeds, got {self.seeds}: one model alone cannot disagree")
        if shared_batches and not is_batchable(baseline):
            raise ValueError(f"shared batches need an mlp without validation images, got {baseline.model}")
        if data is not None and not is_batchable(baseline):
            raise ValueError(f"images held out for choosing need an mlp without validation images, got {baseline.model}")
        self.data = data or load_for(baseline)
        self.settings = _settings(baseline, self.data, self.device, shared_batches)
        self.folder = _Folder(out, self.settings, len(self.data.test), len(self.data.classes))

    def run(self, recipes: Mapping[str, Recipe]) -> Measured:
        """Train what is missing of these configurations, by name, and return what all of them predict for the test split."""
        missing = [(name, seed) for name in recipes for seed in self.seeds if not self.folder.has(name, seed)]
        tasks = {(name, seed): replace(recipes[name], seed=seed) for name, seed in missing}
        for some in self._batches({task: own for task, own in tasks.items() if is_batchable(own)}):
            self._run_together(some)
        alone = {task: own for task, own in tasks.items() if not is_batchable(own)}
        if self.jobs > 1 and len(alone) > 1:
            with self.watch(f"{self.jobs} runs at a time") as on_step:
                _run_side_by_side(self.folder, alone, str(self.device), self.jobs, on_step)
        else:
            for (name, seed), own in alone.items():
                with self.watch(f"{name}, seed {seed}") as on_step:
                    _run_alone(self.folder, name, own, str(self.device), self.data, on_step)
        read = {name: [self.folder.read(name, seed) for seed in self.seeds] for name in recipes}
        predictions = {
            name: Predictions(torch.stack([classes for classes, _ in models]), self.data.test.labels)
            for name, models in read.items()
        }
        margins = {name: torch.stack([own for _, own in models]) for name, models in read.items()}
        return Measured(self.settings, self.seeds, self.data.classes, predictions, margins)

    def _batches(self, tasks: Mapping[Task, Recipe]) -> list[dict[Task, Recipe]]:
        """Return which models train as one: on a GPU all that can, elsewhere the seeds of a configuration, as memory allows."""
        alike: dict[Any, list[Task]] = {}
        for task, own in tasks.items():
            must_agree = replace(own, **{key: getattr(self.baseline, key) for key in MEMBER_KEYS})
            alike.setdefault((must_agree, "" if self.device.type == "cuda" else task[0]), []).append(task)
        found = []
        for some in alike.values():
            at_once = members_at_once(self.baseline, self.data.train.shape)
            found += [{task: tasks[task] for task in some[i : i + at_once]} for i in range(0, len(some), at_once)]
        return found

    def _run_together(self, tasks: Mapping[Task, Recipe]) -> None:
        """Train models as one, or go on with them, and keep what each predicts."""
        names = list(dict.fromkeys(name for name, _ in tasks))
        running = self.folder.running("together", hashlib.blake2b(repr(list(tasks)).encode(), digest_size=8).hexdigest())
        title = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} others"
        with self.watch(f"{title}, {len(tasks)} models") as on_step:
            shared = 0 if self.shared_batches else None
            options = {"data": self.data, "device": self.device, "shared": shared, "out": running, "on_step": on_step}
            model, last = train_together(list(tasks.values()), **options)
        logits = predict(model, self.data.test, last, self.device)
        for i, (name, seed) in enumerate(tasks):
            self.folder.write(name, seed, logits[:, i])
        shutil.rmtree(running, ignore_errors=True)


class _Folder:
    """Where what finished models predict is, a file each, whole or not there."""

    def __init__(self, out: Path, settings: dict[str, Any], samples: int, classes: int) -> None:
        self.out, self.samples, self.classes = out, samples, classes
        (out / "models").mkdir(parents=True, exist_ok=True)
        path = out / "settings.json"
        if path.exists():
            _same_settings(path, settings)
        else:
            write_whole(path, lambda partial: partial.write_text(json.dumps(settings, indent=2) + "\n"))

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


def _settings(recipe: Recipe, data: Data, device: torch.device, shared_batches: bool) -> dict[str, Any]:
    """Return everything that decides a model's predictions but its configuration, which is its name, and its seed."""
    kept = {key: value for key, value in asdict(recipe).items() if key not in ("seed", "transforms")}
    about = {"train": _fingerprint(data.train), "test": _fingerprint(data.test)}
    return kept | {"shared_batches": shared_batches, "device": device.type} | about


def _fingerprint(split: AnySplit) -> str:
    digest = hashlib.blake2b(split.labels.numpy().tobytes(), digest_size=8)
    if isinstance(split, Split):
        digest.update(split.images.numpy().tobytes())
    else:
        digest.update("\0".join(map(str, split.paths if isinstance(split, Files) else split.texts)).encode())
    return f"{len(split)} {'images' if isinstance(split, Split | Files) else 'texts'}, {digest.hexdigest()}"


def _same_settings(path: Path, settings: Mapping[str, Any]) -> None:
    try:
        stored = json.loads(path.read_text())
        different = [key for key in dict.fromkeys([*stored, *settings]) if stored.get(key) != settings.get(key)]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not the settings of a measure ({error})") from None
    if different:
        shown = ", ".join(f"{key} {stored.get(key)!r} there, {settings.get(key)!r} asked" for key in different)
        raise ValueError(f"{path.parent}: a measure of other settings ({shown})")


def _run_alone(folder: _Folder, name: str, recipe: Recipe, device: str, data: Data | None, on_step: OnStep | None) -> None:
    """Train one model, or go on with it, keep what it predicts, and let go of its checkpoints."""
    running = folder.running(name, recipe.seed)
    try:
        train(recipe, out=running, data=data, device=device, on_step=on_step)
    except ValueError as error:
        raise ValueError(f"{name}, seed {recipe.seed}: {error}") from None
    run, data = load_run(running)
    folder.write(name, recipe.seed, predict(run.model.to(device), data.test, run.last, device))


def _run_side_by_side(folder: _Folder, tasks: Mapping[Task, Recipe], device: str, jobs: int, on_step: OnStep | None) -> None:
    """Train models in processes of one thread each. Where one fails, or all are asked to stop, the others save themselves."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    failed: list[BaseException] = []
    stopped = False
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=context, initializer=_begin, initargs=(stop,))
    try:
        waiting: set[Future[None]] = {
            pool.submit(_run_in_worker, folder, name, recipe, device) for (name, _), recipe in tasks.items()
        }
        while waiting:
            done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
            failed += [error for future in done if not future.cancelled() and (error := future.exception()) is not None]
            over = len(tasks) - len(waiting)
            state = {"step": over, "steps": len(tasks), "images": 0, "said": f"{over} of {len(tasks)} runs"}
            stopped = (on_step is not None and bool(on_step(state))) or stopped
            if failed or stopped:
                stop.set()
                for future in waiting:
                    future.cancel()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
    for error in failed:
        if isinstance(error, BrokenProcessPool):
            raise ValueError("the process of a run was killed, maybe for memory; the same command goes on") from None
        if not isinstance(error, Stopped):
            raise error
    if failed or (stopped and not all(folder.has(*task) for task in tasks)):
        raise Stopped("stopped; the same command goes on")


_asked_to_stop: Any = None  # in a worker: the event that its parent sets


def _begin(stop: Any) -> None:
    """Set a worker up: one thread, deaf to Ctrl-C, which its parent answers, and gone when its parent is."""
    global _asked_to_stop
    _asked_to_stop = stop
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _run_in_worker(folder: _Folder, name: str, recipe: Recipe, device: str) -> None:
    _run_alone(folder, name, recipe, device, None, lambda state: _asked_to_stop.is_set())
