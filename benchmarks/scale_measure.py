"""Measure the parts of a step that docs/scale.md needs: reading JPEG files, agreeing with other ranks, and ResNet-50 on a GPU.

    OMP_NUM_THREADS=1 python benchmarks/scale_measure.py --parts decode,agree
    PYTHONPATH=src python3 benchmarks/scale_measure.py --parts resnet-50            # needs a GPU, about 4 minutes

The results are added to results/scale.json. `benchmarks/scale.py` then writes the page.
"""

import argparse
import io
import json
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from machine import ROOT, machine, wait
from PIL import Image

from outspan import rng
from outspan.config import Recipe
from outspan.data.dataset import Data
from outspan.data.decode import read_cropped
from outspan.data.image import example_image
from outspan.data.image_files import Files
from outspan.data.splits import InMemory
from outspan.policies.table import build_policy
from outspan.training.distributed import Ranks
from outspan.training.graphs import GraphModel
from outspan.training.setup import use_algorithms
from outspan.training.state import new_state
from outspan.training.step import Learner, take_step
from outspan.transforms.normalize import Normalize

RESULT = ROOT / "results" / "scale.json"
WIDTH, HEIGHT, BYTES = 500, 375, 107_700  # a usual size of an ImageNet file, and their mean number of bytes
SIDE, FILES, CALLS = 224, 200, 300
Step = Callable[[int], object]


def jpeg() -> bytes:
    """Return a JPEG file of the included photograph with noise, as large as a file of ImageNet."""
    pixels = np.asarray(Image.fromarray(example_image()[0].permute(1, 2, 0).numpy()).resize((WIDTH, HEIGHT)), np.float64)
    noisy = (pixels + rng.generator(0, "noise").normal(0, 12, pixels.shape)).clip(0, 255).astype(np.uint8)
    files = []
    for quality in range(50, 100):
        file = io.BytesIO()
        Image.fromarray(noisy).save(file, "JPEG", quality=quality)
        files.append(file.getvalue())
    return min(files, key=lambda content: abs(len(content) - BYTES))


