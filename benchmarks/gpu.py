"""Measure on a GPU: equality with the reference on the CPU, speed compared with other libraries, the cost of a training step
by policy, absence of synchronisation, and bit-identical resuming.

    PYTHONPATH=src python3 benchmarks/gpu.py --out results/gpu.json                 # outspan need not be installed
    PYTHONPATH=src python3 benchmarks/gpu.py --part check                           # or sync, speed, steps, resume

All libraries take turns in every round of one process; the result is the median over rounds. The others work on bytes that
are already on the GPU: per sample, which is their only way to give every image its own transforms, and per batch, where all
images share one draw. outspan draws a plan and applies it, in one call each.
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from gpu_steps import check_that_steps_do_not_wait, count_resumed, end_alike, measure_steps
from machine import machine

from outspan import TRANSFORMS, Normalize, Plan, Step, apply, rng, sequence, uniform
from outspan.transforms.kernels.cuda import tasks

CASES = ((32, 4096), (32, 512), (224, 256))  # side, images in a batch
STEPS = {"wide_resnet-28-2": 512, "wide_resnet-28-10": 128}  # model: batch
PREPROCESS = Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26), torch.bfloat16, channels_last=True)
FILL = (125, 123, 114)
DEFAULTS = sequence(
    Step("random_crop"), Step("horizontal_flip", probability=0.5), Step("cutout"), Step("mixup", 0.0, 1.0)
)  # fmt: skip
Run = Callable[[], object]


def draw_images(side: int, count: int) -> torch.Tensor:
    """Return smooth and noisy images, and images with few values or a single one."""
    draw = rng.generator(0, "images", side)
    coarse = torch.from_numpy(draw.integers(0, 256, (count, 3, 5, 5), dtype=np.uint8))
    images = torch.nn.functional.interpolate(coarse.float(), size=(side, side), mode="bilinear").to(torch.uint8)
    quarter = count // 4
    images[:quarter] = torch.from_numpy(draw.integers(0, 256, (quarter, 3, side, side), dtype=np.uint8))
    images[quarter : quarter + 8] = images[quarter : quarter + 8] // 64 * 64
    images[quarter + 8 : quarter + 16] = images[quarter + 8 : quarter + 16, :, :1, :1]
    return images


def draw_plan(count: int, *, defaults: bool, seed: int = 0) -> Plan:
    """Return a plan of two random transforms per image, followed by the default transforms if requested."""
    plan = uniform(2, probability=1.0)(count, rng=rng.generator(seed, "plan"))
    return plan.then(DEFAULTS(count, rng=rng.generator(seed, "defaults"))) if defaults else plan


def count_differences() -> dict[str, int]:
    """Return the number of values that differ from the reference on the CPU, by case."""
    counts = {}
    for side, count in ((32, 4096), (224, 256)):
        images = draw_images(side, count)
        everything = uniform(3, transforms=tuple(TRANSFORMS), probability=0.9)(count, rng=rng.generator(1, "all", side))
        cases = {
            "any 3 of all": (images, everything, None),
            "2 and defaults, normalised": (images, draw_plan(count, defaults=True), PREPROCESS),
        }
        if side == 32:  # the reference is slow at 224
            cases["any 3 of all, grey"] = (images[:, :1].contiguous(), everything, None)
            cases["2 and defaults"] = (images, draw_plan(count, defaults=True, seed=1), None)
        for name, (pixels, plan, preprocess) in cases.items():
            fill = FILL[: pixels.shape[1]]
            here = apply(pixels.cuda(), plan, fill=fill, normalize=preprocess, backend="cuda").cpu()
            counts[f"{name}, {count} at {side} px"] = _differing(here, apply(pixels, plan, fill=fill, normalize=preprocess))
    small = draw_images(32, 64)[:, :, :9, :13].contiguous()
    levels = 0
    for name, transform in TRANSFORMS.items():
        low, high = (round(100 * level) for level in transform.levels)
        rows = high - low + 1
        plan = Plan.of(
            [[name]] * rows,
            levels=[[k / 100] for k in range(low, high + 1)],
            places=rng.generator(2, name).random((rows, 1, 4), dtype=np.float32).tolist(),
            partners=[[(row + 1) % rows] for row in range(rows)],
            source=[row % 64 for row in range(rows)],
        )
        levels += _differing(apply(small.cuda(), plan, backend="cuda").cpu(), apply(small, plan))
    counts["every level k/100 of every transform, 9x13 px"] = levels
    return counts


def _differing(ours: torch.Tensor, reference: torch.Tensor) -> int:
    return int((ours != reference).sum())


def measure_speed(side: int, count: int, rounds: int, peers: bool) -> dict[str, float]:
    """Return images per second of every library at one size, and of the part of outspan that runs on the host."""
    images = draw_images(side, count).cuda()
    plans = {defaults: draw_plan(count, defaults=defaults) for defaults in (False, True)}
    fill = torch.tensor(FILL, dtype=torch.uint8)
    runs: dict[str, tuple[Run, int]] = {
        "2 transforms": (lambda: apply(images, plans[False], fill=FILL), count),
        "2 and defaults, normalised": (lambda: apply(images, plans[True], fill=FILL, normalize=PREPROCESS), count),
        "  drawing the plan too": (
            lambda: apply(images, draw_plan(count, defaults=True), fill=FILL, normalize=PREPROCESS),
            count,
        ),
        "  on the host alone": (lambda: tasks.pack(plans[True], tuple(images.shape), fill, PREPROCESS, pin=True), count),
        "  the reference in torch": (
            lambda: apply(images, plans[True], fill=FILL, normalize=PREPROCESS, backend="reference"),
            count,
        ),
        **(_torchvision(images) if peers else {}),
        **(_kornia(images) if peers else {}),
    }
    return alternate(runs, rounds)


def alternate(runs: dict[str, tuple[Run, int]], rounds: int) -> dict[str, float]:
    """Return images per second by name: the median over rounds in which all take turns, with several calls per turn."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    calls = dict.fromkeys(runs, 1)
    for turn in range(rounds + 2):
        for name, (run, images) in runs.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls[name]):
                run()
            torch.cuda.synchronize()
            elapsed = (time.perf_counter() - start) / calls[name]
            if turn == 1:  # the first round compiles; about 20 ms per turn, because calls overlap with the device
                calls[name] = max(1, min(20, int(0.02 / elapsed)))
            if turn > 1:
                seconds[name].append(elapsed / images)
    return {name: 1 / statistics.median(times) for name, times in seconds.items()}


