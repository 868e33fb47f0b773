"""Compare our training step with a plain PyTorch loop on the same model and data, and measure the cost of choosing.

    python benchmarks/train.py --rounds 7

All take turns in every round of one process; the result is the median over rounds. A turn is one epoch of the included
digits: without augmentation, with random transforms, and with Algorithm 1.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch
from machine import ROOT, machine

from outspan import models, rng, soft_cross_entropy
from outspan.config import Recipe
from outspan.data.sets import load
from outspan.policies.table import build_policy
from outspan.training.loss_queue import LossQueue, Outcome
from outspan.training.state import new_state
from outspan.training.step import Learner, lr_at, take_step
from outspan.transforms.normalize import Normalize


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "train-cpu.json")
    options = parser.parse_args()
    rounds = options.rounds
    data = load("digits")
    recipe = Recipe(model="convnet", policy="none", epochs=1)
    preprocess = Normalize(*data.train.statistics())
    steps = len(data.train) // recipe.batch

    def ours(policy: str) -> None:
        changed = replace(recipe, policy=policy, transforms="geometric")
        state = new_state(changed, data.train.shape, 10, torch.device("cpu"))
        policy_step = build_policy(changed, state.model, data, preprocess)
        learn = Learner(state.model, 0.0, graphs=False)
        losses = LossQueue(torch.device("cpu"), lambda outcome, loss: loss)
        order = rng.generator(0, "order", 0).permutation(len(data.train))
        for step in range(steps):
            rows = torch.from_numpy(order[step * recipe.batch : (step + 1) * recipe.batch])
            batch = policy_step(data.train.images[rows], data.train.labels[rows], step=step)
            losses.add(Outcome(step, take_step(state, learn, changed, batch, lr_at(changed, step, steps)).mean()))
            state.step += 1

    def bare() -> None:
        model = models.build(recipe.model, (1, 28, 28), 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
        order = torch.randperm(len(data.train))
        mean, std = (torch.tensor(value).view(1, -1, 1, 1) for value in data.train.statistics())
        for step in range(steps):
            rows = order[step * recipe.batch : (step + 1) * recipe.batch]
            images = (data.train.images[rows].float() / 255 - mean) / std
            targets = torch.nn.functional.one_hot(data.train.labels[rows], 10).float()
            loss = soft_cross_entropy(model(images), targets)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            loss.item()

    contestants = {
        "bare loop": bare,
        "none": lambda: ours("none"),
        "random": lambda: ours("random"),
        "uncertain": lambda: ours("uncertain"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            if turn:  # the first round is a warm-up
                seconds[name].append(time.perf_counter() - start)
    median = {name: statistics.median(times) for name, times in seconds.items()}
    for name, value in median.items():
        print(f"{name:12} {1000 * value / steps:7.2f} ms per step, {value / median['bare loop']:.2f} of a bare loop")
    steps_ms = {name: 1000 * value / steps for name, value in median.items()}
    ratios = {name: value / median["bare loop"] for name, value in median.items()}
    result = {"what": "convnet, embedded digits, batch 128", "rounds": rounds, "ms_a_step": steps_ms, "of_a_bare_loop": ratios}
    options.out.write_text(json.dumps({"machine": machine(), **result}, indent=2) + "\n")


if __name__ == "__main__":
    main()
