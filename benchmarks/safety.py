"""Is the policy `auto` ever a loss? Many settings that differ in kind, all policies for the same time, several seeds.

    OUTSPAN_DATA=folder python benchmarks/safety.py --seconds 6 12 --seeds 3 --jobs 2
    OUTSPAN_PACKAGES=folder python benchmarks/safety.py --unseen --seconds 6 12 --seeds 3 --jobs 2

The settings and their data are in safety_settings.py. With `--unseen` they are those of data that were not used to design auto
(unseen_data.py), and the result is another file. On the CPU every run has one thread, and the seconds are CPU seconds of that
thread, so that other work on the machine does not count. First the time of a step of each policy is measured, in turns. Then
every policy gets as many steps as fit into the time. All policies have the same schedule, the same default transforms and the
same `finish`. Runs that are already in the result file are not repeated, except those of the policies of `--again`: use it once
after their code has changed. Their step times are then measured relative to those of none.

`--table` prints, for each setting and time, the plain policy with the best mean *validation* accuracy, and the difference
between auto and this policy in *test* accuracy, paired by seed, with its 95 % confidence interval (Student's t) and its
standard error (SE). Then it prints a summary of all differences.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import torch
from machine import ROOT, machine
from safety_settings import FIRST_TIME_ONLY, PLAIN, POLICIES, SETTINGS, UNSEEN

from outspan.comparison.statistics import compute_differences
from outspan.config import default_recipe
from outspan.data.dataset import Data
from outspan.files import commit, write_json
from outspan.policies.auto import Auto
from outspan.policies.plain import Plain
from outspan.policies.proposals import natural
from outspan.training.logits import accuracy
from outspan.training.pool import Pool, run_all
from outspan.training.run import Run
from outspan.training.setup import Options, build_setup

RESULT = ROOT / "results" / "safety.json"
UNSEEN_RESULT = ROOT / "results" / "safety-unseen.json"
ALL_SETTINGS = SETTINGS | UNSEEN
FINISH = 0.1


@lru_cache(maxsize=1)
def make_data(name: str) -> Data:
    """Return the data of a setting, which is made once for all its runs in a process."""
    return ALL_SETTINGS[name].data()


def make_run(name: str, policy: str, steps: int, seed: int = 0) -> Run:
    """Return a run that writes nothing."""
    setting, data = ALL_SETTINGS[name], make_data(name)
    model = setting.model if isinstance(setting.model, str) else setting.model(data)
    recipe = replace(default_recipe(data.train.noun), model=model, finish=FINISH, seed=seed, steps=steps)
    recipe = replace(recipe, **setting.recipe, **POLICIES[policy])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    setup = build_setup(recipe, data, Options(device))
    if setting.initialize is not None:
        setting.initialize(setup.state.model, seed)
    if policy == "natural":
        plain = setup.policy
        assert isinstance(plain, Plain)
        setup = replace(setup, policy=replace(plain, propose=natural()))
    return Run(setup, Path("unused"), device)


def clock(device: torch.device) -> float:
    """Return CPU seconds, or on a GPU seconds after it has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def steps_of(run: Run) -> Iterator[None]:
    """Take the steps of a run, one at a time."""
    for epoch in range(run.epochs):
        for inputs, labels in run.batches(epoch, 0):
            run.learn(run.augment(inputs, labels))
            yield


def time_steps(name: str, seconds: float, policies: Sequence[str]) -> dict[str, float]:
    """Return the seconds of a step of each policy, for runs of this time, since what auto does depends on the length.

    They are measured three times. The result is the median relative to none, times the median of none.
    """
    torch.set_num_threads(1)
    step = time_turns({"none": make_run(name, "none", 10_000)})["none"]
    length = max(200, round(seconds / step))
    measured = [time_turns({policy: make_run(name, policy, length) for policy in policies}) for _ in range(3)]
    none = statistics.median(times["none"] for times in measured)
    return {policy: none * statistics.median(times[policy] / times["none"] for times in measured) for policy in policies}


