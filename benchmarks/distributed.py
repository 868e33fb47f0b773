"""One process as torchrun starts it, or one rank of a process group, against the plain loop, on the same device.

    python benchmarks/distributed.py                       # CPU, one thread, or the GPU if there is one
    python benchmarks/distributed.py --group --result results/distributed.json
    PYTHONPATH=src python3 benchmarks/distributed.py --gpu --result results/distributed-gpu.json    # and the checks on a GPU

Several copies of both runs train the same model in this process, in turns of some steps each. The median of the ratios of all
pairs of turns is printed, also for the CPU time, which depends less on other programs. A single process under torchrun runs the
plain loop, so its ratio shows the noise of the measurement. With --group the process has a process group of its own and does
what a rank does with several ranks: it reduces gradients and losses (NCCL on a GPU, gloo on a CPU), and agrees after every step
on whether to stop. A result file keeps the rows of all measurements.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from distributed_gpu import TOLERANCE, run_parts
from machine import machine

from outspan.config import Recipe
from outspan.data.sets import load_for
from outspan.training.distributed import Ranks
from outspan.training.joining import joined
from outspan.training.run import Run
from outspan.training.setup import Options, build_setup

Turn = Callable[[], tuple[float, float]]
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
BAR = 1.03  # of the time of a step on a GPU, against the plain loop


def make_turn(recipe: Recipe, device: torch.device, ranks: Ranks, steps: int, folder: Path) -> Turn:
    """Return a function that trains for some steps and returns the seconds that they take, and those of the CPU."""
    data = load_for(recipe)
    run = Run(build_setup(recipe, data, Options(device, ranks=ranks)), folder, device)
    batches = iter(())

    def turn() -> tuple[float, float]:
        nonlocal batches
        synchronize(device)
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            try:
                inputs, labels = next(batches)
            except StopIteration:
                batches = run.batches(0, 0)
                inputs, labels = next(batches)
            run.learn(run.augment(inputs, labels))
            ranks.agree(False, False)
        run.loss_queue.read()
        synchronize(device)
        return time.perf_counter() - began, time.process_time() - cpu

    return turn


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Return the type of the device, and the times and ratios."""
    torch.set_num_threads(1)
    os.environ |= ALONE | {"MASTER_PORT": str(20_000 + os.getpid() % 12_000)}
    on_gpu = torch.cuda.is_available()
    with ExitStack() as stack:
        if options.group:
            dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "cpu:gloo")
            stack.callback(dist.destroy_process_group)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ranks, device = stack.enter_context(joined(None))
        model = options.model or ("wide_resnet-28-10" if on_gpu else "wide_resnet-10-1")
        recipe = Recipe(data="digits", model=model, policy=options.policy, batch=128, epochs=1000, skip=0.0)
        couples = [
            [make_turn(recipe, device, each, options.steps, folder) for each in (Ranks(), ranks)] for _ in range(options.copies)
        ]
        for turn in (turn for turns in couples for turn in turns):
            turn()  # warm up, and record CUDA graphs
        pairs = [_take_turns(turns, first=i % 2) for i in range(options.turns) for turns in couples]
    row: dict[str, Any] = {"model": model, "group": options.group, "policy": options.policy, "copies": options.copies}
    row["pairs"] = len(pairs)
    row |= {"steps_per_turn": options.steps, "plain_copies_cpu_ms": _by_copy(pairs, options.copies, options.steps)}
    for i, clock in enumerate(("wall", "cpu")):
        row[f"{clock}_ms_per_step"] = round(1000 * statistics.median(plain[i] for plain, _ in pairs) / options.steps, 3)
        row[f"{clock}_ratio"] = round(statistics.median(rank[i] / plain[i] for plain, rank in pairs), 4)
    return device.type, row


def main() -> None:
    """Measure, print the ratio, and write it to a result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="default: wide_resnet-10-1 on a CPU, wide_resnet-28-10 on a GPU")
    parser.add_argument("--group", action="store_true", help="the process has a process group, as each of several ranks")
    parser.add_argument("--policy", default="random")
    parser.add_argument("--turns", type=int, default=5, help="pairs of turns per copy")
    parser.add_argument("--copies", type=int, default=5, help="copies of both runs: equal runs differ by where their memory is")
    parser.add_argument("--steps", type=int, default=10, help="steps per turn")
    parser.add_argument("--gpu", action="store_true", help="also train with NCCL and compile, and two processes on the GPU")
    parser.add_argument("--smoke", action="store_true", help="the parts of --gpu on the CPU with gloo: does the script run?")
    parser.add_argument("--limit", type=float, default=140.0, help="seconds that the parts of --gpu may take")
    parser.add_argument("--result", type=Path, help="JSON file to add the ratio to")
    options = parser.parse_args()
    if options.gpu or options.smoke:
        sys.exit(run_on_gpu(options))
    device, row = measure(options)
    print(f"{device}: {row}")
    if options.result:
        results: dict[str, Any] = json.loads(options.result.read_text()) if options.result.exists() else {"machine": machine()}
        results.setdefault(device, []).append(row)
        options.result.write_text(json.dumps(results, indent=2) + "\n")


def run_on_gpu(options: argparse.Namespace) -> int:
    """Run the parts of --gpu, print a line for each, and write a result file. Return the exit code."""
    if options.gpu and not torch.cuda.is_available():
        print("--gpu needs a GPU: use --smoke to try the script without one")
        return 2
    parts = run_parts(options.limit, device="cuda" if options.gpu else "cpu")
    for name, result in parts.items():
        print(f"{name}: " + ("FAILED: " if "failed" in result else "") + ", ".join(f"{k} {v}" for k, v in result.items()))
    print(f"bars: overhead {BAR}, relative difference {TOLERANCE}")
    if options.result:
        options.result.write_text(json.dumps({"machine": machine(), **parts}, indent=2) + "\n")
    return int(any("failed" in result for result in parts.values()))


def _by_copy(pairs: Sequence[Sequence[tuple[float, float]]], copies: int, steps: int) -> list[float]:
    """Return the CPU time of a step for each copy of the plain loop. They differ by where their memory is."""
    return [round(1000 * statistics.median(plain[1] for plain, _ in pairs[i::copies]) / steps, 3) for i in range(copies)]


def _take_turns(turns: Sequence[Turn], *, first: int) -> list[tuple[float, float]]:
    """Return the times of the plain loop and of the rank. Which one is first alternates."""
    times = {i: turns[i]() for i in (first, 1 - first)}
    return [times[0], times[1]]


if __name__ == "__main__":
    main()
