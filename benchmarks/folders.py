"""How long it takes to list an image folder of a million files at the first start, and at later starts.

    python benchmarks/folders.py --out results/folders.json

The files are empty, because a listing does not read them: `decoding.py` measures how fast images are decoded. Every start is a
process of its own. First and second starts take turns. The folders are in the memory of the operating system in both cases, so
a first start from a disk takes longer. The CPU time is measured, too: on a busy machine it is the more reliable number.
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

from outspan.data.folders import list_folder

BAR = 5.0  # seconds for a second start
SETTLED = 11  # seconds; folders that have just been modified are not stored


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where the files are created (default: the temporary folder)")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--list", type=Path, help=argparse.SUPPRESS)  # a start: list this folder and print the seconds
    options = parser.parse_args()
    if options.list:
        begin, cpu = time.perf_counter(), time.process_time()
        (train, _), (test, _), _, _ = list_folder(options.list)
        print(json.dumps([time.perf_counter() - begin, time.process_time() - cpu, len(train) + len(test)]))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for split, count in (("train", options.files // options.classes), ("val", 1)):
            make(Path(folder, "data", split), options.classes, count)
        time.sleep(SETTLED)
        # The folder `train` alone is data without splits.
        layouts = {"train and val": Path(folder, "data"), "class folders": Path(folder, "data", "train")}
        rounds = {name: measure(path, Path(folder, "cache"), options.rounds) for name, path in layouts.items()}
    medians = {
        name: {start: [statistics.median(column) for column in zip(*times, strict=True)] for start, times in starts.items()}
        for name, starts in rounds.items()
    }
    result = {
        "machine": machine(),
        "what": f"[seconds, CPU seconds] to list {options.files:,} files in {options.classes:,} class folders",
        f"medians_of_{options.rounds}": medians,
        "bar": {"second start, at most": BAR, "reached": all(starts["second"][0] <= BAR for starts in medians.values())},
        "load": os.getloadavg(),  # of the machine at the end, over 1, 5 and 15 minutes
        "rounds": rounds,
    }
    print(json.dumps(medians, indent=2))
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")


def make(split: Path, classes: int, count: int) -> None:
    """Create the class folders of a split, each with a number of empty files."""
    for label in range(classes):
        folder = split / f"n{label:08}"
        folder.mkdir(parents=True)
        for i in range(count):
            os.close(os.open(folder / f"n{label:08}_{i}.JPEG", os.O_CREAT))


def measure(data: Path, cache: Path, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return the seconds and the CPU seconds of first and second starts."""
    times: dict[str, list[tuple[float, float]]] = {"first": [], "second": []}
    for _ in range(rounds):
        for listing in cache.glob("listings/*"):
            listing.unlink()
        for start in times:
            command = [sys.executable, __file__, "--list", str(data)]
            environment = os.environ | {"OUTSPAN_DATA": str(cache)}
            output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
            passed, cpu, count = json.loads(output)
            print(f"{data.name}, {start} start: {count:,} files in {passed:.2f} s, {cpu:.2f} s of CPU time", flush=True)
            times[start].append((passed, cpu))
    return times


if __name__ == "__main__":
    main()