def _torchvision(images: torch.Tensor) -> dict[str, tuple[Run, int]]:
    """Return RandAugment, crop, flip, erasing, mixup and normalisation: per sample (for part of the batch) and per batch."""
    try:
        from torchvision.transforms import v2
    except ImportError:
        return {}
    side, count = images.shape[-1], 32
    chain = v2.Compose(
        [
            v2.RandAugment(2, 9),
            v2.RandomCrop(side, padding=side // 8, padding_mode="reflect"),
            v2.RandomHorizontalFlip(),
            v2.RandomErasing(1.0, (0.25, 0.25), (1.0, 1.0)),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(PREPROCESS.mean, PREPROCESS.std),
        ]
    )
    mixing = v2.MixUp(num_classes=10)
    labels = torch.zeros(len(images), dtype=torch.int64, device=images.device)

    def finish(batch: torch.Tensor) -> torch.Tensor:
        mixed, _ = mixing(batch, labels[: len(batch)])
        return mixed.to(torch.bfloat16, memory_format=torch.channels_last)

    return {
        "torchvision v2, per sample": (lambda: finish(torch.stack([chain(image) for image in images[:count]])), count),
        "torchvision v2, one draw a batch": (lambda: finish(chain(images)), len(images)),
    }


def _kornia(images: torch.Tensor) -> dict[str, tuple[Run, int]]:
    """Return kornia's RandAugment on a batch, followed by the same steps."""
    try:
        import kornia.augmentation as K
        from kornia.augmentation.auto import RandAugment
    except ImportError:
        return {}
    side = images.shape[-1]
    augment = RandAugment(2, 9)
    chain = torch.nn.Sequential(
        K.RandomCrop((side, side), padding=side // 8, padding_mode="reflect"),
        K.RandomHorizontalFlip(),
        K.RandomErasing((0.25, 0.25), (1.0, 1.0), p=1.0),
        K.Normalize(torch.tensor(PREPROCESS.mean), torch.tensor(PREPROCESS.std)),
    )

    def run() -> torch.Tensor:
        return chain(augment(images.float() / 255)).to(torch.bfloat16, memory_format=torch.channels_last)

    return {"kornia, one draw a batch": (run, len(images))}


def check_that_nothing_waits() -> str:
    """Return "nothing waits", or the error of torch for the first call that synchronises. Only warm-up calls may."""
    for side, count in ((32, 512), (224, 32)):
        images = draw_images(side, count).cuda()
        plans = [draw_plan(count, defaults=True, seed=seed) for seed in range(4)]
        plans += [uniform(3, transforms=tuple(TRANSFORMS))(count, rng=rng.generator(seed)) for seed in range(4)]
        for preprocess in (None, PREPROCESS):
            for plan in plans:
                apply(images, plan, fill=FILL, normalize=preprocess)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for preprocess in (None, PREPROCESS):
                for plan in plans:
                    apply(images, plan, fill=FILL, normalize=preprocess)
        except RuntimeError as error:
            return str(error)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return "nothing waits"


def main() -> None:
    """Run the requested parts, print a table and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("check", "sync", "speed", "steps", "resume", "all"), default="all")
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds, at least 5; the result is their median")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument(
        "--how", choices=("graphs", "plain", "compiled", "compiled graphs"), default="graphs", help="how training steps are run"
    )
    parser.add_argument("--models", nargs="+", default=list(STEPS), help="models of the training steps")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    if options.rounds < 5:
        parser.error("--rounds must be at least 5")
    warnings.filterwarnings("ignore")
    report: dict[str, object] = {"machine": machine("triton", "torchvision", "kornia"), "rounds": options.rounds}
    start = time.perf_counter()
    parts = {
        "check": ("numbers_differing_from_the_reference", count_differences),
        "sync": ("sync_check", lambda: {"apply": check_that_nothing_waits(), "steps": check_that_steps_do_not_wait()}),
        "speed": (
            "images_per_second",
            lambda: {
                f"{side} px, {count} images": measure_speed(side, count, options.rounds, not options.no_peers)
                for side, count in CASES
            },
        ),
        "steps": (
            f"ms_a_step, {options.how}",
            lambda: {
                f"{model}, batch {batch}": measure_steps(model, batch, options.rounds, options.how)
                for model, batch in STEPS.items()
                if model in options.models
            },
        ),
        "resume": ("resumed_to_the_bit", lambda: {"stops": count_resumed(), **end_alike()}),
    }
    for name, (key, work) in parts.items():
        if options.part in (name, "all"):
            report[key] = work()
            print(f"{name} done after {time.perf_counter() - start:.0f} s", flush=True)
            if options.out:  # after each part, so that it is kept if the next one fails
                options.out.write_text(json.dumps(report, indent=2) + "\n")
    print_report(report)


def print_report(report: dict) -> None:
    """Print the short table."""
    print(f"\n{report['machine']}")
    for name, count in report.get("numbers_differing_from_the_reference", {}).items():
        print(f"  {count:>9,} differ: {name}")
    for key in ("sync_check", "resumed_to_the_bit"):
        if key in report:
            print(f"  {key}: {report[key]}")
    for case, speeds in report.get("images_per_second", {}).items():
        count = int(case.split(", ")[1].split()[0])
        print(case)
        for name, value in speeds.items():
            print(f"  {name:34} {value:>12,.0f} images/s {1000 * count / value:>10.3f} ms per batch")
    for key in (key for key in report if key.startswith("ms_a_step")):
        for case, steps in report[key].items():
            print(f"{case}, {key}")
            for name, value in steps.items():
                print(f"  {name:34} {value:>8.2f} ms {value / steps['none']:>6.2f} of none")


if __name__ == "__main__":
    main()