def forget(stored: dict, names: Sequence[str], policies: Sequence[str], seconds: float) -> None:
    """Remove the runs of some policies, and measure their step times again, relative to none."""
    for name in names:
        times = stored["step_seconds"].get(name, {})
        if again := [policy for policy in policies if policy in times]:
            measured = time_steps(name, seconds, ["none", *again])
            times |= {policy: round(times["none"] * measured[policy] / measured["none"], 6) for policy in again}
            print(f"{name}:", *(f"{policy} {measured[policy] / measured['none']:.3f}" for policy in again), flush=True)
    is_old = {(name, policy) for name in names for policy in policies}
    stored["rows"] = [row for row in stored["rows"] if (row["setting"], row["policy"]) not in is_old]


def time_turns(runs: dict[str, Run]) -> dict[str, float]:
    """Return the seconds of a step of each run: the median of 7 turns of 20 steps, after 20 steps of warm-up."""
    steps = {policy: steps_of(run) for policy, run in runs.items()}
    turns: dict[str, list[float]] = {policy: [] for policy in runs}
    for _ in range(8):
        for policy, run in runs.items():
            began = clock(run.device)
            for _ in range(20):
                next(steps[policy])
            turns[policy].append((clock(run.device) - began) / 20)
    return {policy: statistics.median(times[1:]) for policy, times in turns.items()}


def train_once(name: str, policy: str, seed: int, steps: int, *, on_step: object = None) -> dict[str, float | str]:
    """Train, and return the validation and test accuracy after the last step, and what auto has decided."""
    torch.set_num_threads(1)
    run = make_run(name, policy, steps, seed)
    began = clock(run.device)
    for _ in steps_of(run):
        pass
    seconds = clock(run.device) - began
    splits, used = run.setup.splits, run.setup.policy
    row = {"decided": used.describe()} if isinstance(used, Auto) else {}
    row |= {"epochs": round(steps / run.epoch_steps, 2), "seconds": round(seconds, 2)}
    for split in ("validation", "test"):
        row[split] = round(accuracy(run.setup.eval_model, getattr(splits, split), splits.preprocess, run.device), 4)
    return row


def measure(seconds: list[float], seeds: int, jobs: int, names: list[str], again: list[str], out: Path) -> None:
    """Measure what is missing in the result file, and write it after each setting and time."""
    stored = json.loads(out.read_text()) if out.exists() else {"machine": machine(), "step_seconds": {}, "rows": []}
    if again:
        forget(stored, names, again, min(seconds))
        write_json(out, stored)
    done = {(row["setting"], row["policy"], row["budget"], row["seed"]) for row in stored["rows"]}
    for name in names:
        if name not in stored["step_seconds"]:
            times = time_steps(name, min(seconds), ALL_SETTINGS[name].policies)
            stored["step_seconds"][name] = {policy: round(value, 6) for policy, value in times.items()}
        for budget in sorted(seconds):
            tasks = {}
            for seed in range(seeds):  # not policy by policy: then a machine that becomes slower would look like a slow policy
                for policy, step in stored["step_seconds"][name].items():
                    is_wanted = budget == min(seconds) or policy not in FIRST_TIME_ONLY
                    if is_wanted and (name, policy, budget, seed) not in done:
                        steps = max(1, round(budget / step))
                        tasks[policy, seed, steps] = partial(train_once, name, policy, seed, steps)
            results = run_all([(f"{name}: {budget:g} s, {key}", task) for key, task in tasks.items()], pool=Pool(jobs))
            for (policy, seed, steps), row in zip(tasks, results, strict=True):
                key = {"setting": name, "policy": policy, "budget": budget, "seed": seed, "steps": steps}
                stored["rows"].append(key | row | {"commit": commit()})
            write_json(out, stored)
        print(*(line for cell in find_cells(stored, [name]) for line in cell.describe()), sep="\n", flush=True)


