"""Is the policy `auto` ever a loss? Many settings that differ in kind, all policies for the same time, several seeds.

    OUTSPAN_DATA=folder python benchmarks/safety.py --seconds 6 12 --seeds 3 --jobs 2

Needs MNIST and CIFAR-10 in OUTSPAN_DATA. On the CPU every run has one thread, and the seconds are CPU seconds of that thread,
so that other work on the machine does not count. First the time of a step of each policy is measured, in turns. Then every
policy gets as many steps as fit into the time. All policies have the same schedule, the same default transforms and the same
`finish`. Runs that are already in the result file are not repeated.

`--table` prints, for each setting and time, the plain policy with the best mean *validation* accuracy, and the difference
between auto and this policy in *test* accuracy, paired by seed. Validation images are train images that no run trains on.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from machine import ROOT, machine
from torch import Tensor

from outspan import load_data
from outspan.config import Recipe
from outspan.data.dataset import Data
from outspan.data.splits import InMemory
from outspan.files import commit, write_json
from outspan.policies.plain import Plain
from outspan.policies.proposals import natural
from outspan.training.logits import accuracy
from outspan.training.pool import run_all
from outspan.training.run import Run
from outspan.training.setup import Options, build_setup

RESULT = ROOT / "results" / "safety.json"
FINISH = 0.1
Images = tuple[Tensor, Tensor]  # uint8 [N, C, H, W] and labels [N]

# The policies, as changes of a recipe. `auto` is compared with the best of the plain ones.
POLICIES = {
    "none": {"policy": "none"},
    "baseline": {"policy": "baseline"},
    "random": {"policy": "random"},
    "randaugment": {"policy": "randaugment"},
    "trivialaugment": {"policy": "trivialaugment"},
    "natural": {"policy": "random"},  # the transforms of auto at strength 1, see make_run
    "auto": {"policy": "auto"},
    "auto-all-samples": {"policy": "auto", "skip": 0.0},
    "random-hard-samples": {"policy": "random", "skip": 0.5},
    "uncertain-max": {"policy": "uncertain"},
    "uncertain-proportional": {"policy": "uncertain", "select": "proportional"},
}
PLAIN = ("none", "baseline", "random", "randaugment", "trivialaugment", "natural")
FIRST_TIME_ONLY = ("auto-all-samples", "random-hard-samples", "uncertain-max", "uncertain-proportional")


@dataclass(frozen=True)
class Setting:
    """A data set, a model and the rest of a recipe."""

    data: str  # "mnist" or "cifar10"
    model: str
    images: int | None = None  # number of train images; None: all but the validation images
    change: Callable[[Tensor, Tensor, torch.Generator], Images] | None = None  # of all images
    change_train: Callable[[Tensor, Tensor, torch.Generator], Images] | None = None  # of train images alone
    defaults: str = "none"
    lr: float = 0.1


def color_is_class(images: Tensor, labels: Tensor, generator: torch.Generator) -> Images:
    """Make grey images of one of six hues; the hue is the class."""
    hues = torch.tensor([[1, 0.4, 0.4], [1, 1, 0.4], [0.4, 1, 0.4], [0.4, 1, 1], [0.4, 0.4, 1], [1, 0.4, 1]])
    labels = torch.randint(0, 6, (len(images),), generator=generator)
    noise = 0.5 * (torch.rand(len(images), 3, generator=generator) - 0.5)
    tints = (hues[labels] + noise).clamp(0, 1).view(-1, 3, 1, 1)
    return (images.float().mean(1, keepdim=True) * tints).to(torch.uint8), labels


def brightness_is_class(images: Tensor, labels: Tensor, generator: torch.Generator) -> Images:
    """Darken images by one of four factors; the factor is the class."""
    labels = torch.randint(0, 4, (len(images),), generator=generator)
    factors = torch.tensor([0.35, 0.55, 0.8, 1.0])[labels] + 0.12 * (torch.rand(len(images), generator=generator) - 0.5)
    return (images.float() * factors.view(-1, 1, 1, 1)).clamp(0, 255).to(torch.uint8), labels


def orientation_is_class(images: Tensor, labels: Tensor, generator: torch.Generator) -> Images:
    """Turn images by 0, 90, 180 or 270 degrees; the angle is the class."""
    labels = torch.randint(0, 4, (len(images),), generator=generator)
    turned = torch.stack([torch.rot90(images, turns, (2, 3)) for turns in range(4)])
    return turned[labels, torch.arange(len(images))], labels


def wrong_labels(images: Tensor, labels: Tensor, generator: torch.Generator) -> Images:
    """Give a fifth of the images a random label."""
    wrong = torch.rand(len(labels), generator=generator) < 0.2
    return images, torch.where(wrong, torch.randint(0, 10, (len(labels),), generator=generator), labels)


def imbalanced(images: Tensor, labels: Tensor, generator: torch.Generator) -> Images:
    """Keep all images of class 0, and of each further class 0.6 times as many as of the class before."""
    kept = torch.rand(len(labels), generator=generator) < 0.6**labels
    return images[kept], labels[kept]


SETTINGS = {
    "digits, 500 images": Setting("mnist", "convnet", 500),
    "digits, 5,000 images": Setting("mnist", "convnet", 5_000),
    "digits, 5,000 images, MLP": Setting("mnist", "mlp", 5_000),
    "digits, orientation is the class": Setting("mnist", "convnet", 5_000, orientation_is_class),
    "photos, 500 images": Setting("cifar10", "convnet", 500, defaults="flip"),
    "photos, 5,000 images": Setting("cifar10", "convnet", 5_000, defaults="flip"),
    "photos, all images": Setting("cifar10", "convnet", defaults="flip"),
    "photos, 5,000 images, MLP": Setting("cifar10", "mlp", 5_000, defaults="flip", lr=0.01),
    "photos, 20 % wrong labels": Setting("cifar10", "convnet", 5_000, change_train=wrong_labels, defaults="flip"),
    "photos, imbalanced": Setting("cifar10", "convnet", 10_000, change_train=imbalanced, defaults="flip"),
    "photos, color is the class": Setting("cifar10", "convnet", 5_000, color_is_class, defaults="flip"),
    "photos, brightness is the class": Setting("cifar10", "convnet", 5_000, brightness_is_class, defaults="flip"),
    "photos, 500 images, ResNet-18": Setting("cifar10", "resnet-18", 500, defaults="flip"),
}


def make_data(setting: Setting) -> Data:
    """Return the data of a setting. The last 5,000 train images are for validation."""
    data = load_data(setting.data)
    train, test = data.train, data.test
    assert isinstance(train, InMemory)
    assert isinstance(test, InMemory)
    splits = {
        "train": (train.images[: setting.images or -5_000], train.labels[: setting.images or -5_000]),
        "validation": (train.images[-5_000:], train.labels[-5_000:]),
        "test": (test.images, test.labels),
    }
    for seed, (name, (images, labels)) in enumerate(splits.items()):
        generator = torch.Generator().manual_seed(seed)
        for change in (setting.change, setting.change_train if name == "train" else None):
            if change is not None:
                images, labels = change(images, labels, generator)
        splits[name] = images.contiguous(), labels
    made = {name: InMemory(*split) for name, split in splits.items()}
    classes = 1 + int(made["test"].labels.max())
    return Data(setting.data, made["train"], made["test"], tuple(map(str, range(classes))), made["validation"])


def make_run(setting: Setting, policy: str, data: Data, steps: int, seed: int = 0) -> Run:
    """Return a run that writes nothing."""
    recipe = Recipe(model=setting.model, lr=setting.lr, defaults=setting.defaults, finish=FINISH, seed=seed, steps=steps)
    recipe = replace(recipe, **POLICIES[policy])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    setup = build_setup(recipe, data, Options(device))
    if policy == "natural":
        plain = setup.policy
        assert isinstance(plain, Plain)
        setup = replace(setup, policy=replace(plain, propose=natural()))
    return Run(setup, Path("unused"), device)


def clock(device: torch.device) -> float:
    """Return CPU seconds, or on a GPU seconds after it has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def steps_of(run: Run) -> Iterator[None]:
    """Take the steps of a run, one at a time."""
    for epoch in range(run.epochs):
        for inputs, labels in run.batches(epoch, 0):
            run.learn(run.augment(inputs, labels))
            yield


