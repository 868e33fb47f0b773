"""Which strength is right, and which signal of the training tells? Fixed strengths in many settings, on a GPU.

    OUTSPAN_DATA=folder OUTSPAN_PACKAGES=folder python benchmarks/strengths.py --prepare payload      # packs the data
    PYTHONPATH=src python3 benchmarks/strengths.py payload --processes 14 --seconds 500 --out rows.jsonl

Every run is one of `auto` with some of its decisions fixed: the strength, or whether crops and flips are used. A row has the
accuracies after the last step, and what the run shows on the way: how well the model fits samples without transforms (as `auto`
estimates it, and exactly), and how well it fits validation samples. Runs have equal steps, not equal time. Several processes
share the GPU, best under CUDA MPS. Rows that are in the file are not measured again.
"""

import argparse
import json
import queue
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from image_changes import Change, brightness_is_class, color_is_class, grey, orientation_is_class, wrong_labels
from torch import Tensor, multiprocessing

from outspan.config import default_recipe
from outspan.data.dataset import Data
from outspan.data.splits import InMemory
from outspan.policies import auto, trial
from outspan.policies.auto import Auto
from outspan.policies.fits import NAMES, Estimate
from outspan.policies.plain import Plain
from outspan.policies.proposals import natural
from outspan.policies.trial import Trial
from outspan.training.logits import accuracy, compute_logits
from outspan.training.run import Run
from outspan.training.setup import Options, build_setup

FINISH = 0.1
LOOKS = (0.1, 0.2, 0.3, 0.5, 0.7)  # fractions of the run at which train and validation samples are compared
LOOKED_AT = 2_000  # samples of each, at most
SHORT, LONG = (6, 12, 25, 50, 100), (50, 100, 200, 400)


@dataclass(frozen=True)
class Setting:
    """Images of a packed set, a change of them, a model and the numbers of epochs."""

    pack: str
    count: int | None = None  # of train images
    change: Change | None = None
    model: str = "convnet"
    epochs: tuple[int, ...] = SHORT
    recipe: dict[str, Any] = field(default_factory=dict)
    train_only: bool = False  # change the train images alone


_SLOW = {"lr": 0.01}
SETTINGS = {
    "digits, 500": Setting("mnist", 500, epochs=LONG),
    "digits, 2,000": Setting("mnist", 2_000),
    "digits, 8,000": Setting("mnist", 8_000, epochs=(3, 6, 12, 25, 50)),
    "digits, 5,000, MLP": Setting("mnist", 5_000, model="mlp"),
    "orientation": Setting("mnist", 5_000, orientation_is_class),
    "photos, 500": Setting("cifar10", 500, epochs=LONG),
    "photos": Setting("cifar10", 5_000),
    "photos, MLP": Setting("cifar10", 5_000, model="mlp", recipe=_SLOW),
    "photos, grey": Setting("cifar10", 5_000, grey),
    "photos, wrong labels": Setting("cifar10", 5_000, wrong_labels, train_only=True),
    "brightness": Setting("cifar10", 5_000, brightness_is_class, epochs=(6, 12, 25, 50)),
    "color": Setting("cifar10", 5_000, color_is_class, epochs=(6, 12, 25, 50)),
    "letters": Setting("letters", epochs=(3, 6, 12, 25, 50)),
    "letters, MLP": Setting("letters", model="mlp"),
    "emoji": Setting("emoji"),
    "emoji, MLP": Setting("emoji", model="mlp", recipe=_SLOW),
    # Not used to design auto.
    "icons": Setting("icons", epochs=(12, 25, 50, 100, 200)),
    "icons, MLP": Setting("icons", model="mlp", epochs=(12, 25, 50, 100, 200), recipe=_SLOW),
    "spectrograms": Setting("spectrograms"),
    "spectrograms, MLP": Setting("spectrograms", model="mlp"),
    "textures": Setting("textures"),
    "dots": Setting("dots"),
    "small digits": Setting("small-digits", epochs=(12, 25, 50, 100, 200)),
}
JUDGES = tuple(SETTINGS)[-7:]


