"""Two random transforms per image on the CPU: outspan, Pillow, torchvision v2, timm, kornia and albumentations.

    make bench                        # installs the other libraries in a separate virtual environment, then runs this
    python benchmarks/transforms.py --rounds 7 --out results/transforms-cpu.json
    python benchmarks/transforms.py --drop-in --rounds 9  # only outspan.dropin.RandAugment; writes results/dropin-cpu.json

All take turns in every round of one process; the result is the median over rounds. The other libraries draw and apply image
by image, which is their only way to give every image its own transforms. outspan does this in one call. In the comparison with
Pillow's operations, both execute the same plan, Pillow from Pillow images to Pillow images.
"""

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from machine import ROOT, machine

from outspan import PAPER_16, TRANSFORMS, Plan, apply, dropin, rng, uniform
from outspan.data import example_image

sys.path.insert(0, str(ROOT / "tests"))
from pillow import CALLS, apply_with_pillow, to_pillow

SIZES = {32: 512, 224: 64}  # side: images in a batch
DROP_IN_BATCH, DROP_IN_BAR = 128, 6  # at 224 px, one core: speed relative to the fastest other library
BARS = {32: (35, 30), 224: (8, 5)}  # targets on one core: speed relative to Pillow's operations, and to the best other library
PEERS = ("torchvision", "timm", "kornia", "albumentations", "opencv-python-headless")
Run = Callable[[], object]


def photographs(side: int, count: int) -> torch.Tensor:
    """Return random crops of a photograph, so that pixels are correlated as in real data."""
    draw = uniform(1, transforms=("resized_crop",), probability=1.0)
    crops = apply(example_image().expand(count, -1, -1, -1), draw(count, rng=rng.generator(0, "crops", side)))
    return torch.nn.functional.interpolate(crops, size=(side, side)) if side != 224 else crops


def run_threads(threads: int, work: Callable[[int], object], count: int) -> None:
    """Run `work` on 0 … count - 1 in several threads. Pillow and OpenCV release the GIL."""
    if threads == 1:
        for i in range(count):
            work(i)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(count), chunksize=count // (4 * threads) or 1))


def peers(images: torch.Tensor, threads: int) -> tuple[dict[str, tuple[Run, int]], list[str]]:
    """Return the installed libraries, each with its number of images per run, and the names of missing ones."""
    installed: dict[str, tuple[Run, int]] = {}
    missing = []
    count = len(images)
    pictures = [to_pillow(image) for image in images]

    def add(name: str, work: Callable[[int], object], images_per_run: int = count) -> None:
        installed[name] = (lambda: run_threads(threads, work, images_per_run), images_per_run)

    try:
        declare_torchvision_operators()
        from torchvision.transforms import v2

        on_tensor, on_picture = v2.RandAugment(2, 9), v2.RandAugment(2, 9)
        add("torchvision v2, tensor", lambda i: on_tensor(images[i]), min(count, 128))
        add("torchvision v2, Pillow", lambda i: on_picture(pictures[i]))
    except ImportError:
        missing.append("torchvision")
    try:
        from timm.data.auto_augment import rand_augment_transform

        timm_augment = rand_augment_transform("rand-m9-n2-mstd0.5", {})
        add("timm", lambda i: timm_augment(pictures[i]))
    except ImportError:
        missing.append("timm")
    try:
        from kornia.augmentation.auto import RandAugment

        floats, kornia_augment = images.float() / 255, RandAugment(2, 9)
        add("kornia", lambda i: kornia_augment(floats[i : i + 1]), min(count, 16))
    except ImportError:
        missing.append("kornia")
    try:
        import albumentations
        import cv2

        cv2.setNumThreads(1)
        arrays = [np.asarray(picture) for picture in pictures]
        composed = _albumentations(albumentations)
        add("albumentations", lambda i: composed(image=arrays[i]))
    except ImportError:
        missing.append("albumentations")
    return installed, missing


