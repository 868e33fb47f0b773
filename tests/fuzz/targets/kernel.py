"""The compiled kernel: valid plans give the bytes of the reference, others are refused, no memory is read out of bounds."""

import json
from pathlib import Path

import torch

from fuzz.contract import attempt, expect
from fuzz.mutate import Draw, pick
from fuzz.targets.plans import FIELDS, VALUES, change, draw_plan
from outspan import Normalize, Plan, apply, rng
from outspan.transforms.kernels import cpu

SIZES = (
    (1, 1),
    (1, 3),
    (3, 1),
    (2, 2),
    (4, 4),
    (5, 5),
    (5, 63),
    (5, 64),
    (5, 65),
    (16, 16),
    (32, 32),
    (33, 31),
    (70, 130),
    (1, 700),
)
LARGE = ((1, 33_000), (33_000, 1), (2, 40_000), (3, 32_760), (300, 300))  # beyond 16.16 fixed point, and several threads
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def make(draw: Draw) -> bytes:
    """Return a plan, the shape of its images and the options of `apply` as JSON."""
    images = int(draw.integers(1, 5))
    size = pick(draw, LARGE) if draw.random() < 0.02 else pick(draw, SIZES)
    size = tuple(draw.integers(1, 80, 2).tolist()) if draw.random() < 0.3 else size
    changes = [[pick(draw, FIELDS), int(draw.integers(0, 40)), pick(draw, VALUES)] for _ in range(int(draw.integers(1, 4)))]
    return json.dumps(
        {
            "plan": draw_plan(draw, images).to_json(),
            "out": draw.integers(0, images, int(draw.integers(1, 6))).tolist() if draw.random() < 0.2 else None,
            "changes": changes if draw.random() < 0.3 else [],
            "resize": pick(draw, FIELDS) if draw.random() < 0.05 else "",
            "shape": [images, pick(draw, (1, 3)), *size],
            "seed": int(draw.integers(2**31)),
            "instruction_set": pick(draw, ("baseline", "avx2", "avx512")),
            "threads": pick(draw, (1, 1, 2, 3)),
            "normalize": pick(draw, (None, None, *DTYPES)),
            "channels_last": bool(draw.random() < 0.5),
            "strided": bool(draw.random() < 0.1),
        }
    ).encode()


def check(data: bytes, folder: Path) -> None:
    """Apply a plan on the kernel and on the reference."""
    case = json.loads(data)
    plan = Plan.from_json(case["plan"])
    if case["out"] is not None:
        plan = plan[case["out"]]
    for name, at, value in case["changes"]:
        change(plan, name, at, value)
    if case["resize"]:
        getattr(plan, case["resize"]).resize_(1)
    pixels = torch.from_numpy(rng.generator(case["seed"]).integers(0, 256, case["shape"], dtype="uint8"))
    if case["strided"]:
        pixels = pixels.transpose(2, 3).contiguous().transpose(2, 3)
    channels = case["shape"][1]
    preprocess = None
    if case["normalize"]:
        preprocess = Normalize((0.4,) * channels, (0.3,) * channels, DTYPES[case["normalize"]], case["channels_last"])
    expected = attempt(apply, pixels, plan, backend="reference", normalize=preprocess)
    before, threads = cpu._cpu.instruction_set(), torch.get_num_threads()
    try:
        cpu._cpu.use_instruction_set(case["instruction_set"])
    except ValueError:
        return  # not supported by this machine
    try:
        torch.set_num_threads(case["threads"])
        result = attempt(apply, pixels, plan, backend="cpu", normalize=preprocess)
    finally:
        torch.set_num_threads(threads)
        cpu._cpu.use_instruction_set(before)
    if expected is not None:
        expect(result is not None, "the kernel refuses a plan that the reference accepts")
        same = result.dtype == expected.dtype and result.stride() == expected.stride()
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[result.element_size()]
        same = same and torch.equal(result.view(bits), expected.view(bits))
        expect(same, "the bytes of the kernel differ from the reference")
