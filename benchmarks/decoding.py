"""Images per second that are decoded and resized from a folder of JPEG files: outspan, torchvision and DALI.

    make .venv-bench/ready && .venv-bench/bin/pip install nvidia-dali-cuda120
    taskset -c 0,1 .venv-bench/bin/python benchmarks/decoding.py --out results/decoding.json

All read the same files with two processes or threads, and return uint8 batches of 64 images of 224 px. outspan and torchvision
decode with Pillow, with the same DataLoader. DALI decodes on the CPU with its own library. All take turns in every round, each
reads the folder once per turn; the result is the median over rounds. Starting the processes is part of a turn, as in an epoch.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from machine import machine
from photographs import make, paths_and_labels

from outspan.data.image_files import Files
from transforms import declare_torchvision_operators

SIZE, BATCH, WORKERS = 224, 64, 2
Run = Callable[[Path], int]  # reads a folder and returns the number of images
SHAPES = {"500 x 375": (500, 375), "2016 x 1512": (2016, 1512)}  # as in ImageNet, and of phones (3 megapixels)


def outspan_reader(folder: Path) -> int:
    """Read with outspan."""
    paths, labels = paths_and_labels(folder)
    rows = torch.arange(len(paths)).split(BATCH)
    return sum(len(images) for images, _ in Files(paths, labels, SIZE, WORKERS).batches(rows, torch.device("cpu")))


def torchvision_reader() -> Run:
    """Return the reader of torchvision: an ImageFolder, which opens files with Pillow, and its transforms."""
    declare_torchvision_operators()
    from torchvision import datasets
    from torchvision.transforms import v2

    def run(folder: Path) -> int:
        resize = v2.Compose([v2.Resize(SIZE), v2.CenterCrop(SIZE), v2.PILToTensor()])
        data = datasets.ImageFolder(str(folder), resize)
        return sum(len(images) for images, _ in torch.utils.data.DataLoader(data, BATCH, num_workers=WORKERS))

    return run


def dali_reader() -> Run:
    """Return the reader of DALI on the CPU."""
    from nvidia.dali import fn, pipeline_def, types

    def run(folder: Path) -> int:
        @pipeline_def(batch_size=BATCH, num_threads=WORKERS, device_id=None)
        def pipeline():
            files, labels = fn.readers.file(file_root=str(folder), name="files", pad_last_batch=True)
            images = fn.resize(fn.decoders.image(files, device="cpu"), resize_shorter=SIZE)
            return fn.crop_mirror_normalize(images, crop=(SIZE, SIZE), dtype=types.UINT8, output_layout="CHW"), labels

        built = pipeline()
        built.build()
        count = built.epoch_size("files")
        for _ in range(-(-count // BATCH)):
            built.run()
        return count

    return run


def readers() -> tuple[dict[str, Run], dict[str, str]]:
    """Return the readers by name, and why others are missing."""
    found: dict[str, Run] = {"outspan": outspan_reader}
    missing = {}
    for name, build in (("torchvision", torchvision_reader), ("DALI", dali_reader)):
        try:
            found[name] = build()
        except (ImportError, OSError, RuntimeError) as error:
            missing[name] = f"{type(error).__name__}: {error}"
    return found, missing


def measure(runs: Mapping[str, Run], folder: Path, rounds: int) -> dict[str, float]:
    """Return images per second by reader."""
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            count = run(folder)
            if turn:  # the first round is a warm-up
                speeds[name].append(count / (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in speeds.items()}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2_000, help="of the smaller shape; a tenth of the larger one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    runs, missing = readers()
    speeds = {}
    for number, (shape, size) in enumerate(SHAPES.items()):
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), 20, max(1, options.images // (10**number * 20)), size)
            speeds[shape] = measure(runs, Path(folder), options.rounds)
    for shape, by_name in speeds.items():
        print(f"{shape}:", ", ".join(f"{name} {speed:.0f} images/s" for name, speed in by_name.items()))
    for name, reason in missing.items():
        print(f"{name} is missing: {reason}")
    ahead = {shape: one["outspan"] / one["torchvision"] for shape, one in speeds.items() if "torchvision" in one}
    result = {
        "machine": machine("torchvision", "nvidia-dali-cuda120"),
        "what": f"images per second from JPEG files to uint8 batches of {BATCH} at {SIZE} px, {WORKERS} processes or threads",
        "images_per_second": speeds,
        "missing": missing,
        "bar": {"times torchvision, above": 1.0, "got": ahead, "reached": bool(ahead) and min(ahead.values()) > 1.0},
        "rounds": options.rounds,
        "load": os.getloadavg(),
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
