"""Shake-Shake and PyramidNet beside plain networks of the same shapes, without noise: forward and backward.

    python benchmarks/models.py --out results/models.json

The plain contestant is the same network whose branches are averaged and whose blocks always pass. Both take turns within every
round, with launches recorded as in training and one by one; the figure is the median round. On a GPU: bf16, channels-last.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from unittest import mock

import torch
from machine import ROOT, machine, wait
from torch import Tensor

from outspan import models
from outspan.training.graphs import Learner
from outspan.training.loop import algorithms

PLAIN = [  # modules, whose names are those of functions, too: what is drawn there, and what stands for it
    ("outspan.models.shake_shake", "mix", lambda first, second, _: (first + second) * 0.5),
    ("outspan.models.pyramidnet", "draw_drops", lambda values, survival: values.new_empty(2, len(survival), 0)),
    ("outspan.models.pyramidnet", "shake_drop", lambda around, values, *_: around + values),
]
CASES = {"shake_shake-26-2x96d": 128, "pyramidnet-272-200": 64}  # the paper's batches
BAR = 1.1


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(CASES))
    parser.add_argument("--batch", type=int, default=0, help="0: the paper's")
    parser.add_argument("--calls", type=int, default=10, help="a turn")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "models.json")
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = json.loads(asked.out.read_text()) if asked.out.exists() else {}  # what is measured again replaces the old
    for name in asked.models.split(","):
        batch = asked.batch or CASES[name]
        for how in ("recorded", "one by one") if device.type == "cuda" else ("one by one",):
            times = measure(name, batch, asked.calls, asked.rounds, device, graphs=how == "recorded")
            ratio = times["noise"] / times["plain"]
            entry = {"ms": times, "over_plain": ratio, "at_most": BAR, "reached": ratio <= BAR, "rounds": asked.rounds}
            found[f"{name}, batch {batch}, {how}"] = {**entry, "machine": machine()}
            print(f"{name}, {how}: {times['noise']:.2f} ms, plain {times['plain']:.2f}, {ratio:.3f} of it", flush=True)
    asked.out.write_text(json.dumps(found, indent=2) + "\n")


def measure(name: str, batch: int, calls: int, rounds: int, device: torch.device, *, graphs: bool) -> dict[str, float]:
    """Return milliseconds of a forward and backward pass, with noise and without."""
    on_gpu = device.type == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    generator = torch.Generator().manual_seed(0)
    layout = torch.channels_last if on_gpu else torch.contiguous_format
    images = torch.randn(batch, 3, 32, 32, generator=generator).to(device, dtype).to(memory_format=layout)
    targets = torch.full((batch, 10), 0.1, device=device)
    runs: dict[str, Callable[[], Tensor]] = {}
    for kind in ("noise", "plain"):
        model = models.build(name, (3, 32, 32), 10).to(device).to(memory_format=layout).train()
        learner = Learner(model, 0.0, graphs=graphs)
        runs[kind] = lambda f=learner, plain=kind == "plain": without_noise(f, images, targets) if plain else f(images, targets)
    times: dict[str, list[float]] = {kind: [] for kind in runs}
    with algorithms(deterministic=False):
        for turn in range(rounds + 1):  # the first warms up and records
            for kind, run in runs.items():
                wait(device)
                start = time.perf_counter()
                for _ in range(calls):
                    run()
                wait(device)
                if turn:
                    times[kind].append(1000 * (time.perf_counter() - start) / calls)
    return {kind: statistics.median(values) for kind, values in times.items()}


def without_noise(learner: Learner, images: Tensor, targets: Tensor) -> Tensor:
    """Learn with both kinds of noise taken out; what is recorded stays so."""
    with ExitStack() as stack:
        for module, name, function in PLAIN:
            stack.enter_context(mock.patch.object(import_module(module), name, function))
        return learner(images, targets)


if __name__ == "__main__":
    main()
