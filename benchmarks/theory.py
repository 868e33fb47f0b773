"""Time the exact errors at n = 1,000 and p = 20,000, and compare the ranking on MNIST with the measured error scores.

python benchmarks/theory.py          # time and memory: results/theory.json
python benchmarks/theory.py rank     # five seeds, pixels and random features: results/theory-rank-mnist*.json
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from machine import ROOT, machine

from outspan import rng
from outspan.data.sets import load
from outspan.theory import Error, minnorm_error, rank, ridge_error
from outspan.theory.ranking import agreement

RESULTS = ROOT / "results"
MEASURED = "results/paper-mnist-transforms.json"
NOT_INVARIANT = ("invert", "horizontal_flip", "vertical_flip")  # they may change the digit
SEEDS = range(5)


def times() -> dict[str, object]:
    """Return seconds, and the peak memory of the process so far (with the interpreter and 160 MB of data)."""
    g = rng.generator(0, "benchmark")
    X, beta = g.standard_normal((1000, 20_000)), g.standard_normal(20_000)
    calls: dict[str, Callable[[], Error]] = {
        "ridge_error": lambda: ridge_error(X, beta, 0.1, 0.5),
        "minnorm_error": lambda: minnorm_error(X, beta, 0.5),
    }
    result: dict[str, object] = {"n": 1000, "p": 20_000, "seed": 0}
    for name, call in calls.items():
        seconds = _seconds(call)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        result[name] = {"seconds": round(seconds, 2), "peak_gib": round(peak, 2)}
        print(f"{name}: {seconds:.2f} s, peak {peak:.2f} GiB")
    command = [str(Path(sys.executable).with_name("outspan")), "theory", "verify"]
    seconds = _seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
    print(f"outspan theory verify: {seconds:.1f} s")
    return {**result, "verify": {"seconds": round(seconds, 1)}}


def rankings(features: int, samples: int) -> dict[str, object]:
    """Return the ranking of seed 0, and Spearman's correlations of every seed: over all transforms, and without three."""
    data, scores = load("mnist"), json.loads((ROOT / MEASURED).read_text())["error"]
    results = [rank(data, tuple(scores), samples=samples, features=features, seed=seed, measured=scores) for seed in SEEDS]
    kept = [agreement([row for row in ranking.rows if row.name not in NOT_INVARIANT]) for ranking in results]
    for seed, ranking in enumerate(results):
        print(f"{features} features, seed {seed}: gain {ranking.spearman['gain']:+.2f}, kept {kept[seed]['gain']:+.2f}")
    return {
        "measured": MEASURED,
        "seeds": list(SEEDS),
        "spearman": {"all": [dict(ranking.spearman) for ranking in results], f"without {', '.join(NOT_INVARIANT)}": kept},
        "ranking": asdict(results[0]),
    }


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _write(path: Path, values: dict[str, object]) -> None:
    path.write_text(json.dumps({"machine": machine(), **values}, indent=2) + "\n")
    print(f"wrote {path.relative_to(ROOT)}")


def main() -> None:
    """Measure, print and write the requested results."""
    if sys.argv[1:] == ["rank"]:
        _write(RESULTS / "theory-rank-mnist.json", rankings(0, 400))
        _write(RESULTS / "theory-rank-mnist-features.json", rankings(2000, 1000))
    elif sys.argv[1:]:
        sys.exit(f"usage: python benchmarks/theory.py [rank], got {' '.join(sys.argv[1:])}")
    else:
        _write(RESULTS / "theory.json", times())


if __name__ == "__main__":
    main()
