"""A measure in its folder: k seeds of a baseline and of each transform alone, begun or taken up where it stands."""

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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outspan.config import Recipe
from outspan.data.sets import Data, load
from outspan.data.splits import Files, Split
from outspan.files import write_whole
from outspan.measure.ensemble import is_batchable, members_at_once, train_together
from outspan.measure.scores import Predictions
from outspan.train import Stopped
from outspan.train.loop import load_run, predict, train
from outspan.transforms.table import TRANSFORMS, find

BASELINE = "baseline"
OWN_KEYS = ("policy", "seed", "transforms", "depth", "probability")  # of a recipe: a measure sets them itself
OnStep = Callable[[dict[str, Any]], bool | None]
Watch = Callable[[str], AbstractContextManager[OnStep | None]]


@dataclass(frozen=True, eq=False)
class Measured:
    """What a measure came to: the predictions of the baseline and of each transform, and what they were made with."""

    settings: Mapping[str, Any]
    seeds: Sequence[int]
    classes: Sequence[str]
    predictions: Mapping[str, Predictions]


def measurable() -> tuple[str, ...]:
    """Return the transforms that can be measured: all that keep the label of an image as it is."""
    return tuple(name for name, transform in TRANSFORMS.items() if not transform.mixes and name != "identity")


def configurations(recipe: Recipe, transforms: Iterable[str], probability: float) -> dict[str, Recipe]:
    """Return the recipe of the baseline and of each transform alone, at levels uniform over the paper's signed range."""
    if not 0 < probability <= 1:
        raise ValueError(f"probability must lie in (0, 1], got {probability}")
    found = {BASELINE: replace(recipe, policy="none", transforms="paper16", depth=1, probability=probability)}
    for name in transforms:
        if find(name).mixes:
            others = ", ".join(measurable())
            raise ValueError(f"{name!r} mixes labels: only transforms that keep an image's label are measured ({others})")
        found[name] = replace(recipe, policy="random", transforms=name, depth=1, probability=probability)
    if len(found) == 1:
        raise ValueError("there is no transform to measure")
    return found


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
    """Train every seed of the baseline and of each transform alone, and return what they predict for the test split.

    What a finished model predicts is a file in the folder, so the same call goes on where one was stopped, and more transforms
    and seeds may be asked of the same folder. Perceptrons train as one batched model; others one after another, or `jobs` at a
    time with a thread each. With `shared_batches` all seeds see the images and transforms of seed 0. `watch` is
    asked, with the title of what begins, for the `on_step` that shows its progress and may stop it.
    """
    asked = list(seeds)
    if len(asked) < 2 or len(set(asked)) < len(asked):
        raise ValueError(f"a measure needs at least 2 different seeds, got {asked}: one model alone cannot disagree")
    recipes = configurations(recipe, transforms, probability)
    if shared_batches and not is_batchable(recipes[BASELINE]):
        raise ValueError(f"shared batches need an mlp without validation images, got {recipe.model}")
    data = load(recipe.data, size=recipe.size)
    settings = _settings(recipes[BASELINE], data, torch.device(device), shared_batches)
    folder = _Folder(out, settings, len(data.test), len(data.classes))
    single: list[tuple[str, int]] = []
    for name, own in recipes.items():
        missing = [seed for seed in asked if not folder.has(name, seed)]
        if not is_batchable(own):
            single += [(name, seed) for seed in missing]
            continue
        at_once = members_at_once(own, data.train.shape)
        for some in (missing[i : i + at_once] for i in range(0, len(missing), at_once)):
            with watch(f"{name}, {len(some)} seeds") as on_step:
                shared = 0 if shared_batches else None
                _run_together(folder, name, own, some, data, device=device, shared=shared, on_step=on_step)
    tasks = {(name, seed): replace(recipes[name], seed=seed) for name, seed in single}
    if jobs > 1 and len(tasks) > 1:
        with watch(f"{jobs} runs at a time") as on_step:
            _run_side_by_side(folder, tasks, str(device), jobs, on_step)
    else:
        for (name, seed), own in tasks.items():
            with watch(f"{name}, seed {seed}") as on_step:
                _run_alone(folder, name, own, str(device), data, on_step)
    found = {name: Predictions(torch.stack([folder.read(name, seed) for seed in asked]), data.test.labels) for name in recipes}
    return Measured(settings, asked, data.classes, found)


