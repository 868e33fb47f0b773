"""How many steps does a small encoder need on few texts? MiniLM on single sentences of reviews and on package descriptions.

    OUTSPAN_DATA=data OUTSPAN_PACKAGES=folder python benchmarks/text_defaults.py --model FOLDER
    python benchmarks/text_defaults.py --table

A run trains on random texts of a set at the default rate of the model, on one thread and in bf16, and is scored on 1,000
validation texts. Only the number of steps differs: the default epochs, and each of `--steps`. The seed decides which texts are
drawn, their order and the initial weights of the last layer. OUTSPAN_DATA has IMDb, OUTSPAN_PACKAGES a file available.txt
(`apt-cache dumpavail > available.txt`). A row is written after each run. Rows of `--out` are not repeated.
"""

import argparse
import itertools
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import torch
from machine import ROOT, machine
from text_sets import make_sentences
from text_study import steps_of
from unseen_data import make_packages

from outspan import rng
from outspan.config import build_recipe
from outspan.data.dataset import Data
from outspan.files import write_json
from outspan.training.logits import accuracy
from outspan.training.run import Run
from outspan.training.setup import Options, build_setup

Row: TypeAlias = dict[str, Any]
TESTED = 1_000
LENGTH = 64
SETS: dict[str, Callable[[], Data]] = {"sentences": make_sentences, "packages": make_packages}


def draw(data: Data, count: int, seed: int) -> Data:
    """Return random train texts, and as the test split always the same 1,000 validation texts."""
    assert data.validation is not None
    rows = torch.from_numpy(rng.generator(seed, "few").permutation(len(data.train))[:count])
    tested = torch.from_numpy(rng.generator(0, "tested").permutation(len(data.validation))[:TESTED])
    return Data(data.name, data.train.take(rows), data.validation.take(tested), data.classes)


def train_once(data: Data, model: Path, task: Row) -> Row:
    """Return the row of a run. With `steps` 0 it has the default number of epochs."""
    keys = {key: value for key, value in task.items() if key not in ("set", "texts")}
    keys |= {"model": str(model), "length": LENGTH, "precision": "bf16", "min_steps": 0}
    device = torch.device("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recipe = build_recipe(None, keys, lambda name: "texts")
        run = Run(build_setup(recipe, draw(data, task["texts"], task["seed"]), Options(device)), Path("unused"), device)
    for group in run.state.optimizer.param_groups:
        group["fused"] = True  # the same update in a third of the time
    began = time.process_time()
    for _ in steps_of(run):
        pass
    row = task | {"trained": run.steps, "epochs": round(run.steps / run.epoch_steps, 1)}
    row["cpu_seconds"] = round(time.process_time() - began, 1)
    splits = run.setup.splits
    return row | {"validation": round(accuracy(run.setup.eval_model, splits.test, splits.preprocess, device), 4)}


def describe(rows: list[Row]) -> Iterator[str]:
    """Yield a table for each policy and rate: the mean accuracy, its standard deviation and the number of seeds."""
    for policy, lr in dict.fromkeys((row["policy"], row.get("lr")) for row in rows):
        cells: dict[tuple[str, int], dict[int, list[float]]] = {}
        for row in rows:
            if (row["policy"], row.get("lr")) == (policy, lr):
                of_cell = cells.setdefault((row["set"], row["texts"]), {})
                of_cell.setdefault(row["steps"], []).append(100 * row["validation"])
        numbers = sorted({steps for of_cell in cells.values() for steps in of_cell})
        titles = [f"{steps} steps" if steps else "default epochs" for steps in numbers]
        yield "  ".join([f"{policy}{'' if lr is None else f', lr {lr:g}'}".ljust(18), *(f"{title:>14}" for title in titles)])
        for (name, texts), of_cell in sorted(cells.items()):
            shown = [_show(of_cell.get(steps, [])) for steps in numbers]
            yield "  ".join([f"{name}, {texts:,}".ljust(18), *(f"{cell:>14}" for cell in shown)])


def _show(values: list[float]) -> str:
    std = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{std} ({len(values)})" if values else ""


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "results/text-defaults.json")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--texts", nargs="+", type=int, default=[100, 300, 1_000, 2_000])
    parser.add_argument("--steps", nargs="+", type=int, default=[0, 50, 100, 200, 400, 800], help="0: the default epochs")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--policy", default="none")
    parser.add_argument("--lr", nargs="+", type=float, default=[], help="other rates than the default of the model")
    parser.add_argument("--table", action="store_true", help="only print the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    stored = json.loads(options.out.read_text()) if options.out.exists() else {"rows": []}
    for name in () if options.table else options.sets:
        data = SETS[name]()
        for seed, texts, steps, lr in itertools.product(options.seeds, options.texts, options.steps, options.lr or [None]):
            task: Row = {"set": name, "texts": texts, "steps": steps, "policy": options.policy, "seed": seed}
            task |= {} if lr is None else {"lr": lr}
            if any({key: row[key] for key in row.keys() & {*task, "lr"}} == task for row in stored["rows"]):
                continue
            stored["rows"].append(train_once(data, options.model, task))
            stored["machine"] = machine("transformers", "tokenizers")
            write_json(options.out, stored)
            print(stored["rows"][-1], flush=True)
    print(*describe(stored["rows"]), sep="\n")


if __name__ == "__main__":
    main()