def time_steps(name: str, seconds: float) -> dict[str, float]:
    """Return the seconds of a step of each policy, for runs of this time, since what auto does depends on the length."""
    torch.set_num_threads(1)
    data = make_data(SETTINGS[name])
    step = time_turns({"none": make_run(SETTINGS[name], "none", data, 10_000)})["none"]
    length = max(200, round(seconds / step))
    return time_turns({policy: make_run(SETTINGS[name], policy, data, length) for policy in POLICIES})


def time_turns(runs: dict[str, Run]) -> dict[str, float]:
    """Return the seconds of a step of each run: the median of 7 turns of 20 steps, after 20 steps of warm-up."""
    steps = {policy: steps_of(run) for policy, run in runs.items()}
    turns: dict[str, list[float]] = {policy: [] for policy in runs}
    for _ in range(8):
        for policy, run in runs.items():
            began = clock(run.device)
            for _ in range(20):
                next(steps[policy])
            turns[policy].append((clock(run.device) - began) / 20)
    return {policy: statistics.median(times[1:]) for policy, times in turns.items()}


def train_once(name: str, policy: str, seed: int, steps: int, *, on_step: object = None) -> dict[str, float]:
    """Train, and return the validation and test accuracy after the last step."""
    torch.set_num_threads(1)
    data = make_data(SETTINGS[name])
    run = make_run(SETTINGS[name], policy, data, steps, seed)
    began = clock(run.device)
    for _ in steps_of(run):
        pass
    seconds = clock(run.device) - began
    splits = run.setup.splits
    row = {"epochs": round(steps / run.epoch_steps, 2), "seconds": round(seconds, 2)}
    for split in ("validation", "test"):
        row[split] = round(accuracy(run.setup.eval_model, getattr(splits, split), splits.preprocess, run.device), 4)
    return row


