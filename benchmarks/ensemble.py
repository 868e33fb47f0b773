"""Compare training nine seeds of an MLP at once with training them one after another.

    python benchmarks/ensemble.py --rounds 7 --out results/ensemble-cpu.json
    python benchmarks/ensemble.py --rounds 5 --data mnist --batch 500 --epochs 5 --out results/ensemble-gpu.json

A GPU is used if there is one. All methods take turns in every round of one process; the first round is a warm-up, and the
result is the median over rounds. Each trains the paper's MLP (100 hidden units) on the included digits, or on MNIST with
--data mnist. Each image is rotated with probability 0.5. "One after another" is nine calls of `train`, which test after every
epoch. "At once" tests after the last epoch only. The target is 1.2 times as fast on 2 cores and 5 times on one H200.
"""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from machine import machine

from outspan.config import Recipe
from outspan.data.sets import load
from outspan.training.ensemble import train_ensemble
from outspan.training.logits import compute_logits
from outspan.training.train import train


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=9)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data, seeds = load(options.data), range(options.seeds)
    recipe = replace(Recipe(model="mlp", policy="sequence", transforms="rotate"), data=options.data, batch=options.batch)
    members = [replace(recipe, epochs=options.epochs, seed=seed) for seed in seeds]

    def together(shared: int | None) -> None:
        model, preprocess = train_ensemble(members, data=data, device=device, shared=shared)
        compute_logits(model, data.test, preprocess, device)

    def in_turn() -> None:
        for member in members:
            with tempfile.TemporaryDirectory() as folder:
                train(member, out=Path(folder), splits=data, device=device, save_every=float("inf"))

    contestants = {
        "one after another": in_turn,
        "at once": lambda: together(None),
        "at once, shared batches": lambda: together(0),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(options.rounds + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    median = {name: statistics.median(times) for name, times in seconds.items()}
    ratios = {name: median["one after another"] / value for name, value in median.items()}
    for name, value in median.items():
        print(f"{name:24} {value:7.2f} s, {ratios[name]:.2f} times as fast as one after another")
    result = {
        "what": f"mlp, {options.data}, {options.seeds} seeds, {options.epochs} epochs of batches of {options.batch}",
        "rounds": options.rounds,
    }
    result |= {"seconds": median, "times_as_fast": ratios}
    if options.out is not None:
        options.out.write_text(json.dumps({"machine": machine(), **result}, indent=2) + "\n")


if __name__ == "__main__":
    main()
