"""Which single transforms help, and does the training show it? Settings of safety.py, at equal steps, on one CPU core.

    OUTSPAN_DATA=folder python benchmarks/single_transforms.py --seeds 2
    OUTSPAN_DATA=folder OUTSPAN_PACKAGES=folder python benchmarks/single_transforms.py --sets --seeds 2

First every transform of `auto` trains a model alone: each image gets it, at its level of strength 1. The gain is the test
accuracy minus that of none. Then, in a run with two random transforms per image, two signals are measured several times for
each transform T:

- the loss of fit: how much lower the mean probability of the label is for samples with T, relative to that without
  transforms;
- the alignment: the dot product of the gradient for train samples with T and the gradient for validation samples without
  transforms, relative to the same for train samples without transforms. A step along a gradient with a negative alignment
  makes the model worse on validation samples.

With --sets, `auto` trains with sets of transforms that leave some of them out, in other settings.

Writes results/single-transforms.json, and prints the rank correlation of both signals with the gains. Runs that are in the
file are not repeated.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import ROOT, machine
from safety import make_run, steps_of
from torch import Tensor

from outspan.files import write_json
from outspan.policies.proposals import any_of, natural, natural_names, over_range
from outspan.training.logits import accuracy
from outspan.training.run import Run
from outspan.transforms.table import PAPER_16

SETTINGS = {"digits, orientation is the class": 2140, "digits, 5,000 images": 2140}  # and the number of steps
NAMES = natural_names(PAPER_16)
TONES = ("solarize", "equalize", "auto_contrast", "posterize")
SETS = {
    "all": NAMES,
    "without solarize": tuple(name for name in NAMES if name != "solarize"),
    "without four of tone": tuple(name for name in NAMES if name not in TONES),
    "geometric and cutout": ("rotate", "shear_x", "shear_y", "translate_x", "translate_y", "cutout"),
}
SETTINGS_OF_SETS = {
    "digits, orientation is the class": 1960,
    "digits, 5,000 images": 1000,
    "photos, 5,000 images": 1500,
    "letters": 1200,
    "emoji": 900,
}
LOOKS = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8)  # fractions of the run
TRAIN, HELD_OUT, BATCH = 750, 2_000, 250  # samples of a look


def proposal(name: str) -> Any:
    """Return the transform at levels up to half of the paper's range, as in `natural`."""
    step = over_range(name)
    return any_of([replace(step, low=step.low / 2, high=step.high / 2)], 1)


def train(run: Run) -> dict[str, float]:
    """Train, and return the accuracies after the last step."""
    for _ in steps_of(run):
        pass
    splits = run.setup.splits
    return {
        split: round(accuracy(run.setup.eval_model, getattr(splits, split), splits.preprocess, run.device), 4)
        for split in ("validation", "test")
    }


def measure_gain(setting: str, name: str, seed: int, steps: int) -> dict[str, Any]:
    """Train with one transform alone, with none, or with the transforms of `auto` ("natural")."""
    run = make_run(setting, "none" if name == "none" else "natural", steps, seed)
    if name in NAMES:
        run.setup = replace(run.setup, policy=replace(run.setup.policy, propose=proposal(name)))
    return {"setting": setting, "transform": name, "seed": seed, "steps": steps, **train(run)}


def measure_set(setting: str, name: str, seed: int, steps: int) -> dict[str, Any]:
    """Train with `auto` and a set of transforms."""
    run = make_run(setting, "auto", steps, seed)
    run.setup.policy.propose = natural(2, transforms=SETS[name])
    return {"setting": setting, "set": name, "seed": seed, "steps": steps, **train(run)}