@dataclass(frozen=True)
class Cell:
    """The runs of a setting and a time: test accuracies and seconds by policy, in the order of the seeds."""

    name: str
    epochs: float  # of none
    best: str  # the plain policy with the best mean validation accuracy
    tests: dict[str, list[float]]  # in percent
    seconds: dict[str, list[float]]

    @property
    def difference(self) -> float:
        """The mean difference between auto and the best plain policy, in points."""
        return statistics.fmean(self.tests["auto"]) - statistics.fmean(self.tests[self.best])

    @property
    def error(self) -> float:
        """The standard error of the difference, paired by seed."""
        gains = [a - b for a, b in zip(self.tests["auto"], self.tests[self.best], strict=True)]
        return statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")

    @property
    def trails(self) -> bool:
        """Whether auto is below the best plain policy by more than 0.3 points and two standard errors."""
        return self.difference < -max(0.3, 2 * self.error)

    def interval(self, other: str) -> tuple[float, float, float]:
        """Return the mean difference between auto and another policy, and its 95 % interval, paired by seed."""
        [pair] = compute_differences({name: self.tests[name] for name in ("auto", other)})
        mean = statistics.fmean(self.tests["auto"]) - statistics.fmean(self.tests[other])
        margin = float("inf") if pair.margin is None else pair.margin
        return mean, mean - margin, mean + margin

    def describe(self) -> Iterator[str]:
        """Yield a line, and a warning for policies that trained for another time than none."""
        _, low, high = self.interval(self.best)
        interval = f"[{low:+.2f}, {high:+.2f}], SE {self.error:.2f}"
        means = "  ".join(f"{policy} {statistics.fmean(values):.2f}" for policy, values in self.tests.items())
        title = f"{self.name} ({self.epochs:g} epochs of none)"
        yield f"{title}: auto - {self.best} = {self.difference:+.2f} {interval} | {means}"
        none = statistics.fmean(self.seconds["none"])
        ratios = {policy: statistics.fmean(values) / none for policy, values in self.seconds.items()}
        if unequal := [f"{policy} {ratio:.2f}" for policy, ratio in ratios.items() if abs(ratio - 1) > 0.1]:
            yield f"  WARNING: seconds relative to none: {', '.join(unequal)}"


def find_cells(stored: dict, names: list[str]) -> Iterator[Cell]:
    """Yield the cells of settings that have runs of auto and none. Only policies with the same seeds as auto are compared."""
    for name in names:
        rows = [row for row in stored["rows"] if row["setting"] == name]
        for budget in sorted({row["budget"] for row in rows}):
            runs = {policy: {} for policy in POLICIES}
            for row in rows:
                if row["budget"] == budget:
                    runs[row["policy"]][row["seed"]] = row
            seeds = sorted(runs["auto"])
            chosen = {policy: [of[seed] for seed in seeds] for policy, of in runs.items() if seeds and set(seeds) <= set(of)}
            if "none" not in chosen:
                continue
            validation = {
                policy: statistics.fmean(row["validation"] for row in chosen[policy]) for policy in PLAIN if policy in chosen
            }
            yield Cell(
                f"{name}, {budget:g} s",
                chosen["none"][0]["epochs"],
                max(validation, key=lambda policy: validation[policy]),
                {policy: [100 * row["test"] for row in found] for policy, found in chosen.items()},
                {policy: [row["seconds"] for row in found] for policy, found in chosen.items()},
            )


def summarize(cells: list[Cell]) -> Iterator[str]:
    """Yield lines about all differences between auto and the best plain policy."""
    if not cells:
        return
    worse = [cell for cell in cells if cell.trails]
    better = [cell for cell in cells if cell.difference > 2 * cell.error]
    yield f"{len(cells)} cells, mean difference {statistics.fmean(cell.difference for cell in cells):+.2f}"
    yield f"below -max(0.3, 2 SE): {len(worse)}{''.join(f'; {cell.name}' for cell in worse)}"
    yield f"above 2 SE: {len(better)}{''.join(f'; {cell.name}' for cell in better)}"


def main() -> None:
    """Measure and print, or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, nargs="+", default=[6.0, 12.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--settings", nargs="+", choices=list(ALL_SETTINGS), help="default: all, without or with --unseen")
    parser.add_argument("--unseen", action="store_true", help="settings whose data were not used to design auto")
    parser.add_argument("--again", nargs="+", default=[], choices=list(POLICIES), help="measure these policies again")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    names = options.settings or list(UNSEEN if options.unseen else SETTINGS)
    options.out = options.out or (UNSEEN_RESULT if options.unseen else RESULT)
    if options.table and not options.out.exists():
        parser.error(f"{options.out}: no such file; measure first, without --table")
    if not options.table:
        measure(options.seconds, options.seeds, options.jobs, names, options.again, options.out)
    cells = list(find_cells(json.loads(options.out.read_text()), names))
    if options.table:
        print(*(line for cell in cells for line in cell.describe()), sep="\n")
    print(*summarize(cells), sep="\n")


if __name__ == "__main__":
    main()
