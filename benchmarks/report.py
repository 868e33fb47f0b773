"""The size of the report of a run of 60 epochs, and the time that it takes.

    python benchmarks/report.py --out results/report.json

The run is that of a small convolutional network on the digits with the policy uncertain, so that all sections are in the page.
The time is that of the command, `outspan report`, in a process of its own.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import machine

import outspan

ROUNDS = 5
MOST_BYTES, MOST_SECONDS = 3_000_000, 10.0


def main() -> None:
    """Train, write the report several times, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run, page = Path(folder) / "run", Path(folder) / "report.html"
        outspan.train(data="digits", model="convnet", policy="uncertain", epochs=options.epochs, out=run)
        command = [sys.executable, "-m", "outspan", "report", str(run), "-o", str(page)]
        seconds = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - began)
        size = page.stat().st_size
    result = {
        "machine": machine(),
        "command": "outspan report RUN",
        "run": f"digits, convnet, uncertain, {options.epochs} epochs",
        "bytes": size,
        "seconds": [round(value, 2) for value in seconds],
        "median_seconds": round(statistics.median(seconds), 2),
        "bar": {"bytes, at most": MOST_BYTES, "seconds, at most": MOST_SECONDS},
        "load": os.getloadavg(),  # of the machine at the end, over 1, 5 and 15 minutes
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"{size:,} bytes, median {result['median_seconds']} s of {ROUNDS}: {seconds}")


if __name__ == "__main__":
    main()