def look(run: Run, seed: int) -> dict[str, tuple[float, float]]:
    """Return the mean fit and the dot product of the gradients, for each transform and for none."""
    model, splits = run.state.model, run.setup.splits
    parameters, before = list(model.parameters()), {name: value.clone() for name, value in model.state_dict().items()}
    train, validation, preprocess = splits.train, splits.validation, splits.preprocess

    def gradient(images: Tensor, labels: Tensor, prepare: Callable[[Tensor], Tensor]) -> tuple[float, list[Tensor]]:
        total, fit, count = [torch.zeros_like(parameter) for parameter in parameters], 0.0, len(labels) // BATCH
        for part, of_part in zip(images.split(BATCH), labels.split(BATCH), strict=True):
            losses = torch.nn.functional.cross_entropy(model(prepare(part)), of_part, reduction="none")
            fit += float(torch.exp(-losses.detach()).mean()) / count
            for sum_, one in zip(total, torch.autograd.grad(losses.mean(), parameters), strict=True):
                sum_ += one / count
        return fit, total

    rows = torch.from_numpy(np.random.default_rng(seed).permutation(len(train))[:TRAIN])
    images, labels = train.images[rows], train.labels[rows]
    model.train()
    _, held_out = gradient(validation.images[:HELD_OUT], validation.labels[:HELD_OUT], preprocess)
    found = {}
    for name in ("none", *NAMES):
        draw = proposal(name) if name != "none" else None
        generator = np.random.default_rng(seed)

        def prepare(part: Tensor, draw: Any = draw, generator: np.random.Generator = generator) -> Tensor:
            return preprocess(part) if draw is None else preprocess.execute(part, draw(len(part), rng=generator))

        fit, own = gradient(images, labels, prepare)
        found[name] = fit, float(sum((a * b).sum() for a, b in zip(own, held_out, strict=True)))
    model.load_state_dict(before)  # BatchNorm has seen the samples
    return found


def measure_signals(setting: str, seed: int, steps: int) -> dict[str, Any]:
    """Return the loss of fit and the alignment of each transform, relative to none, at each look."""
    run = make_run(setting, "natural", steps, seed)
    marks = {round(fraction * steps) for fraction in LOOKS}
    signals: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
    for step, _ in enumerate(steps_of(run), 1):
        if step in marks:
            found = look(run, step)
            fit, dot = found["none"]
            for name in NAMES:
                signals[name].append((round(1 - found[name][0] / fit, 3), round(found[name][1] / dot, 3)))
    return {"setting": setting, "seed": seed, "steps": steps, "signals": signals}


def ranks(values: Sequence[float]) -> np.ndarray:
    """Return the rank of each value."""
    return np.argsort(np.argsort(values))


def describe(stored: dict[str, Any], setting: str) -> None:
    """Print the gain and the mean signals of each transform, and the rank correlations."""
    tests: dict[str, list[float]] = {}
    for row in stored["gains"]:
        if row["setting"] == setting:
            tests.setdefault(row["transform"], []).append(100 * row["test"])
    looks = [row["signals"] for row in stored["signals"] if row["setting"] == setting]
    none = statistics.fmean(tests["none"])
    gains = {name: statistics.fmean(tests[name]) - none for name in NAMES}
    lost, aligned = (
        {name: statistics.fmean(pair[i] for signals in looks for pair in signals[name]) for name in NAMES} for i in (0, 1)
    )
    print(f"{setting}: none {none:.2f}, natural {statistics.fmean(tests['natural']):.2f}")
    for name in sorted(NAMES, key=lambda name: -gains[name]):
        print(f"  {name:14} gain {gains[name]:+.2f}  loss of fit {lost[name]:+.3f}  alignment {aligned[name]:.2f}")
    for title, signal in (("loss of fit", lost), ("alignment", aligned)):
        correlation = np.corrcoef(ranks([gains[name] for name in NAMES]), ranks([signal[name] for name in NAMES]))[0, 1]
        print(f"  rank correlation of the gain with the {title}: {correlation:+.2f}")


def main() -> None:
    """Measure what is missing in the result file, write it, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--sets", action="store_true", help="only sets of transforms")
    parser.add_argument("--result", type=Path, default=ROOT / "results" / "single-transforms.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    stored = {"machine": machine(), "gains": [], "signals": [], "sets": []}
    if options.result.exists():
        stored = json.loads(options.result.read_text())
    if options.sets:
        done = {(row["setting"], row["set"], row["seed"]) for row in stored["sets"]}
        for seed in range(options.seeds):
            for key in ((setting, name, seed) for setting in SETTINGS_OF_SETS for name in SETS):
                if key not in done:
                    stored["sets"].append(measure_set(*key, SETTINGS_OF_SETS[key[0]]))
                    print(stored["sets"][-1], flush=True)
                    write_json(options.result, stored)
        return
    gains = {(row["setting"], row["transform"], row["seed"]) for row in stored["gains"]}
    signals = {(row["setting"], row["seed"]) for row in stored["signals"]}
    for setting in options.settings:
        for seed in range(options.seeds):
            if (setting, seed) not in signals:
                stored["signals"].append(measure_signals(setting, seed, SETTINGS[setting]))
                write_json(options.result, stored)
            for name in ("none", "natural", *NAMES):
                if (setting, name, seed) not in gains:
                    stored["gains"].append(measure_gain(setting, name, seed, SETTINGS[setting]))
                    write_json(options.result, stored)
        describe(stored, setting)


if __name__ == "__main__":
    main()