def _albumentations(a: object) -> Callable[..., object]:
    nearest = {"interpolation": 0, "p": 1.0}
    choices = [
        a.AutoContrast(p=1.0), a.Equalize(mode="pil", p=1.0), a.InvertImg(p=1.0), a.Posterize((4, 8), p=1.0),
        a.Solarize((0.0, 1.0), p=1.0), a.Sharpen(p=1.0),
        a.ColorJitter((0.1, 1.9), 0, 0, 0, p=1.0), a.ColorJitter(0, (0.1, 1.9), 0, 0, p=1.0),
        a.ColorJitter(0, 0, (0.1, 1.9), 0, p=1.0), a.Affine(rotate=(-30, 30), **nearest),
        a.Affine(shear={"x": (-17, 17), "y": 0}, **nearest), a.Affine(shear={"x": 0, "y": (-17, 17)}, **nearest),
        a.Affine(translate_percent={"x": (-0.3, 0.3), "y": 0}, **nearest),
        a.Affine(translate_percent={"x": 0, "y": (-0.3, 0.3)}, **nearest),
        a.CoarseDropout((1, 1), (0.05, 0.5), (0.05, 0.5), p=1.0),
    ]  # fmt: skip
    return a.Compose([a.SomeOf(choices, n=2, replace=False)])


def declare_torchvision_operators() -> None:
    """Declare two operators that a CPU build of torch lacks. Otherwise torchvision cannot be imported."""
    try:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        globals()["_torchvision_library"] = library  # the declaration lives as long as this reference
    except RuntimeError:
        pass  # already declared