@dataclass(frozen=True)
class Variant:
    """What differs from the policy `auto`."""

    strength: float | None = None  # fixed
    weak: str | None = None  # the weak transforms that are used; "try" keeps their trial going for the whole run
    recipe: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)  # of the modules of auto
    slope: float = 0.0  # the strength changes by this factor from the start to the end of the run; its mean stays
    mixed: float = 0.0  # fraction of the samples that are mixed, at least, from 25 to 50 epochs on


_LOW = (4.0, 100.0, 200.0, 400.0), (0.0, 1.0, 1.0, 2.0)
_EPOCHS = (5, 6, 8, 10, 12, 15, 20, 25, 35, 50, 70, 100, 200, 300, 400)
_BEFORE = _EPOCHS, tuple(np.interp(_EPOCHS, (5, 25, 100, 200, 400), (0, 0.4, 1, 1, 2)).tolist())
_TRIED = {"_PART": 0.25, "_EPOCHS": 1e9}


def _cropped(factor: float, **constants: Any) -> dict[str, Any]:
    """Return a constant factor of the strength with crops, and a trial that ends as it did before, with other constants."""
    return {"_CROPPED": ((1.0,), (factor,)), "_LONGEST": 0.0, **constants}


VARIANTS = {
    "0": Variant(0.0, ""),
    "0.25": Variant(0.25, ""),
    "0.5": Variant(0.5, ""),
    "1": Variant(1.0, ""),
    "2": Variant(2.0, ""),
    "0.25, crop": Variant(0.25, "random_crop"),
    "0.25, flip": Variant(0.25, "horizontal_flip"),
    "0.25, try": Variant(0.25, "try"),
    "auto": Variant(),
    "before": Variant(constants=_cropped(1.0, _STARTS=_BEFORE)),
    "log": Variant(constants=_cropped(1.0)),
    "log, all samples": Variant(constants=_cropped(1.0), recipe={"skip": 0.0}),
    "log, mixed": Variant(constants=_cropped(1.0), mixed=0.25),
    "log, good fit": Variant(constants=_cropped(1.0, _GOOD_FITS=((1.0,), (0.8,)))),
    "low": Variant(constants=_cropped(1.0, _STARTS=_LOW)),
    "tried 0.25": Variant(0.25),
    "tried 0.5": Variant(0.5),
    "log, cropped 0.6": Variant(constants=_cropped(0.6)),
    "log, cropped 0.4": Variant(constants=_cropped(0.4)),
    "limits 0.3": Variant(constants=_cropped(0.6, _HARMLESS=0.3, _HARMFUL=0.5)),
    "limits 0.15": Variant(constants=_cropped(0.6, _HARMLESS=0.15, _HARMFUL=0.3)),
    "depth 1": Variant(constants=_cropped(0.6), recipe={"depth": 1}),
    "rising": Variant(constants=_cropped(0.6), slope=1.5),
    "falling": Variant(constants=_cropped(0.6), slope=-1.5),
    "trial 0.25": Variant(constants=_cropped(0.6, **_TRIED)),
    "confidence 0.5": Variant(constants=_cropped(0.6), recipe={"by_confidence": 0.5}),
    "skip 0.7": Variant(constants=_cropped(0.6), recipe={"skip": 0.7}),
    "low, cropped 0.6": Variant(constants=_cropped(0.6, _STARTS=_LOW)),
    "none": Variant(recipe={"policy": "none"}),
    "baseline": Variant(recipe={"policy": "baseline"}),
    "random": Variant(recipe={"policy": "random"}),
    "randaugment": Variant(recipe={"policy": "randaugment"}),
    "trivialaugment": Variant(recipe={"policy": "trivialaugment"}),
    "natural": Variant(recipe={"policy": "random"}),  # the transforms of auto at strength 1
}


def module_of(key: str) -> ModuleType:
    """Return the module that has a constant."""
    return auto if hasattr(auto, key) else trial


ORIGINAL = {key: getattr(module_of(key), key) for variant in VARIANTS.values() for key in variant.constants}


