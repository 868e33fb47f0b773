"""The table of the results of text_study.py."""

import statistics
from collections.abc import Iterator
from typing import Any

from outspan.comparison.statistics import compute_differences


def describe(stored: dict[str, Any]) -> Iterator[str]:
    """Yield lines: for each set the means at equal epochs and at equal time, and the differences to none and to random."""
    for name in dict.fromkeys(row["set"] for row in stored["rows"]):
        rows = [row for row in stored["rows"] if row["set"] == name]
        at_end = [row for row in rows if row["policy"] == "uncertain 4" and row["stage"] == "epochs"]
        for stage in ("epochs", "time"):
            of_stage = [row for row in rows if row["stage"] == stage]
            if of_stage:
                yield from describe_stage(f"{name}, equal {stage}", of_stage + (at_end if stage == "time" else []))
    for measured in stored.get("predictions", []):
        yield f"predictions: {measured}"


def describe_stage(title: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each policy. The differences are paired by seed, with their 95 % interval."""
    by_policy: dict[str, dict[int, float]] = {}
    for row in rows:
        by_policy.setdefault(row["policy"], {})[row["seed"]] = 100 * row["test"]
    seeds = sorted(set.intersection(*map(set, by_policy.values())))
    values = {policy: [of_seed[seed] for seed in seeds] for policy, of_seed in by_policy.items()}
    yield f"{title}, {len(seeds)} seeds"
    if not seeds:
        return
    for policy, accuracies in values.items():
        row = next(row for row in rows if row["policy"] == policy)
        shown = [f"  {policy:12} {statistics.fmean(accuracies):6.2f} %"]
        for other in ("none", "random"):
            if other in values and other != policy and policy != "none":
                shown.append(f"- {other} {difference(values, policy, other)}")
        settings = {key: row[key] for key in ("lr", "seen", "strength", "unchanged") if key in row}
        operations = row.get("transforms", "none")
        used = operations if operations.count(",") < 1 else f"{operations.count(',') + 1} operations"
        shown.append(f"{used} {settings}")
        yield "  ".join(shown)


def difference(values: dict[str, list[float]], policy: str, other: str) -> str:
    """Return the mean difference of two policies and its 95 % interval."""
    mean = statistics.fmean(values[policy]) - statistics.fmean(values[other])
    [pair] = compute_differences({name: values[name] for name in (policy, other)})
    return f"{mean:+.2f}" if pair.margin is None else f"{mean:+.2f} ± {pair.margin:.2f}"
