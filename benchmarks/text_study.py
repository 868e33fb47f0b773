"""Does choosing among augmented texts help? MiniLM on four text sets, at equal epochs and at equal time.

    python benchmarks/text_sets.py --model FOLDER build/text-payload                 # once, where the network is
    PYTHONPATH=src python3 benchmarks/text_study.py --payload build/text-payload --out results/text-study.json --jobs 6
    python benchmarks/text_study.py --table --out results/text-study.json

Settings are chosen by the accuracy on validation texts, with one seed, in four stages: the learning rate and the number of
epochs without augmentation; the rates of random and of uncertain with 4 candidates for this number of epochs; their transforms
and strength; and the best single operation, with the rate of random. auto has the settings of random, uncertain with 2
candidates those with 4.

Then all policies train with several seeds: first for this number of epochs, then for the time that uncertain with 4 candidates
needs for it. The number of steps of a time follows from the seconds of a step, which are measured in turns, alone on the
machine, so that `--jobs` runs can train at a time. The test texts are used in these last stages only.

A row is written after each run. Rows of the files `--done` and `--out` are not repeated. `--seconds` stops before a limit.
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from machine import machine, wait
from text_sets import read_set

from outspan.config import Recipe, default_recipe
from outspan.data.dataset import Data
from outspan.files import write_json
from outspan.training.logits import accuracy
from outspan.training.run import Run
from outspan.training.setup import Options, build_setup

Row = dict[str, Any]
OPERATIONS = (
    "switchout", "word_replacement", "protected_replacement", "word_deletion",
    "word_swap", "punctuation_insertion", "keyboard_typos", "ocr_errors",
)  # fmt: skip
TRANSFORMS = {"two": "switchout,word_replacement", "eight": ",".join(OPERATIONS)}
POLICIES: dict[str, dict[str, Any]] = {
    "none": {"policy": "none"},
    "random": {"policy": "random"},
    "single": {"policy": "random"},
    "uncertain 2": {"policy": "uncertain", "candidates": 2},
    "uncertain 4": {"policy": "uncertain", "candidates": 4},
    "auto": {"policy": "auto"},
}
OF = {"single": "random", "auto": "random", "uncertain 2": "uncertain 4"}  # the policy that has chosen the settings


@dataclass(frozen=True)
class Setting:
    """What differs between the sets."""

    length: int
    batch: int
    rates: tuple[float, ...]
    epochs: tuple[int, ...]
    operations: tuple[str, ...] = OPERATIONS  # of which the best is chosen


SETTINGS = {
    "packages": Setting(64, 32, (5e-5, 1e-4, 2e-4, 4e-4), (2, 4, 8)),
    "imdb-2000": Setting(512, 32, (5e-5, 1e-4, 2e-4, 4e-4), (2, 4, 8)),
    "sentences": Setting(128, 64, (5e-5, 1e-4, 2e-4, 4e-4), (1, 2, 4)),
    "imdb": Setting(512, 64, (5e-5, 1e-4, 2e-4), (2, 3), OPERATIONS[:4]),
}
_data: list[Data] = []  # tokenized


def tokenize(data: Data, setting: Setting, model: Path) -> Data:
    """Return the set tokenized, with its digests computed."""
    recipe = replace(default_recipe("texts"), model=str(model), length=setting.length, transforms=TRANSFORMS["eight"])
    assert data.validation is not None
    train, test, validation = (
        data.train.prepared(recipe, train=True),
        data.test.prepared(recipe),
        data.validation.prepared(recipe),
    )
    for split in (train, test, validation):
        _ = split.digest
    return Data(data.name, train, test, data.classes, validation)


def make_run(name: str, model: Path, task: Row, steps: int = 0) -> Run:
    """Return a run that writes nothing."""
    setting, policy = SETTINGS[name], POLICIES[task["policy"]]
    recipe: Recipe = replace(
        default_recipe("texts"), model=str(model), length=setting.length, batch=setting.batch, seed=task["seed"], lr=task["lr"],
        epochs=task.get("epochs", 1), min_steps=0, steps=steps or task.get("steps", 0), strength=task.get("strength", 1.0),
        transforms=task.get("transforms", TRANSFORMS["two"]), **policy,
    )  # fmt: skip
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Run(build_setup(recipe, _data[0], Options(device)), Path("unused"), device)


def steps_of(run: Run) -> Iterator[None]:
    """Take the steps of a run, one at a time."""
    for epoch in range(run.epochs):
        for inputs, labels in run.batches(epoch, 0):
            run.learn(run.augment(inputs, labels))
            yield


def train_once(name: str, model: Path, task: Row, end: float) -> Row | None:
    """Train, and return the accuracy on validation texts, and at the end on test texts. None if the time is over."""
    torch.set_num_threads(1)
    if time.time() > end:
        return None
    run = make_run(name, model, task)
    began = time.perf_counter()
    for _ in steps_of(run):
        if time.time() > end:
            return None
    wait(run.device)
    splits, (unchanged, count) = run.setup.splits, run.state.unchanged
    row = {"steps": run.steps, "seen": round(run.steps / run.epoch_steps, 2), "seconds": round(time.perf_counter() - began, 2)}
    row |= {"unchanged": round(unchanged / count, 4)} if count else {}
    for split in ("validation", "test") if task["stage"] in ("epochs", "time") else ("validation",):
        row[split] = round(accuracy(run.setup.eval_model, getattr(splits, split), splits.preprocess, run.device), 5)
    return task | row


def time_steps(name: str, model: Path, tasks: list[Row]) -> tuple[dict[str, float], dict[str, object]]:
    """Return the seconds of a step of each policy, the median of 5 turns of 10 steps, and the machine."""
    torch.set_num_threads(1)
    # As long as the real runs, since what auto does depends on the length.
    epoch = -(-len(_data[0].train) // SETTINGS[name].batch)
    runs = {task["policy"]: make_run(name, model, task, max(60, task["epochs"] * epoch)) for task in tasks}
    steps, turns = {policy: steps_of(run) for policy, run in runs.items()}, {policy: [] for policy in runs}
    for _ in range(6):
        for policy, run in runs.items():
            began = time.perf_counter()
            for _ in range(10):
                next(steps[policy])
            wait(run.device)
            turns[policy].append((time.perf_counter() - began) / 10)
    return {policy: round(statistics.median(times[1:]), 6) for policy, times in turns.items()}, machine("transformers")


def best(rows: Iterable[Row], **keys: Any) -> Row:
    """Return the row with these values and the best validation accuracy; of equal ones the first."""
    found = [row for row in rows if all(row.get(key) == value for key, value in keys.items())]
    return max(found, key=lambda row: row["validation"])


def plan_choice(name: str, rows: list[Row]) -> Iterator[list[Row]]:
    """Yield the tasks of each stage of the choice. All rows of a stage are there before the next one is planned."""
    setting, base = SETTINGS[name], {"set": name, "seed": 0}
    yield [
        base | {"stage": "rate", "policy": "none", "epochs": epochs, "lr": rate}
        for epochs in setting.epochs
        for rate in setting.rates
    ]
    base["epochs"] = best(rows, stage="rate", policy="none")["epochs"]
    both = ("random", "uncertain 4")
    plain = {"transforms": TRANSFORMS["two"], "strength": 1.0}
    yield [base | {"stage": "rate", "policy": policy, "lr": rate} | plain for policy in both for rate in setting.rates]
    rates = {policy: best(rows, stage="rate", policy=policy)["lr"] for policy in both}
    yield [
        base | {"stage": "transforms", "policy": policy, "lr": rates[policy], "transforms": transforms, "strength": strength}
        for policy in both
        for transforms, strength in ((TRANSFORMS["two"], 0.5), (TRANSFORMS["eight"], 1.0), (TRANSFORMS["eight"], 0.5))
    ]
    single = {"stage": "operation", "policy": "single", "lr": rates["random"], "strength": 1.0}
    yield [base | single | {"transforms": operation} for operation in setting.operations]


def chosen(rows: list[Row]) -> dict[str, Row]:
    """Return the chosen settings of each policy."""
    found = {}
    for policy in POLICIES:
        row = best((row for row in rows if row["stage"] not in ("epochs", "time")), policy=OF.get(policy, policy))
        if policy == "single":
            row = best(rows, stage="operation")
        keys = ("epochs", "lr", "transforms", "strength")
        found[policy] = {key: row[key] for key in keys if key in row}
    return found


def plan_results(name: str, rows: list[Row], seeds: int, step_seconds: dict[str, float]) -> Iterator[list[Row]]:
    """Yield the tasks at equal epochs and at equal time, those of all seeds of a policy one after another."""
    settings, base = chosen(rows), {"set": name}
    yield [
        base | {"stage": "epochs", "policy": policy, "seed": seed} | settings[policy]
        for policy in POLICIES
        for seed in range(seeds)
    ]
    whole = next(row["steps"] for row in rows if row["stage"] == "epochs" and row["policy"] == "uncertain 4")
    seconds = whole * step_seconds["uncertain 4"]
    yield [
        base
        | {"stage": "time", "policy": policy, "seed": seed, "steps": round(seconds / step_seconds[policy])}
        | settings[policy]
        for policy in POLICIES
        if policy != "uncertain 4"  # its rows are those at equal epochs
        for seed in range(seeds)
    ]


def is_done(task: Row, rows: list[Row]) -> bool:
    """Return whether there is a row of a task."""
    return any(all(row.get(key) == value for key, value in task.items()) for row in rows)


def read_data(payload: Path, name: str, model: Path) -> None:
    """Read and tokenize a set, for the runs of this process."""
    torch.set_num_threads(1)
    _data[:] = [tokenize(read_set(payload / f"{name}.json.bz2"), SETTINGS[name], model)]


def study(name: str, stored: dict[str, Any], options: argparse.Namespace, end: float) -> bool:
    """Do what is missing for a set. Return whether it is complete."""
    model = (options.payload / "model").resolve()
    prepare = partial(read_data, options.payload, name, model)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn"), initializer=prepare) as pool:
        return run_stages(name, model, stored, options, end, pool)


def run_stages(name: str, model: Path, stored: dict[str, Any], options: argparse.Namespace, end: float, pool: Executor) -> bool:
    """Do what is missing for a set, stage by stage. Return whether it is complete."""

    def of_set() -> list[Row]:
        return [row for row in stored["rows"] if row["set"] == name]

    def run_stage(tasks: list[Row]) -> bool:
        missing = [task for task in tasks if not is_done(task, of_set())]
        for future in as_completed([pool.submit(train_once, name, model, task, end) for task in missing]):
            if (row := future.result()) is not None:
                stored["rows"].append(row)
                write_json(options.out, stored)
        left = sum(not is_done(task, of_set()) for task in tasks)
        if missing:
            print(f"{name}, {tasks[0]['stage']}: {left} of {len(tasks)} left, {end - time.time():.0f} s left", flush=True)
        return not left

    for tasks in plan_choice(name, rows := of_set()):
        if not run_stage(tasks):
            return False
        rows[:] = of_set()  # what the next stage is planned from
    if name not in stored["step_seconds"]:
        tasks = [{"set": name, "policy": policy, "seed": 0} | keys for policy, keys in chosen(rows).items()]
        stored["step_seconds"][name], stored["machine"] = pool.submit(time_steps, name, model, tasks).result()
        write_json(options.out, stored)
        print(name, stored["step_seconds"][name], flush=True)
    for tasks in plan_results(name, rows, options.seeds, stored["step_seconds"][name]):
        if not run_stage(tasks):
            return False
        rows[:] = of_set()
    return True


def main() -> None:
    """Do what is missing, and print the table."""
    from text_table import describe

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--payload", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--done", type=Path, help="a result so far, which `--out` continues")
    parser.add_argument("--sets", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1e6, help="stop after this time")
    parser.add_argument("--predict", type=int, default=0, help="measure the prediction of a table with this number of rows")
    parser.add_argument("--table", action="store_true", help="only print the table")
    options = parser.parse_args()
    end = time.time() + options.seconds
    source = next((path for path in (options.out, options.done) if path is not None and path.exists()), None)
    stored = json.loads(source.read_text()) if source else {"step_seconds": {}, "rows": []}
    if options.predict:
        from text_predict import measure

        stored.setdefault("predictions", []).append(measure(options.payload, options.predict))
        write_json(options.out, stored)
    elif not options.table:
        for name in options.sets:
            if not study(name, stored, options, end):
                print("the time is over; run the same command again to continue", flush=True)
                break
    print(*describe(stored), sep="\n")


if __name__ == "__main__":
    main()