class Watched(Auto):
    """`auto` as a variant, which records what it sees after each round."""

    variant: Variant

    def begin(self, variant: Variant) -> None:
        """Fix what a variant fixes."""
        self.trace: list[list[float]] = []
        self.drops: list[list[float]] = []
        self.variant, self.now = variant, 0.0
        if variant.strength is not None:
            self.adapted = variant.strength
        if variant.weak not in (None, "try"):
            self.safe = {name: float(name == variant.weak) for name in self.safe}

    @property
    def _strength(self) -> float:
        return (1 + self.variant.slope * (self.now - 0.5)) * super()._strength

    def __call__(self, *arguments: Any, step: int, **options: Any) -> Any:
        """Draw with the strength of this step."""
        self.now = step / self._total
        return super().__call__(*arguments, step=step, **options)

    @property
    def _mixed(self) -> float:
        least = self.variant.mixed * float(np.interp(self.epochs, (25.0, 50.0), (0.0, 1.0)))
        return max(least, super()._mixed)

    @property
    def _trial(self) -> Trial:
        return replace(super()._trial, epochs=1e-9, steps=10**9) if self.variant.weak == "try" else super()._trial

    def _adapt(self, estimate: Estimate, done: float) -> None:
        super()._adapt(estimate, done)
        if self.variant.strength is not None:
            self.adapted = self.variant.strength
        seen = (done, estimate.fit, estimate.learned, estimate.chance, self.evenness, self.adapted)
        self.trace.append([round(value, 4) for value in seen])
        if self.variant.weak == "try":
            indices = [NAMES.index(name) for name in self.safe]
            both = (value for index in indices for value in (estimate.drops[index], estimate.errors[index]))
            self.drops.append([round(float(value), 4) for value in (done, *both)])


@lru_cache(maxsize=64)
def read_pack(folder: Path, name: str) -> dict[str, Tensor]:
    """Return the arrays of a packed set."""
    with np.load(folder / f"{name}.npz") as file:
        return {key: torch.from_numpy(file[key]) for key in file.files}


@lru_cache(maxsize=64)
def make_data(folder: Path, name: str) -> Data:
    """Return the data of a setting."""
    setting, splits = SETTINGS[name], {}
    pack = read_pack(folder, setting.pack)
    for seed, split in enumerate(("train", "validation", "test")):
        images, labels = pack[f"{split}_images"], pack[f"{split}_labels"].long()
        if split == "train":
            images, labels = images[: setting.count], labels[: setting.count]
        if setting.change is not None and (split == "train" or not setting.train_only):
            images, labels = setting.change(images, labels, torch.Generator().manual_seed(seed))
        splits[split] = InMemory(images.contiguous(), labels)
    classes = 1 + int(max(int(split.labels.max()) for split in splits.values()))
    return Data(name, splits["train"], splits["test"], tuple(map(str, range(classes))), splits["validation"])


def looks(run: Run, data: Data) -> list[float]:
    """Return mean probability of the label for train and validation samples, in evaluation mode."""
    values = []
    for split in (run.setup.splits.train, run.setup.splits.validation):
        assert split is not None
        part = split.take(torch.arange(min(LOOKED_AT, len(split))))
        logits = compute_logits(run.setup.eval_model, part, run.setup.splits.preprocess, run.device).float()
        labels = part.labels.to(logits.device)
        values.append(round(float(logits.softmax(1).gather(1, labels[:, None]).mean()), 4))
    return values


