"""Train recipes over several seeds and collect the results in one file. Later calls add to it.

    python benchmarks/recipes.py recipes/cifar10-wrn-28-2-*.toml --seeds 3 --runs runs --result results/cifar10-wrn-28-2.json

Runs resume. Runs that are in the result file are not repeated. `--minutes` stops cleanly when the time is over.
"""

import argparse
import json
import statistics
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch
from machine import machine

from outspan.config import build_recipe, read_changes
from outspan.training import Stopped
from outspan.training.train import train


def main() -> None:
    """Train what is missing and write the result after every run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", dest="changes", action="append", default=[])
    parser.add_argument("--name", default="", help="name in the result file; default: the name of the recipe file")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    device = "cuda" if torch.cuda.is_available() else "cpu"
    result = json.loads(options.result.read_text()) if options.result.exists() else {}
    for seed in range(options.seeds):
        for path in options.recipes:
            name = options.name or path.stem
            recipe = replace(build_recipe(path, read_changes(options.changes)), seed=seed)
            entry = result.setdefault(name, {"recipe": asdict(replace(recipe, seed=0)), "runs": []})
            if any(run["seed"] == seed for run in entry["runs"]) or time.monotonic() > end:
                continue
            folder = options.runs / f"{name}-{seed}"
            try:
                settings = {"device": device, "compile": options.compile, "save_every": 300.0}
                done = train(recipe, out=folder, **settings, on_step=lambda _: time.monotonic() > end)
            except Stopped as stopped:
                print(f"{name} seed {seed}: {stopped}", flush=True)
                continue
            entry["runs"].append(
                {
                    "seed": seed,
                    "test_accuracy": done.accuracy,
                    "train_loss": done.loss,
                    "seconds": round(done.seconds, 1),
                    "compiled": options.compile,
                    "machine": machine(),
                }
            )
            accuracies = [run["test_accuracy"] for run in entry["runs"]]
            entry["mean"] = statistics.fmean(accuracies)
            entry["std"] = statistics.stdev(accuracies) if len(accuracies) > 1 else None
            options.result.write_text(json.dumps(result, indent=2) + "\n")
            print(f"{name} seed {seed}: {100 * done.accuracy:.2f} %, {done.seconds:.1f} s", flush=True)
    for name, entry in result.items():
        if entry["runs"]:
            spread = "" if entry["std"] is None else f" ± {100 * entry['std']:.2f}"
            print(f"{name:36} {100 * entry['mean']:.2f}{spread} % over {len(entry['runs'])}")


if __name__ == "__main__":
    main()
