"""The training cost of each method relative to RandAugment (Figure 5 of the paper), all in one process.

    python benchmarks/cost.py --out results/cost.json

Each method trains a Wide-ResNet-28-2 for one epoch per round on random images of CIFAR's size. This includes drawing,
transforming, scoring and training, and for the adversarial policy its own training. The methods take turns in every round;
the result is the median over rounds. On a GPU, CUDA graphs are used as in training.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gpu_steps import random_data
from machine import machine, wait

from outspan import rng
from outspan.config import Recipe, with_values
from outspan.data.sets import Data
from outspan.data.splits import InMemory
from outspan.policies.protocols import LearningPolicy
from outspan.policies.table import build_policy
from outspan.training.graphs import GraphModel
from outspan.training.setup import use_algorithms
from outspan.training.state import new_state
from outspan.training.step import Learner, take_step
from outspan.transforms.normalize import Normalize

REFERENCE = "randaugment"
# The settings of recipes/cifar10-wrn-28-2-*.toml, or the published settings for methods without a recipe.
METHODS: dict[str, dict[str, Any]] = {
    "none": {"policy": "none", "defaults": "none"},
    "baseline": {"policy": "baseline", "defaults": "none"},
    REFERENCE: {"policy": "randaugment", "depth": 3, "magnitude": 4.0},
    "trivialaugment": {"policy": "trivialaugment"},
    "uniformaugment": {"policy": "uniformaugment"},
    "autoaugment": {"policy": "autoaugment"},
    "fastautoaugment": {"policy": "fastautoaugment"},
    "pba": {"policy": "pba"},
    "augmix": {"policy": "augmix"},
    "mixup": {"policy": "mixup"},
    "cutmix": {"policy": "cutmix"},
    "random": {"policy": "random"},
    "uncertain, C=4, S=1": {"policy": "uncertain"},
    "uncertain, C=4, S=1, every second step": {"policy": "uncertain", "score_every": 2},
    "uncertain, C=8, S=4": {"policy": "uncertain", "candidates": 8, "keep": 4},
    "adversarial, M=8": {"policy": "adversarial"},
}
BARS = {"uncertain, C=4, S=1": 2.1, "uncertain, C=4, S=1, every second step": 1.5}
PAPER = {"adversarial, M=8": 8.0, "uncertain, C=4, S=1": 1.5}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="wide_resnet-28-2")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=98, help="steps per epoch; 98 batches of 512 images are CIFAR-10")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="methods, separated by semicolons; the reference is always included")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    names = [name.strip() for name in options.only.split(";")] if options.only else list(METHODS)
    names = list(dict.fromkeys([REFERENCE, *names]))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as folder:
        seconds = measure(names, options.model, options.batch, options.steps, options.rounds, device, Path(folder))
    ratios = {name: statistics.median(times) / statistics.median(seconds[REFERENCE]) for name, times in seconds.items()}
    result = {
        "machine": machine(),
        "what": f"{options.model}, batch {options.batch}, {options.steps} steps per turn, medians of {options.rounds} rounds",
        "ms_a_step": {name: 1000 * statistics.median(times) / options.steps for name, times in seconds.items()},
        f"of_{REFERENCE}": ratios,
        "bars": {name: {"at most": bar, "reached": ratios[name] <= bar} for name, bar in BARS.items() if name in ratios},
        "paper": PAPER,
        "rounds": {name: [1000 * passed / options.steps for passed in times] for name, times in seconds.items()},
    }
    for name, ratio in ratios.items():
        print(f"{name:40} {result['ms_a_step'][name]:8.2f} ms per step, {ratio:.2f} of {REFERENCE}")
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")


def measure(
    names: list[str], model: str, batch: int, steps: int, rounds: int, device: torch.device, folder: Path
) -> dict[str, list[float]]:
    """Return the seconds per turn by method, one value per round. The first round is a warm-up and not counted."""
    data = random_data(batch * steps)
    split = data.train.to(device)
    runs = {name: contestant(METHODS[name], model, batch, data, split, device, folder) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    with use_algorithms(deterministic=False):
        for turn in range(rounds + 1):
            for name, run in runs.items():
                wait(device)
                start = time.perf_counter()
                run(turn)
                wait(device)
                if turn:
                    seconds[name].append(time.perf_counter() - start)
    return seconds


def contestant(
    values: dict[str, Any], model: str, batch: int, data: Data, split: InMemory, device: torch.device, folder: Path
) -> Callable[[int], None]:
    """Return a function that trains a method for one epoch, as the training loop does."""
    changes = {"defaults": "cifar-cutout", **values, **published(values["policy"], folder)}
    recipe = with_values(Recipe(data="cifar10", model=model, batch=batch, epochs=60), changes)
    on_gpu = device.type == "cuda"
    state = new_state(recipe, data.train.shape, 10, device)
    learn = Learner(state.model, 0.0, graphs=on_gpu)
    net = GraphModel(state.model) if on_gpu else state.model
    preprocess = Normalize(
        (0.49, 0.48, 0.45), (0.25, 0.24, 0.26), torch.bfloat16 if on_gpu else torch.float32, channels_last=on_gpu
    )
    policy = build_policy(recipe, net, data, preprocess)

    def run(epoch: int) -> None:
        net.train()
        order = torch.from_numpy(rng.generator(0, "order", epoch).permutation(len(split)))
        for images, labels in split.batches(order.split(batch), device):
            losses = take_step(state, learn, recipe, policy(images, labels, step=state.step), 0.01)
            if isinstance(policy, LearningPolicy):
                policy.learn(losses, step=state.step)
            state.step += 1

    return run


def published(policy: str, folder: Path) -> dict[str, str]:
    """Write a policy file in the published format for policies that need one. Their cost does not depend on its content."""
    texts = {
        "fastautoaugment": "[[['Contrast', 0.8, 0.5], ['TranslateX', 0.4, 0.4]], [['Rotate', 0.7, 0.3], ['Color', 0.6, 0.5]]]",
        "pba": repr(["1", "1", 100, 100, [4, 5] * 30, [5, 5] * 30]),
    }
    if policy not in texts:
        return {}
    (folder / policy).write_text(texts[policy])
    return {"policy_file": str(folder / policy)}


if __name__ == "__main__":
    main()