def measure_decode(rounds: int) -> dict[str, Any]:
    """Return the images per second that one core reads, crops and resizes: alone, and as one worker of a data loader."""
    content = jpeg()
    places = rng.generator(0, "crop").random((FILES, 4)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{i}.jpg" for i in range(FILES)]
        for path in paths:
            path.write_bytes(content)
        files = Files(paths * 2, torch.zeros(2 * FILES, dtype=torch.int64), SIDE, workers=1)  # enough files for a worker
        batches = torch.arange(2 * FILES).split(25)
        alone, cpu, worker = [], [], []
        for _ in range(rounds):
            began, used = time.perf_counter(), time.process_time()
            for path, place in zip(paths, places, strict=True):
                read_cropped(path, SIDE, place)
            alone.append(FILES / (time.perf_counter() - began))
            cpu.append(FILES / (time.process_time() - used))
            reader = files.batches(batches, torch.device("cpu"), (0, 0))
            next(reader)  # the worker has started
            began, count = time.perf_counter(), sum(len(images) for images, _ in reader)
            worker.append(count / (time.perf_counter() - began))
    rates = {"read_cropped": alone, "read_cropped, per CPU second": cpu, "one worker": worker}
    medians = {name: round(statistics.median(values), 1) for name, values in rates.items()}
    return {"images_per_second": medians, "file": {"width": WIDTH, "height": HEIGHT, "bytes": len(content)}, "side": SIDE}


def agree_often(rank: int, world: int, port: int, pipe: Any) -> None:
    """Agree with the other ranks as a training loop does, and send the median milliseconds."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    ranks, times = Ranks(rank, world, True), []
    for _ in range(CALLS):
        began = time.perf_counter()
        ranks.agree(False, False)
        times.append(1000 * (time.perf_counter() - began))
    pipe.send(statistics.median(times[CALLS // 10 :]))
    dist.destroy_process_group()


def measure_agree(worlds: Sequence[int]) -> dict[str, Any]:
    """Return the milliseconds of an agreement by number of ranks, all on this machine."""
    context, result = multiprocessing.get_context("spawn"), {}
    for world in worlds:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        pipes = [context.Pipe(duplex=False) for _ in range(world)]
        started = [context.Process(target=agree_often, args=(rank, world, port, pipes[rank][1])) for rank in range(world)]
        for process in started:
            process.start()
        result[str(world)] = round(max(ours.recv() for ours, _ in pipes), 4)
        for process in started:
            process.join()
    return {"ms": result}


def measure_resnet(batches: Sequence[int], rounds: int, *, compiled: bool) -> dict[str, Any]:
    """Return the milliseconds of a step of one rank by its number of images: plain training, and Algorithm 1 and its parts."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    result: dict[str, Any] = {}
    base = Recipe(data="imagenet", model="resnet-50", defaults="imagenet-cropped")
    for batch in batches:
        generator = torch.Generator().manual_seed(0)
        images = torch.randint(0, 256, (batch, 3, SIDE, SIDE), dtype=torch.uint8, generator=generator)
        samples = InMemory(images, torch.arange(batch) % 1000)
        data = Data("imagenet", samples, samples, tuple(map(str, range(1000))))
        runs: dict[str, Step] = {}
        for name, keys in {"plain": {"policy": "none"}, "algorithm 1": {"policy": "uncertain"}}.items():
            recipe = replace(base, batch=batch, **{"candidates": 8, "keep": 4} | keys)
            runs |= _steps(name, recipe, data, device, compiled=compiled)
        result[str(batch)] = _time(runs, rounds, device)
        print(batch, result[str(batch)], flush=True)
    return {"ms": result, "candidates": 8, "keep": 4, "compiled": compiled}


def _steps(name: str, recipe: Recipe, data: Data, device: torch.device, *, compiled: bool) -> dict[str, Step]:
    """Return a function of a step number that does one step; for Algorithm 1 also one that does all but the update."""
    on_gpu = device.type == "cuda"
    state = new_state(recipe, data.train.shape, 1000, device)
    learner = Learner(torch.compile(state.model) if compiled else state.model, 0.0, graphs=on_gpu)
    model = GraphModel(learner.model) if on_gpu else learner.model
    dtype = torch.bfloat16 if on_gpu else torch.float32
    preprocess = Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26), dtype, channels_last=on_gpu)
    policy = build_policy(recipe, model, data, preprocess)
    model.train()
    images, labels = data.train.images.to(device), data.train.labels.to(device)
    runs = {name: lambda step: take_step(state, learner, recipe, policy(images, labels, step=step), 0.01)}
    return runs if name == "plain" else {**runs, "policy": lambda step: policy(images, labels, step=step)}


def _time(runs: dict[str, Step], rounds: int, device: torch.device) -> dict[str, float]:
    """Return the median milliseconds per step of each function; they take turns."""
    steps, times = 10 if device.type == "cuda" else 1, {name: list[float]() for name in runs}
    with use_algorithms(deterministic=False):
        for turn in range(rounds + 1):  # the first round is a warm-up
            for name, run in runs.items():
                wait(device)
                began = time.perf_counter()
                for step in range(steps):
                    run(step)
                wait(device)
                if turn:
                    times[name].append(1000 * (time.perf_counter() - began) / steps)
    return {name: round(statistics.median(values), 3) for name, values in times.items()}


def main() -> None:
    """Measure the parts, print them, and add them to the result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="decode,agree", help="comma-separated: decode, agree, resnet-50")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, nargs="+", default=(5, 10, 20, 32, 64), help="images of a rank in a step")
    parser.add_argument("--compiled", action="store_true", help="compile ResNet-50 with torch.compile")
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "decode": lambda: measure_decode(options.rounds),
        "agree": lambda: measure_agree((2, 4, 8)),
        "resnet-50": lambda: measure_resnet(options.batches, options.rounds, compiled=options.compiled),
    }
    for part in options.parts.split(","):
        measured = measures[part]() | {"load": os.getloadavg()[0], "machine": machine()}
        print(f"{part}: {measured}", flush=True)
        results = json.loads(options.result.read_text()) if options.result.exists() else {}
        options.result.write_text(json.dumps({**results, part: measured}, indent=2) + "\n")


if __name__ == "__main__":
    main()
