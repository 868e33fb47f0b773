"""The time of many runs on Ray against that of local processes: 8 runs on 2 workers, with one thread each.

    python benchmarks/ray_runs.py --result results/ray.json   # about 10 minutes on 2 cores; needs pip install '.[ray]'
    python benchmarks/ray_runs.py --parts kill --seconds 2    # one part, with short runs

Part time: the same `outspan compare` is timed with `--jobs 2` and with `--engine ray --address …`, in turns, from start to end.
The Ray cluster of this machine has two nodes with one worker each, and has been started before. Part kill: a worker is killed
with -9 half way. The finished runs must not change, and the accuracies must be the same.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from machine import ROOT, machine

from outspan.training import checkpoint

sys.path.insert(0, str(ROOT / "tests"))
from clusters import ENVIRONMENT, Cluster, cluster, processes, wait_until

RUNS, BAR = 8, 1.15
KEYS = ("--data", "digits", "--model", "convnet")


def launch(*arguments: object) -> subprocess.Popen[bytes]:
    """Start a command of outspan."""
    return subprocess.Popen([sys.executable, "-m", "outspan", *map(str, arguments)], env=os.environ | ENVIRONMENT)


def finish(process: subprocess.Popen[bytes]) -> None:
    if process.wait():
        raise SystemExit(f"{process.args} failed")


def seconds_of(folder: Path) -> float:
    """Return the training time of a finished run."""
    loaded = checkpoint.load(folder)
    assert loaded is not None
    return float(loaded[1]["seconds"])


def epochs_for(seconds: float, root: Path) -> int:
    """Return the number of epochs that take this time."""
    finish(launch("train", *KEYS, "--policy", "random", "--set", "epochs=4", "-o", root / "trial"))
    return max(2, round(4 * seconds / seconds_of(root / "trial")))


def compare(epochs: int, out: Path, *options: str) -> subprocess.Popen[bytes]:
    runs = ("--policies", "random", "--seeds", RUNS, "--set", f"epochs={epochs}")
    return launch("compare", *KEYS, *runs, *options, "-o", out)


def time_command(epochs: int, out: Path, *options: str) -> float:
    """Return the seconds from the start to the end of a comparison."""
    began = time.perf_counter()
    finish(compare(epochs, out, *options))
    return time.perf_counter() - began


def accuracies(out: Path) -> list[float]:
    return json.loads((out / "comparison.json").read_text())["policies"]["random"]["test_accuracy"]


def workers(ray: Cluster) -> list[int]:
    return [pid for pid, name in processes(ray.mark).items() if name.startswith("ray::random, seed")]


def measure_times(epochs: int, root: Path, ray: Cluster, turns: int) -> dict[str, Any]:
    """Return the times of both engines, which take turns, and whether the accuracies are the same."""
    engines = {"local": ("--jobs", "2"), "ray": ("--engine", "ray", "--address", ray.address)}
    times: dict[str, list[float]] = {"local": [], "ray": []}
    for turn in range(turns):
        for name in list(engines)[:: 1 if turn % 2 == 0 else -1]:
            times[name].append(round(time_command(epochs, root / f"{name}{turn}", *engines[name]), 1))
    shortest = min(seconds_of(path) for path in root.glob("*/random-*"))
    same = all(accuracies(root / f"{name}{turn}") == accuracies(root / "local0") for name in engines for turn in range(turns))
    ratio = statistics.median(times["ray"]) / statistics.median(times["local"])
    result = {"epochs": epochs, "shortest_run_seconds": round(shortest, 1), "seconds": times, "ratio": round(ratio, 3)}
    return result | {"bar": BAR, "same_accuracies": same}


def kill_a_worker(epochs: int, root: Path, ray: Cluster) -> dict[str, Any]:
    """Kill a worker when half of the runs have ended, and return how many finished runs have changed."""
    finish(compare(epochs, root / "whole", "--jobs", "2"))
    out = root / "killed"
    process = compare(epochs, out, "--engine", "ray", "--address", ray.address)

    def finished() -> dict[Path, int]:
        files = {path.parent: path for path in sorted(out.glob("random-*/step-*.safetensors"))}
        return {path: path.stat().st_mtime_ns for path in files.values() if int(path.stem.removeprefix("step-")) == 40 * epochs}

    wait_until(lambda: len(finished()) >= RUNS // 2 and workers(ray), seconds=3600)
    before = finished()
    os.kill(workers(ray)[0], signal.SIGKILL)
    finish(process)
    after = finished()
    changed = sum(after[path] != modified for path, modified in before.items())
    result = {"epochs": epochs, "finished_before": len(before), "finished_runs_changed": changed, "finished": len(after)}
    return result | {"same_accuracies": accuracies(out) == accuracies(root / "whole")}


def main() -> None:
    """Measure the parts, print them, and add them to a result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="time,kill", help="comma-separated: time, kill")
    parser.add_argument("--seconds", type=float, default=25.0, help="training time of a run; the bar is for at least 20")
    parser.add_argument("--turns", type=int, default=2, help="how often each engine is timed")
    parser.add_argument("--result", type=Path, help="JSON file to write")
    options = parser.parse_args()
    measures = {"time": partial(measure_times, turns=options.turns), "kill": kill_a_worker}
    for part in options.parts.split(","):
        with tempfile.TemporaryDirectory() as folder, cluster() as ray:
            root = Path(folder)
            epochs, load = epochs_for(options.seconds, root), os.getloadavg()[0]
            measured = measures[part](epochs, root, ray)
        measured = {"runs": RUNS, "workers": 2, **measured, "load_before": round(load, 2), "machine": machine("ray")}
        print(f"{part}: {json.dumps(measured, indent=2)}", flush=True)
        if options.result:
            results = json.loads(options.result.read_text()) if options.result.exists() else {}
            options.result.write_text(json.dumps({**results, part: measured}, indent=2) + "\n")


if __name__ == "__main__":
    main()