def alternate(runs: dict[str, tuple[Run, int]], rounds: int) -> dict[str, float]:
    """Return images per second by name: the median over rounds in which all take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, (run, images) in runs.items():
            start = time.perf_counter()
            run()
            if turn:  # the first round is a warm-up
                seconds[name].append((time.perf_counter() - start) / images)
    return {name: 1 / statistics.median(times) for name, times in seconds.items()}


def measure_speed(side: int, threads: int, rounds: int, alone: dict[str, float]) -> dict[str, object]:
    """Return images per second of every library at one size, and our ratios."""
    torch.set_num_threads(threads)
    images = photographs(side, SIZES[side])
    count = len(images)
    propose = uniform(2, probability=1.0)
    plan = propose(count, rng=rng.generator(0, "plan"))
    pictures = [to_pillow(image) for image in images]
    steps = [
        [(CALLS[plan.names[op]], level, place, partner) for op, level, place, partner in zip(*row, strict=True)]
        for row in zip(plan.ops.tolist(), plan.levels.tolist(), plan.places.tolist(), plan.partners.tolist(), strict=True)
    ]

    def same(i: int) -> object:
        picture = pictures[i]
        for call, level, place, partner in steps[i]:
            picture = call(picture, level, place, pictures[partner], (0, 0, 0))
        return picture

    others, missing = peers(images, threads)
    out = torch.empty_like(
        images
    )  # reused for every batch, as in a training loop; the allocators of the others reuse memory, too
    runs = {
        "outspan": (lambda: apply(images, propose(count, rng=rng.generator(0, "plan")), out=out), count),
        "outspan, plan given": (lambda: apply(images, plan, out=out), count),
        "Pillow, same operations": (lambda: run_threads(threads, same, count), count),
        **others,
    }
    speed = alternate(runs, rounds)
    # On small images, threads of other libraries wait for the interpreter: on two cores, their better number of threads counts.
    fair = {name: max(value, alone.get(name, 0.0)) for name, value in speed.items()}
    best = max(others, key=lambda name: fair[name], default=None)
    return {
        "side": side,
        "cores": threads,
        "batch": count,
        "images_per_second": {name: round(value) for name, value in speed.items()},
        "over_pillow": round(speed["outspan, plan given"] / fair["Pillow, same operations"], 1),
        "best_peer": best,
        "over_best_peer": round(speed["outspan"] / fair[best], 1) if best else None,
        "not_installed": missing,
    }


def measure_drop_in(rounds: int) -> dict[str, object]:
    """Return images per second of the drop-in RandAugment, for a batch and image by image, and of the other libraries."""
    torch.set_num_threads(1)
    images, transform = photographs(224, DROP_IN_BATCH), dropin.RandAugment(2, 9)
    others, missing = peers(images, 1)
    speed = alternate(
        {
            "outspan.dropin.RandAugment": (lambda: transform(images), DROP_IN_BATCH),
            "outspan.dropin.RandAugment, image by image": (lambda: [transform(image) for image in images], DROP_IN_BATCH),
            **others,
        },
        rounds,
    )
    return {
        "machine": machine(*PEERS),
        "transforms": "RandAugment with 2 operations at magnitude 9",
        "rounds": rounds,
        "side": 224,
        "cores": 1,
        "batch": DROP_IN_BATCH,
        "images_per_second": {name: round(value) for name, value in speed.items()},
        "over": {name: round(speed["outspan.dropin.RandAugment"] / speed[name], 1) for name in others},
        "bar": DROP_IN_BAR,
        "not_installed": missing,
    }


def measure_scaling(side: int, rounds: int) -> dict[str, float]:
    """Return the speedup of two cores over one, for outspan and for pure arithmetic, which is the limit of the machine."""
    images = photographs(side, 2 * SIZES[side])
    plan = uniform(2, probability=1.0)(len(images), rng=rng.generator(0, "plan"))
    block, out = bytes(4 << 20), torch.empty_like(images)

    def on(threads: int) -> None:
        torch.set_num_threads(threads)
        apply(images, plan, out=out)

    def arithmetic(threads: int) -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda _: hashlib.blake2b(block).digest(), range(4)))

    speedups = {}
    for name, work in (("outspan", on), ("machine", arithmetic)):
        speed = alternate({"one": (lambda work=work: work(1), 1), "two": (lambda work=work: work(2), 1)}, 10 * rounds)
        speedups[name] = round(speed["two"] / speed["one"], 2)
    return speedups


def measure_drawing(images: int, rounds: int) -> float:
    """Return the fraction of the time for drawing in drawing and applying: 32 px, 4 candidates per image, one core."""
    torch.set_num_threads(1)
    pixels, propose = photographs(32, images), uniform(2, probability=1.0)
    plan = propose(images, rng=rng.generator(0, "plan"), candidates=4)
    out = torch.empty((4 * images, 3, 32, 32), dtype=torch.uint8)
    speed = alternate(
        {
            "draw": (lambda: propose(images, rng=rng.generator(0, "plan"), candidates=4), 1),
            "apply": (lambda: apply(pixels, plan, out=out), 1),
        },
        10 * rounds,
    )
    return speed["apply"] / (speed["apply"] + speed["draw"])


def count_differences() -> dict[str, int]:
    """Return the number of bytes that differ from Pillow by case: both backends, RGB and L."""
    counts = {}
    for backend in ("reference", "cpu"):
        for channels, mode in ((3, "RGB"), (1, "L")):
            for side, count in ((32, 4096), (224, 256)):
                images = photographs(side, count)[:, :channels].contiguous()
                plan = uniform(2, probability=1.0)(count, rng=rng.generator(0, "exact", side, channels))
                wrong = apply(images, plan, backend=backend) != apply_with_pillow(images, plan)
                counts[f"{backend}, {mode}, {count} compositions at {side} px"] = int(wrong.sum())
            images = photographs(32, 8)[:, :channels].contiguous()
            wrong = 0
            for name, transform in TRANSFORMS.items():
                if transform.graded:
                    plan = every_level(name, len(images))
                    wrong += int((apply(images, plan, backend=backend) != apply_with_pillow(images, plan)).sum())
            counts[f"{backend}, {mode}, every graded transform at every level k/100"] = wrong
    return counts


def every_level(name: str, batch: int) -> Plan:
    """Return a plan with one row for every level k/100 that the transform allows."""
    low, high = (round(100 * level) for level in TRANSFORMS[name].levels)
    levels = [[k / 100] for k in range(low, high + 1)]
    rows = len(levels)
    places = rng.generator(0, "places", name).random((rows, 1, 4), dtype=np.float32)
    partners = [[(row + 1) % rows] for row in range(rows)]
    source = [row % batch for row in range(rows)]
    return Plan.of([[name]] * rows, levels=levels, places=places.tolist(), partners=partners, source=source)


def measure_memory() -> float:
    """Return the peak extra memory of `apply` in batches (without its output) for a plan whose rows all mix twice."""
    torch.set_num_threads(2)
    images = photographs(224, 64).repeat(4, 1, 1, 1)
    rows = len(images)
    partners = [[-1, (row + 1) % rows, (row + 5) % rows] for row in range(rows)]
    plan = Plan.of([["rotate", "mixup", "mixup"]] * rows, levels=[[0.3, 0.4, 0.2]] * rows, partners=partners)
    apply(images[:1], Plan.of([["invert"]]))
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _status("VmRSS")
    out = apply(images, plan)
    peak = _status("VmHWM")
    return max(0.0, (peak - before - out.nbytes) / images.nbytes)


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def measure_help() -> float:
    """Return the seconds of `outspan --help`."""
    command = [sys.executable, "-m", "outspan", "--help"]
    times = []
    for _ in range(7):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds, at least 5; the result is their median")
    parser.add_argument("--drop-in", action="store_true", help="measure only the drop-in RandAugment")
    parser.add_argument("--out", type=Path, help="default: results/transforms-cpu.json, or results/dropin-cpu.json")
    options = parser.parse_args()
    if options.rounds < 5:
        parser.error("--rounds must be at least 5")
    warnings.filterwarnings("ignore")
    out = options.out or ROOT / "results" / ("dropin-cpu.json" if options.drop_in else "transforms-cpu.json")
    report = measure_drop_in(options.rounds) if options.drop_in else measure_all(options.rounds)
    if options.drop_in:
        print(json.dumps(report, indent=2))
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(report, indent=2) + "\n")


def measure_all(rounds: int) -> dict[str, object]:
    """Measure and print everything but the drop-in transforms."""
    memory = measure_memory()  # first, because the process is still small
    speeds = []
    for side in SIZES:
        alone = {}
        for threads in (1, 2):
            result = measure_speed(side, threads, rounds, alone)
            alone = result["images_per_second"]
            speeds.append(result)
            print(f"\n{side} px, {threads} core{'s' * (threads > 1)}, {result['batch']} images per batch")
            for name, value in result["images_per_second"].items():
                print(f"  {name:28} {value:>10,} images/s")
            print(f"  {'over Pillow, same operations':28} {result['over_pillow']:>10}")
            print(f"  over the best peer ({result['best_peer']}): {result['over_best_peer']}")
            if result["not_installed"]:
                print(f"  not installed: {', '.join(result['not_installed'])}")
    report = {
        "machine": machine(*PEERS),
        "transforms": f"2 of {len(PAPER_16)} an image, uniform levels",
        "seeds": [0],
        "rounds": rounds,
        "speeds": speeds,
        "two_cores_over_one": {side: measure_scaling(side, rounds) for side in SIZES},
        "share_of_drawing": {f"{n} images x 4": round(measure_drawing(n, rounds), 3) for n in (128, 512)},
        "extra_memory_in_batches": round(memory, 3),
        "help_seconds": round(measure_help(), 3),
        "bytes_differing_from_pillow": count_differences(),
    }
    print()
    for key in (
        "two_cores_over_one",
        "share_of_drawing",
        "extra_memory_in_batches",
        "help_seconds",
        "bytes_differing_from_pillow",
    ):
        print(f"{key}: {report[key]}")
    one_core = {s["side"]: (s["over_pillow"], s["over_best_peer"]) for s in speeds if s["cores"] == 1}
    print(f"one core, over Pillow and over the best peer: {one_core}; bars {BARS}")
    return report


if __name__ == "__main__":
    main()
