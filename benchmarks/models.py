"""Time Shake-Shake and PyramidNet against the same networks without noise: forward and backward pass.

    python benchmarks/models.py --out results/models.json

In the plain network the branches are averaged and no block is dropped. Both take turns in every round, with CUDA graphs as in
training and without; the result is the median over rounds. On a GPU: bf16, channels-last.
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
from outspan.training.setup import use_algorithms
from outspan.training.step import Learner

PLAIN = [  # module (as text: functions have the same names), function that draws noise, and its replacement
    ("outspan.models.shake_shake", "mix", lambda first, second, _: (first + second) * 0.5),
    ("outspan.models.pyramidnet", "draw_drops", lambda values, survival: values.new_empty(2, len(survival), 0)),
    ("outspan.models.pyramidnet", "shake_drop", lambda around, values, *_: around + values),
]
CASES = {"shake_shake-26-2x96d": 128, "pyramidnet-272-200": 64}  # model: batch size of the paper
BAR = 1.1


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(CASES))
    parser.add_argument("--batch", type=int, default=0, help="batch size; 0: that of the paper")
    parser.add_argument("--calls", type=int, default=10, help="calls per turn")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "models.json")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    result = json.loads(options.out.read_text()) if options.out.exists() else {}  # new measurements replace old ones
    for name in options.models.split(","):
        batch = options.batch or CASES[name]
        for how in ("recorded", "one by one") if device.type == "cuda" else ("one by one",):
            times = measure(name, batch, options.calls, options.rounds, device, graphs=how == "recorded")
            ratio = times["noise"] / times["plain"]
            entry = {"ms": times, "over_plain": ratio, "at_most": BAR, "reached": ratio <= BAR, "rounds": options.rounds}
            result[f"{name}, batch {batch}, {how}"] = {**entry, "machine": machine()}
            print(f"{name}, {how}: {times['noise']:.2f} ms, plain {times['plain']:.2f}, {ratio:.3f} of it", flush=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")


def measure(name: str, batch: int, calls: int, rounds: int, device: torch.device, *, graphs: bool) -> dict[str, float]:
    """Return milliseconds of a forward and backward pass, with noise and without."""
    on_gpu = device.type == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    generator = torch.Generator().manual_seed(0)
    layout = torch.channels_last if on_gpu else torch.contiguous_format
    images = torch.randn(batch, 3, 32, 32, generator=generator).to(device, dtype).to(memory_format=layout)
    targets = torch.full((batch, 10), 0.1, device=device)
    runs: dict[str, Callable[[], Tensor]] = {}
    for variant in ("noise", "plain"):
        model = models.build(name, (3, 32, 32), 10).to(device).to(memory_format=layout).train()
        learner = Learner(model, 0.0, graphs=graphs)
        runs[variant] = lambda f=learner, plain=variant == "plain": (
            without_noise(f, images, targets) if plain else f(images, targets)
        )
    times: dict[str, list[float]] = {variant: [] for variant in runs}
    with use_algorithms(deterministic=False):
        for turn in range(rounds + 1):  # the first round is a warm-up and captures the graphs
            for variant, run in runs.items():
                wait(device)
                start = time.perf_counter()
                for _ in range(calls):
                    run()
                wait(device)
                if turn:
                    times[variant].append(1000 * (time.perf_counter() - start) / calls)
    return {variant: statistics.median(values) for variant, values in times.items()}


def without_noise(learner: Learner, images: Tensor, targets: Tensor) -> Tensor:
    """Train without both types of noise. Captured graphs keep this."""
    with ExitStack() as stack:
        for module, name, function in PLAIN:
            stack.enter_context(mock.patch.object(import_module(module), name, function))
        return learner(images, targets)


if __name__ == "__main__":
    main()