def measure(seconds: list[float], seeds: int, jobs: int, names: list[str], out: Path) -> None:
    """Measure what is missing in the result file, setting by setting."""
    stored = json.loads(out.read_text()) if out.exists() else {"machine": machine(), "step_seconds": {}, "rows": []}
    done = {(row["setting"], row["policy"], row["budget"], row["seed"]) for row in stored["rows"]}
    for name in names:
        if name not in stored["step_seconds"]:
            stored["step_seconds"][name] = {policy: round(value, 6) for policy, value in time_steps(name, min(seconds)).items()}
        tasks = {}
        for budget in seconds:
            for policy, step in stored["step_seconds"][name].items():
                if budget > min(seconds) and policy in FIRST_TIME_ONLY:
                    continue
                for seed in range(seeds):
                    steps = max(1, round(budget / step))
                    if (name, policy, budget, seed) not in done:
                        tasks[policy, budget, seed, steps] = partial(train_once, name, policy, seed, steps)
        results = run_all([(f"{name}: {key}", task) for key, task in tasks.items()], jobs=jobs)
        for (policy, budget, seed, steps), row in zip(tasks, results, strict=True):
            key = {"setting": name, "policy": policy, "budget": budget, "seed": seed, "steps": steps}
            stored["rows"].append(key | row | {"commit": commit()})
        write_json(out, stored)
        print(*table(stored, [name]), sep="\n", flush=True)


def table(stored: dict, names: list[str]) -> Iterator[str]:
    """Yield a line per setting and time: the best plain policy by validation, and what auto gains over it on test."""
    for name in names:
        rows = [row for row in stored["rows"] if row["setting"] == name]
        for budget in sorted({row["budget"] for row in rows}):
            by_policy = {
                policy: [row for row in rows if (row["policy"], row["budget"]) == (policy, budget)] for policy in POLICIES
            }
            by_policy = {policy: found for policy, found in by_policy.items() if found}
            validation = {policy: statistics.fmean(row["validation"] for row in by_policy[policy]) for policy in PLAIN}
            best = max(validation, key=lambda policy: validation[policy])
            tests = {policy: [row["test"] for row in found] for policy, found in by_policy.items()}
            gains = [100 * (a - b) for a, b in zip(tests["auto"], tests[best], strict=True)]
            error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
            means = "  ".join(f"{policy} {100 * statistics.fmean(values):.2f}" for policy, values in tests.items())
            epochs = f"{by_policy['none'][0]['epochs']:g} epochs of none"
            yield f"{name}, {budget:g} s ({epochs}): auto - {best} = {statistics.fmean(gains):+.2f} ± {error:.2f} | {means}"


def main() -> None:
    """Measure and print, or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, nargs="+", default=[6.0, 12.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        print(*table(json.loads(options.out.read_text()), options.settings), sep="\n")
    else:
        measure(options.seconds, options.seeds, options.jobs, options.settings, options.out)


if __name__ == "__main__":
    main()