class _Folder:
    """Where the predictions of finished models are, a file each, whole or not there."""

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

    def running(self, name: str, seed: int) -> Path:
        return self.out / "running" / f"{name}-{seed}"

    def has(self, name: str, seed: int) -> bool:
        return self.path(name, seed).exists()

    def read(self, name: str, seed: int) -> Tensor:
        path = self.path(name, seed)
        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(f"{path}: damaged ({error}); remove it and it is made again") from None
        fits = array.dtype == np.int64 and array.shape == (self.samples,)
        if not fits or array.min() < 0 or array.max() >= self.classes:
            raise ValueError(f"{path}: not the classes of {self.samples} samples; remove it and it is made again")
        return torch.from_numpy(array)

    def write(self, name: str, seed: int, classes: Tensor) -> None:
        def write(partial: Path) -> None:
            with open(partial, "wb") as file:
                np.save(file, classes.numpy(), allow_pickle=False)

        write_whole(self.path(name, seed), write)
        shutil.rmtree(self.running(name, seed), ignore_errors=True)


def _settings(recipe: Recipe, data: Data, device: torch.device, shared_batches: bool) -> dict[str, Any]:
    """Return everything that decides a model's predictions but its transform and its seed."""
    kept = {key: value for key, value in asdict(recipe).items() if key not in ("policy", "seed", "transforms")}
    about = {"train": _fingerprint(data.train), "test": _fingerprint(data.test)}
    return kept | {"shared_batches": shared_batches, "device": device.type} | about


def _fingerprint(split: Split | Files) -> str:
    digest = hashlib.blake2b(split.labels.numpy().tobytes(), digest_size=8)
    digest.update(split.images.numpy().tobytes() if isinstance(split, Split) else "\0".join(map(str, split.paths)).encode())
    return f"{len(split)} images, {digest.hexdigest()}"


def _same_settings(path: Path, settings: Mapping[str, Any]) -> None:
    try:
        stored = json.loads(path.read_text())
        different = [key for key in dict.fromkeys([*stored, *settings]) if stored.get(key) != settings.get(key)]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not the settings of a measure ({error})") from None
    if different:
        shown = ", ".join(f"{key} {stored.get(key)!r} there, {settings.get(key)!r} asked" for key in different)
        raise ValueError(f"{path.parent}: a measure of other settings ({shown})")


def _run_together(
    folder: _Folder,
    name: str,
    recipe: Recipe,
    seeds: Sequence[int],
    data: Data,
    *,
    device: str | torch.device,
    shared: int | None,
    on_step: OnStep | None,
) -> None:
    """Train seeds as one model, and keep what each predicts."""
    try:
        model, last = train_together(recipe, seeds, data=data, device=device, shared=shared, on_step=on_step)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    classes = predict(model, data.test, last, device).argmax(2)
    for i, seed in enumerate(seeds):
        folder.write(name, seed, classes[:, i].contiguous())


def _run_alone(folder: _Folder, name: str, recipe: Recipe, device: str, data: Data | None, on_step: OnStep | None) -> None:
    """Train one model, or go on with it, keep what it predicts, and let go of its checkpoints."""
    running = folder.running(name, recipe.seed)
    try:
        train(recipe, out=running, data=data, device=device, on_step=on_step)
    except ValueError as error:
        raise ValueError(f"{name}, seed {recipe.seed}: {error}") from None
    run, data = load_run(running)
    folder.write(name, recipe.seed, predict(run.model.to(device), data.test, run.last, device).argmax(1))


def _run_side_by_side(
    folder: _Folder, tasks: Mapping[tuple[str, int], Recipe], device: str, jobs: int, on_step: OnStep | None
) -> None:
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
