"""Read a comparison from its folder."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outspan.comparison.result import FILE, Comparison, PolicyResult, run_folder
from outspan.config import stored_recipe
from outspan.messages import first_line

_METRICS_FILE = "metrics.jsonl"


def load_comparison(folder: Path) -> Comparison:
    """Return the comparison in a folder, with the curves of its runs.

    A policy of which a run has no whole metrics has no curves. A damaged file is a ValueError.
    """
    path = folder / FILE
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        metric = str(stored.get("metric", "accuracy"))
        recipe = stored_recipe({key: value for key, value in stored["recipe"].items() if key not in ("policy", "seed")})
        by_budget = stored.get("budgets") or {"1": stored["policies"]}
        budgets = {}
        for multiple, policies in by_budget.items():
            where = run_folder(folder, float(multiple), "", 0).parent
            budgets[float(multiple)] = {name: _read_policy(where, name, one, metric) for name, one in policies.items()}
        if not budgets or not all(budgets.values()):
            raise ValueError("it has no policies")
        return Comparison(recipe, budgets, _number(stored.get("chance", 0.0)), str(stored.get("equal", "epochs")), metric)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: damaged ({first_line(error)}); run the same `outspan compare` again to write it") from None


def _read_policy(folder: Path, name: str, stored: Mapping[str, Any], metric: str) -> PolicyResult:
    accuracies = tuple(map(_number, stored["test_accuracy"]))
    values = tuple(map(_number, stored.get(f"test_{metric}", accuracies)))
    if not accuracies or len(values) != len(accuracies):
        raise ValueError(f"policy {name!r} has {len(accuracies)} accuracies and {len(values)} values")
    curves = [_read_curve(folder / f"{Path(name).name}-{seed}" / _METRICS_FILE) for seed in range(len(accuracies))]
    steps = [tuple(step for step, _ in curve) for curve in curves]
    is_whole = bool(steps[0]) and len(set(steps)) == 1
    return PolicyResult(
        accuracies,
        values,
        _number(stored["mean"]),
        _number(stored["std"]),
        int(_number(stored["steps"])),
        _number(stored["epochs"]),
        _number(stored["seconds"]),
        tuple(tuple(value for _, value in curve) for curve in curves) if is_whole else (),
        steps[0] if is_whole else (),
    )


def _read_curve(path: Path) -> list[tuple[int, float]]:
    """Return the steps and test accuracies of a run; none if its metrics are missing or damaged."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [(int(row["step"]), _number(row["test_accuracy"])) for row in rows]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{value!r:.40} is not a number")
    return float(value)
