"""Fine-tune MiniLM on IMDb: without augmentation, with each transform, with one of three at random, and with Algorithm 1.

    OUTSPAN_DATA=data python benchmarks/imdb.py --model minilm --cache imdb-backtranslated.jsonl --runs runs/imdb --jobs 3

`--jobs` runs train at a time, each in its own process. They resume where they stopped, and `--minutes` stops them cleanly.
After each run, results/imdb-minilm.json (or `--result`) is written with all runs so far.
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

from outspan.config import Recipe, build_recipe, read_changes
from outspan.data.sets import Data, load_for
from outspan.text.documents import Documents
from outspan.training import Stopped
from outspan.training.compositions import read
from outspan.training.train import train

ARMS = {
    "none": {"policy": "none"},
    "switchout": {"policy": "random", "transforms": "switchout"},
    "word_replacement": {"policy": "random", "transforms": "word_replacement"},
    "back_translation": {"policy": "random", "transforms": "back_translation"},
    "random": {"policy": "random"},
    "uncertain": {"policy": "uncertain"},
}
_data: list[Data] = []  # in a worker: read and tokenized once


def run(recipe: Recipe, folder: Path, limit: int, end: float) -> dict[str, Any] | None:
    """Train or resume one run. Return None if the time is over."""
    torch.set_num_threads(1)
    if not _data:
        data = load_for(recipe)
        if limit:
            data = Data(data.name, *(_first(split, limit) for split in (data.train, data.test)), data.classes)
        tokens = data.train.prepared(recipe, train=True), data.test.prepared(recipe)
        _data.append(Data(data.name, *tokens, data.classes))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        done = train(recipe, out=folder, splits=_data[0], device=device, save_every=120.0, on_step=lambda _: time.time() > end)
    except Stopped:
        return None
    result = {"seed": recipe.seed, "accuracy": done.accuracy, "train_loss": done.loss, "seconds": round(done.seconds, 1)}
    result["epochs"] = [row["test_accuracy"] for row in done.metrics]
    if recipe.validation:  # settings are chosen by it
        result["validation_accuracy"] = done.metrics[-1]["validation_accuracy"]
    if recipe.policy == "uncertain":
        result["chosen"] = [{name: entry["count"] for name, entry in line["compositions"].items()} for line in read(folder)]
    return result | {"machine": machine("transformers", "tokenizers")}


def _first(split: Documents, count: int) -> Documents:
    """Return `count` documents, evenly spaced."""
    return split.take(torch.linspace(0, len(split) - 1, count).long())


def summarise(recipe: Recipe, runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return means, standard deviations, and the difference of each arm from none with its standard error."""
    summary: dict[str, Any] = {"recipe": asdict(replace(recipe, model=Path(recipe.model).name, cache=Path(recipe.cache).name))}
    summary["reported"] = "test accuracy after the last epoch, mean and standard deviation over seeds"
    summary["arms"] = {}
    for name, entries in runs.items():
        accuracies = [entry["accuracy"] for entry in sorted(entries, key=lambda entry: entry["seed"])]
        mean, std = statistics.fmean(accuracies), statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
        summary["arms"][name] = {"accuracy": mean, "std": std, "accuracies": accuracies, "runs": entries}
    base = summary["arms"].get("none")
    for name, arm in summary["arms"].items():
        if base and name != "none":
            error = math.sqrt(sum(entry["std"] ** 2 / len(entry["runs"]) for entry in (arm, base)))
            arm["against_none"] = {"difference": arm["accuracy"] - base["accuracy"], "standard_error": error}
    return summary


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
    parser.add_argument("--few", type=int, default=0, help="use only this number of documents per split, for a quick test")
    options = parser.parse_args()
    end = time.time() + 60 * options.minutes
    changes = [f"model={options.model}", f"cache={options.cache}", *options.changes]
    recipe = build_recipe(ROOT / "recipes/imdb-minilm-uncertain.toml", read_changes(changes))
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in options.arms.split(",")}
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        waiting = {}
        for seed in range(options.seeds):
            for name in runs:
                changed = replace(recipe, seed=seed, **ARMS[name])
                waiting[pool.submit(run, changed, options.runs / f"{name}-{seed}", options.few, end)] = name, seed
        for future in as_completed(waiting):
            name, seed = waiting[future]
            done = future.result()
            if done is None:
                print(f"{name}, seed {seed}: stopped; run the same command again to resume", flush=True)
                continue
            runs[name].append(done)
            validation = f", {100 * done['validation_accuracy']:.2f} % held out" if "validation_accuracy" in done else ""
            print(f"{name}, seed {seed}: {100 * done['accuracy']:.2f} %{validation}, {done['seconds']} s", flush=True)
            summary = summarise(recipe, {arm: entries for arm, entries in runs.items() if entries})
            options.result.write_text(json.dumps(summary, indent=2) + "\n")
    for name, arm in summary["arms"].items() if any(runs.values()) else ():
        against = arm.get("against_none", {"difference": 0.0, "standard_error": 0.0})
        difference = f"{100 * against['difference']:+.2f} ± {100 * against['standard_error']:.2f}" if name != "none" else ""
        print(f"{name:18} {100 * arm['accuracy']:.2f} ± {100 * arm['std']:.2f} %  {difference}", flush=True)


if __name__ == "__main__":
    main()
