"""When does choosing by loss help? The paper's MLP on MNIST, and smaller and larger MLPs on fewer digits.

    python benchmarks/mnist.py --out runs/mnist --jobs 2

Every run has its own process with one thread, and resumes where it stopped. The result is results/mnist-train.json.
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path

import torch
from machine import ROOT, machine

from outspan.comparison.statistics import mean_and_std
from outspan.config import Recipe, read_recipe
from outspan.training.run import Summary
from outspan.training.train import train

ARMS = {
    "none": {"policy": "none"},
    "random": {"policy": "random"},
    "max": {"policy": "uncertain", "select": "max"},
    "proportional": {"policy": "uncertain", "select": "proportional"},
}


def experiments() -> dict[str, tuple[Recipe, int]]:
    """Return the recipe and the number of seeds of each experiment."""
    full = read_recipe(ROOT / "recipes/mnist.toml")
    small = replace(full, data="digits", batch=100, transforms="geometric")
    recipes = {"mnist/mlp/none": (replace(full, policy="none"), 5)}
    for transforms in ("paper16", "geometric"):
        for arm in ("random", "max", "proportional"):
            recipes[f"mnist/mlp/{transforms}/{arm}"] = (replace(full, transforms=transforms, **ARMS[arm]), 5)
    mild = replace(full, transforms="geometric", candidates=2, **ARMS["proportional"])
    recipes["mnist/mlp/geometric/proportional of 2"] = (mild, 5)
    for model in ("mlp-30", "mlp-300"):
        for arm in ("none", "random", "max"):
            recipes[f"digits/{model}/geometric/{arm}"] = (replace(small, model=model, **ARMS[arm]), 3)
    return recipes


def run(recipe: Recipe, folder: Path) -> Summary:
    """Train on one thread, so that the result does not depend on the number of processes."""
    torch.set_num_threads(1)
    return train(recipe, out=folder)


def main() -> None:
    """Train what is missing, print a table and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    entries = {}
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        pending = {
            name: [
                pool.submit(run, replace(recipe, seed=seed), options.out / name.replace("/", "-").replace(" ", "-") / str(seed))
                for seed in range(seeds)
            ]
            for name, (recipe, seeds) in experiments().items()
        }
        for name, futures in pending.items():
            runs = [future.result() for future in futures]
            mean, std = mean_and_std([summary.accuracy for summary in runs])
            entries[name] = {
                "accuracy": mean,
                "std": std,
                "accuracies": [summary.accuracy for summary in runs],
                "train_loss": mean_and_std([summary.loss for summary in runs])[0],
                "seconds": mean_and_std([summary.seconds for summary in runs])[0],
                "recipe": asdict(experiments()[name][0]),
            }
            print(f"{name:32} {100 * mean:6.2f} ± {100 * std:.2f} %, train loss {entries[name]['train_loss']:.3f}", flush=True)
    result = {
        "reported": "test accuracy after the last epoch, mean and standard deviation over seeds 0, 1, …",
        "machine": {**machine(), "threads": 1},
        "experiments": entries,
    }
    (ROOT / "results/mnist-train.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
