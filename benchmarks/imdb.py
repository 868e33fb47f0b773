"""IMDb with a fine-tuned MiniLM: no augmentation, each transform alone, one of three at random, and Algorithm 1.

    OUTSPAN_DATA=data python benchmarks/imdb.py --model minilm --cache imdb-backtranslated.jsonl --runs runs/imdb --jobs 3

Every run is a process of its own, `--jobs` at a time, and resumes where it stopped; `--minutes` stops cleanly when the time is
over. After each run results/imdb-minilm.json, or `--result`, is written anew from what is there.
"""

import argparse
import json
import math
import statistics
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from machine import ROOT, machine

from outspan.config import Recipe, make_recipe
from outspan.data.sets import Data, as_read, load_for
from outspan.text.documents import Documents
from outspan.training import Stopped
from outspan.training.compositions import read
from outspan.training.loop import train

ARMS = {
    "none": {"policy": "none"},
    "switchout": {"policy": "random", "transforms": "switchout"},
    "word_replacement": {"policy": "random", "transforms": "word_replacement"},
    "back_translation": {"policy": "random", "transforms": "back_translation"},
    "random": {"policy": "random"},
    "uncertain": {"policy": "uncertain"},
}
_data: list[Data] = []  # in a worker: read and cut into tokens once


def run(recipe: Recipe, folder: Path, few: int, end: float) -> dict[str, Any] | None:
    """Train one run, or go on with it; None where the time was over."""
    torch.set_num_threads(1)
    if not _data:
        found = load_for(recipe)
        if few:
            found = Data(found.name, *(_first(split, few) for split in (found.train, found.test)), found.classes)
        tokens = as_read(found.train, recipe, train=True), as_read(found.test, recipe)
        _data.append(Data(found.name, *tokens, found.classes))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        done = train(recipe, out=folder, data=_data[0], device=device, save_every=120.0, on_step=lambda _: time.time() > end)
    except Stopped:
        return None
    found = {"seed": recipe.seed, "accuracy": done.accuracy, "train_loss": done.loss, "seconds": round(done.seconds, 1)}
    found["epochs"] = [row["test_accuracy"] for row in done.metrics]
    if recipe.validation:  # what settings are chosen by
        found["validation_accuracy"] = done.metrics[-1]["validation_accuracy"]
    if recipe.policy == "uncertain":
        found["chosen"] = [{name: entry["count"] for name, entry in line["compositions"].items()} for line in read(folder)]
    return found | {"machine": machine("transformers", "tokenizers")}


def _first(split: Documents, count: int) -> Documents:
    """Return some documents of each class, evenly spaced."""
    return split.take(torch.linspace(0, len(split) - 1, count).long())


def summarise(recipe: Recipe, runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return means, standard deviations, and each arm's difference from none with its standard error."""
    found: dict[str, Any] = {"recipe": asdict(replace(recipe, model=Path(recipe.model).name, cache=Path(recipe.cache).name))}
    found["reported"] = "test accuracy after the last epoch, mean and standard deviation over seeds"
    found["arms"] = {}
    for name, entries in runs.items():
        accuracies = [entry["accuracy"] for entry in sorted(entries, key=lambda entry: entry["seed"])]
        mean, std = statistics.fmean(accuracies), statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
        found["arms"][name] = {"accuracy": mean, "std": std, "accuracies": accuracies, "runs": entries}
    base = found["arms"].get("none")
    for name, arm in found["arms"].items():
        if base and name != "none":
            error = math.sqrt(sum(one["std"] ** 2 / len(one["runs"]) for one in (arm, base)))
            arm["against_none"] = {"difference": arm["accuracy"] - base["accuracy"], "standard_error": error}
    return found


def main() -> None:
    """Train what is missing, print a table and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--result", type=Path, default=ROOT / "results/imdb-minilm.json")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--set", dest="changes", action="append", default=[])
    parser.add_argument("--few", type=int, default=0, help="so many documents of each split alone, to try it out")
    asked = parser.parse_args()
    end = time.time() + 60 * asked.minutes
    changes = [f"model={asked.model}", f"cache={asked.cache}", *asked.changes]
    recipe = make_recipe(ROOT / "recipes/imdb-minilm-uncertain.toml", changes)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in asked.arms.split(",")}
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        waiting = {}
        for seed in range(asked.seeds):
            for name in runs:
                own = replace(recipe, seed=seed, **ARMS[name])
                waiting[pool.submit(run, own, asked.runs / f"{name}-{seed}", asked.few, end)] = name, seed
        for future in as_completed(waiting):
            name, seed = waiting[future]
            done = future.result()
            if done is None:
                print(f"{name}, seed {seed}: stopped; run the same command again to resume", flush=True)
                continue
            runs[name].append(done)
            held = f", {100 * done['validation_accuracy']:.2f} % held out" if "validation_accuracy" in done else ""
            print(f"{name}, seed {seed}: {100 * done['accuracy']:.2f} %{held}, {done['seconds']} s", flush=True)
            found = summarise(recipe, {arm: entries for arm, entries in runs.items() if entries})
            asked.result.write_text(json.dumps(found, indent=2) + "\n")
    for name, arm in found["arms"].items() if any(runs.values()) else ():
        against = arm.get("against_none", {"difference": 0.0, "standard_error": 0.0})
        said = f"{100 * against['difference']:+.2f} ± {100 * against['standard_error']:.2f}" if name != "none" else ""
        print(f"{name:18} {100 * arm['accuracy']:.2f} ± {100 * arm['std']:.2f} %  {said}", flush=True)


if __name__ == "__main__":
    main()
