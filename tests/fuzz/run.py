"""Fuzz every target for a few minutes: `make fuzz MINUTES=10 TARGETS=images,checkpoints`.

Each target runs in its own process. A case depends only on the seed, its target and its number, so runs with the same seed have
the same cases. Inputs that break the contract are saved in tests/fuzz/crashers/TARGET. When the defect is fixed, they are
committed there, and the suite runs them.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from fuzz import asan
from fuzz.worker import save

TESTS = Path(__file__).resolve().parents[1]
NAMES = ("images", "checkpoints", "recipes", "policies", "tables", "plans", "kernel")
_MAX_RESTARTS = 50


def fuzz(
    name: str,
    *,
    seed: int,
    minutes: float,
    crashers: Path,
    cases: int = sys.maxsize,
    worker: Sequence[str] = ("-m", "fuzz.worker"),
) -> dict[str, float]:
    """Run a target and return the number of cases, and how many of them broke the contract."""
    result: dict[str, float] = {"minutes": minutes, "cases": 0, "crashes": 0, "hangs": 0, "tracebacks": 0}
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
    command = [sys.executable, *worker, name, "--seed", str(seed), "--crashers", str(crashers)]
    if name == "kernel":
        command += ["--kernel", str(asan.build())]
        environment |= asan.environment()
    first, end = 0, time.time() + 60 * minutes
    for _ in range(_MAX_RESTARTS):
        with tempfile.TemporaryDirectory() as folder:
            state = Path(folder)
            arguments = ["--first", str(first), "--end", str(end), "--cases", str(cases), "--state", folder]
            done = subprocess.run([*command, *arguments], env=environment, stderr=subprocess.PIPE, text=True, errors="replace")
            if (state / "done").exists():
                counts = json.loads((state / "done").read_text())
                result["cases"] = counts["cases"]
                result["tracebacks"] += counts["tracebacks"]
                break
            if not (state / "progress").exists():
                raise SystemExit(f"{name}: the worker did not start:\n{done.stderr}")
            progress = json.loads((state / "progress").read_text())
            result["cases"] = first = progress["case"] + 1
            result["tracebacks"] += progress["tracebacks"]
            is_hang = "Timeout (" in done.stderr
            result["hangs" if is_hang else "crashes"] += 1
            path = save(crashers, name, (state / "input").read_bytes())
            print(f"{name}, case {progress['case']}: {'hangs' if is_hang else f'exit code {done.returncode}'}: {path}")
            print(done.stderr[:6000], flush=True)
    return result


def main() -> None:
    """Fuzz the targets one after another, print a table, and fail if the contract was broken."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="minutes per target")
    parser.add_argument("--targets", default=",".join(NAMES), help="comma-separated names")
    parser.add_argument("--seed", type=int, help="seed of an earlier run; default: a new seed")
    parser.add_argument("--result", type=Path, help="JSON file to write")
    parser.add_argument("--crashers", type=Path, default=TESTS / "fuzz" / "crashers")
    options = parser.parse_args()
    targets = [name.strip() for name in options.targets.split(",") if name.strip()]
    if unknown := [name for name in targets if name not in NAMES]:
        parser.error(f"unknown target {unknown[0]!r} (known: {', '.join(NAMES)})")
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    results = {}
    for name in targets:
        results[name] = fuzz(name, seed=seed, minutes=options.minutes, crashers=options.crashers)
        if options.result is not None:
            options.result.write_text(json.dumps(results, indent=2) + "\n")
    print(f"{'target':12} {'minutes':>8} {'cases':>9} {'crashes':>8} {'hangs':>6} {'tracebacks':>11}")
    for name, row in results.items():
        numbers = f"{row['cases']:9} {row['crashes']:8} {row['hangs']:6} {row['tracebacks']:11}"
        print(f"{name:12} {row['minutes']:8g} {numbers}")
    sys.exit(any(row["crashes"] + row["hangs"] + row["tracebacks"] for row in results.values()))


if __name__ == "__main__":
    main()