def train_once(folder: Path, name: str, epochs: int, variant: str, seed: int, device: torch.device) -> dict[str, Any]:
    """Train once and return a row. The constants of a variant stay in place until the next run of the process."""
    for key, value in {**ORIGINAL, **VARIANTS[variant].constants}.items():
        setattr(module_of(key), key, value)
    setting, data = SETTINGS[name], make_data(folder, name)
    recipe = replace(default_recipe("images"), model=setting.model, finish=FINISH, seed=seed, epochs=epochs)
    recipe = replace(recipe, **{"policy": "auto", **setting.recipe, **VARIANTS[variant].recipe})
    setup = build_setup(recipe, data, Options(device))
    policy = setup.policy
    if isinstance(policy, Auto):
        policy.__class__ = Watched
        policy.begin(VARIANTS[variant])
    elif variant == "natural":
        assert isinstance(policy, Plain)
        setup = replace(setup, policy=replace(policy, propose=natural()))
    run, began, seen = Run(setup, Path("unused"), device), time.perf_counter(), []
    marks = {max(1, round(look * run.steps)): look for look in LOOKS}
    for epoch in range(run.epochs):
        for inputs, labels in run.batches(epoch, 0):
            run.learn(run.augment(inputs, labels))
            if run.step in marks and VARIANTS[variant].strength is not None:
                seen.append([marks[run.step], *looks(run, data)])
                run.setup.learner.model.train()
    row: dict[str, Any] = {"setting": name, "epochs": epochs, "variant": variant, "seed": seed, "steps": run.steps}
    row |= {"seconds": round(time.perf_counter() - began, 2), "looks": seen}
    for split in ("validation", "test"):
        row[split] = round(accuracy(setup.eval_model, getattr(setup.splits, split), setup.splits.preprocess, device), 4)
    if isinstance(policy, Watched):
        rare = {name: round(value, 2) for name, value in policy.metrics().items() if name.startswith("weight") and value < 0.9}
        row |= {"trace": policy.trace[:: max(1, len(policy.trace) // 10)], "weights": rare, "decided": policy.describe()}
        row |= {"drops": policy.drops[:: max(1, len(policy.drops) // 16)]} if policy.drops else {}
    return row


def work(folder: Path, tasks: Any, results: Any, end: float) -> None:
    """Take tasks until none is left or the time is over."""
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    while time.time() < end:
        try:
            task = tasks.get(timeout=1)
        except queue.Empty:
            break
        try:
            results.put(train_once(folder, *task, device))
        except Exception:  # one run must not end the others
            results.put({"task": task, "error": traceback.format_exc()})
    results.put(None)


def make_tasks(names: list[str], variants: list[str], positions: list[int], seeds: int) -> Iterator[tuple[str, int, str, int]]:
    """Yield all runs, seed by seed."""
    for seed in range(seeds):
        for position in positions:
            for name in names:
                epochs = SETTINGS[name].epochs
                if position < len(epochs):
                    yield from ((name, epochs[position], variant, seed) for variant in variants)


def main() -> None:
    """Pack the data, or train and write rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=[n for n in SETTINGS if n not in JUDGES])
    parser.add_argument("--positions", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="of the numbers of epochs")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--done", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=Path("rows.jsonl"))
    options = parser.parse_args()
    if options.prepare:
        from strength_data import pack_all

        pack_all(options.folder)
        return
    done = set()
    for path in [*options.done, options.out]:
        for line in path.read_text().splitlines() if path.exists() else []:
            row = json.loads(line)
            done.add((row.get("setting"), row.get("epochs"), row.get("variant"), row.get("seed")))
    context, end = multiprocessing.get_context("spawn"), time.time() + options.seconds
    tasks, results = context.Queue(), context.Queue()
    todo = [
        task for task in make_tasks(options.settings, options.variants, options.positions, options.seeds) if task not in done
    ]
    for task in todo:
        tasks.put(task)
    arguments = (options.folder, tasks, results, end)
    processes = [context.Process(target=work, args=arguments, daemon=True) for _ in range(options.processes)]
    for process in processes:
        process.start()
    active, count, began = len(processes), 0, time.time()
    with options.out.open("a") as file:
        while active:
            row = results.get()
            if row is None:
                active -= 1
                continue
            count += 1
            if "error" in row:
                print(row["task"], row["error"], flush=True)
                continue
            file.write(json.dumps(row) + "\n")
            file.flush()
            if count % 100 == 0 or count < 3:
                print(f"{count} of {len(todo)} after {time.time() - began:.0f} s; last {row['seconds']} s", flush=True)
    print(f"{count} of {len(todo)} runs in {time.time() - began:.0f} s")
    tasks.cancel_join_thread()


if __name__ == "__main__":
    main()
