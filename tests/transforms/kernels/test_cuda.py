"""The Triton kernels compared with Pillow and the reference, on a GPU or with the interpreter of Triton."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import make_images, run_on, seeds
from outspan import TRANSFORMS, Normalize, Plan, apply, rng, uniform
from outspan.transforms.kernels import cuda
from outspan.transforms.kernels.cuda import tasks
from pillow import apply_with_pillow

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason="Triton is not installed")

MOVING = ["rotate", "shear_x", "shear_y", "translate_x", "translate_y"]
FILL = torch.zeros(3, dtype=torch.uint8)


def rows_of(name: str, levels: list[float], batch: int = 3) -> Plan:
    rows = len(levels)
    return Plan.of(
        [[name]] * rows,
        levels=[[level] for level in levels],
        places=rng.generator(0, "places", name).random((rows, 1, 4), dtype=np.float32).tolist(),
        partners=[[(row + 1) % rows] for row in range(rows)],
        source=[row % batch for row in range(rows)],
    )


def test_the_kernel_has_every_transform():
    assert set(tasks.TRANSFORMS) == set(TRANSFORMS)
    assert cuda.knows(tuple(TRANSFORMS))
    assert not cuda.knows(("invert", "something_new"))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (9, 13), (32, 32)])
def test_every_transform_matches_pillow(size, channels):
    """In one plan, because the interpreter is slow, most of all when it starts a kernel."""
    images, fill, plans = make_images(5, 3, channels, *size), [7, 8, 9][:channels], {}
    for name, transform in TRANSFORMS.items():
        low, high = transform.levels
        plans[name] = rows_of(name, [high, low, 0.35, 0.77] if channels == 3 and size > (1, 7) else [low, 0.35])
    out = run_on("cuda", images, Plan.cat([*plans.values()]), fill=fill)
    for (name, plan), rows in zip(plans.items(), out.split([len(plan) for plan in plans.values()]), strict=True):
        assert torch.equal(rows, apply_with_pillow(images, plan, fill)), name


def decode(images: torch.Tensor, plan: Plan) -> np.ndarray:
    """Return the tasks of a plan, [steps + 1, TASK, rows]. A program decodes many rows, because the interpreter is slow."""
    from outspan.transforms.kernels.cuda import device

    packed = tasks.pack(plan, tuple(images.shape), FILL[: images.shape[1]], None, pin=False)
    buffer = packed.buffer.to("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "_DECODED", 1024)
        return device.decode_on(buffer, packed, *images.shape[2:]).cpu().numpy()


def move_in_numpy(images: torch.Tensor, plan: Plan) -> np.ndarray:
    """Move pixels as the kernel does, with its decoded parameters."""
    a0, a1, a2, a3, a4, a5, late_x, late_y = decode(images, plan)[0, 2:].reshape(8, -1, 1, 1)
    height, width = images.shape[2:]
    y, x = np.mgrid[:height, :width].astype(np.int32)
    from_x = ((a2 + a1 * y + a0 * x) >> 16) + (x >= late_x)
    from_y = ((a5 + a4 * y + a3 * x) >> 16) + (y >= late_y)
    seen = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    row = plan.source.numpy().reshape(-1, 1, 1)
    return np.where(seen, images.numpy()[row, 0, from_y.clip(0, height - 1), from_x.clip(0, width - 1)], 0)[:, None]


@pytest.mark.parametrize("size", [(32, 32), (9, 13), (17, 224), (224, 17)])
@pytest.mark.parametrize("name", MOVING)
def test_every_level_in_steps_of_a_hundredth_moves_like_the_reference(name, size):
    """Only the parameters are decoded, because moving pixels in the interpreter would take minutes."""
    low, high = (round(100 * level) for level in TRANSFORMS[name].levels)
    plan = rows_of(name, [k / 100 for k in range(low, high + 1) if k])
    images = make_images(6, 3, 1, *size)
    assert np.array_equal(move_in_numpy(images, plan), apply(images, plan, backend="reference").numpy())


@pytest.mark.parametrize("side", [31, 32, 33, 100, 129, 224])
@pytest.mark.parametrize("name", ["translate_x", "translate_y"])
def test_every_translation_by_a_near_integer_moves_like_the_reference(name, side):
    """Positions that are sums of doubles round to integers here."""
    levels = np.array([k / side * 3.2 for k in range(-32, 33) if k and abs(k) <= side], dtype=np.float32)
    levels = np.concatenate([levels, np.nextafter(levels, np.float32(-9)), np.nextafter(levels, np.float32(9))])
    plan = rows_of(name, levels[abs(levels) <= 3.2].tolist(), 1)
    images = make_images(6, 1, 1, *((7, side) if name == "translate_x" else (side, 7)))
    assert np.array_equal(move_in_numpy(images, plan), apply(images, plan, backend="reference").numpy())


@pytest.mark.parametrize("name", MOVING)
def test_levels_with_intermediate_rounding_match_pillow(name):
    levels = [sign * k / 100 for k in (1, 35, 45, 65, 95, 100, 300) for sign in (1, -1)]
    images = make_images(7, 3, 1, 20, 20)
    plan = rows_of(name, levels)
    assert torch.equal(run_on("cuda", images, plan), apply_with_pillow(images, plan))


def test_rounding_to_15_digits_matches_python():
    values = np.cos(rng.generator(0, "angles").random(20_000) * 7)
    values = np.concatenate([values, np.round(values, 3), [0.0, 1.0, -1.0, 0.5, 6.123233995736766e-17]])
    assert tasks._round_15(values).tolist() == [round(value, 15) for value in values.tolist()]


@settings(max_examples=20)
@given(
    size=st.sampled_from([(1, 1), (2, 3), (9, 13), (32, 32), (40, 30)]),
    channels=st.sampled_from([1, 3]),
    seed=seeds,
    images=st.integers(1, 3),
    candidates=st.integers(1, 2),
    depth=st.integers(0, 5),
)
def test_compositions_match_pillow(size, channels, seed, images, candidates, depth):
    pixels = make_images(seed, images, channels, *size)
    propose = uniform(depth, transforms=tuple(TRANSFORMS), probability=0.8)
    plan = propose(images, rng=rng.generator(seed, "plan"), candidates=candidates)
    assert torch.equal(run_on("cuda", pixels, plan), apply_with_pillow(pixels, plan))


@pytest.mark.slow
@settings(max_examples=8)
@given(seed=seeds)
def test_chains_of_mixing_match_pillow(seed):
    """Helper rows, partners that mix too, and repeated outputs: no row may be overwritten while another row reads it."""
    pixels = make_images(seed, 3, 3, 6, 11)
    propose = uniform(4, transforms=("mixup", "cutmix", "invert", "rotate"), probability=0.8, replacement=True)
    plan = propose(3, rng=rng.generator(seed, "plan"), candidates=2)
    chosen = rng.generator(seed, "rows").integers(0, 6, 4).tolist()
    assert torch.equal(run_on("cuda", pixels, plan[chosen]), apply_with_pillow(pixels, plan)[chosen])


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_normalized_outputs_match_the_reference(dtype, channels_last):
    for channels, size in ((1, (5, 7)), (3, (5, 7)), (3, (32, 32))):
        images = make_images(8, 2, channels, *size)
        plan = Plan.of([["invert"], [], ["blur"]], source=[1, 0, 1], out=[2, 1, 0, 2])
        normalize = Normalize((0.4, 0.5, 0.6)[:channels], (0.2, 0.3, 0.25)[:channels], dtype, channels_last)
        out = torch.full((4, channels, *size), torch.nan, dtype=dtype).contiguous(memory_format=normalize.layout)
        assert run_on("cuda", images, plan, normalize=normalize, out=out) is out
        assert torch.equal(out, apply(images, plan, normalize=normalize, backend="reference"))
        assert out.is_contiguous(memory_format=normalize.layout)


@pytest.mark.parametrize("size", [(1, 1), (3, 1), (5, 31)])
def test_the_kernel_does_not_access_memory_out_of_bounds(size):
    """The batch and the output are surrounded by known bytes."""
    count = 3 * size[0] * size[1]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    memory = torch.full((count + 256,), 255, dtype=torch.uint8, device=device)
    images = memory[128 : 128 + count].view(1, 3, *size)
    images.zero_()
    room = torch.full((3, 2 * count), 77, dtype=torch.uint8, device=device)
    out = room[1].view(2, 3, *size)
    for name, transform in TRANSFORMS.items():
        if name in ("invert", "solarize", "mixup", "cutmix"):
            continue
        plan = Plan.of([[name]] * 2, levels=[[transform.limit], [-0.5 if transform.signed else 0.25]], source=[0, 0])
        assert not apply(images, plan, out=out, backend="cuda").any(), name
        assert (room[::2] == 77).all(), name


def test_an_unchanged_row_is_not_copied():
    names = ("identity", "color", "blur", "rotate", "mixup", "invert")
    plan = Plan.of([[*names]] * 2, levels=[[0.5, 0.5, 0, 0, 0, 0]] * 2, source=[1, 0])
    for channels, expected in ((1, [-1] * 5 + [tasks.INVERT]), (3, [-1, tasks.COLOR, -1, -1, -1, tasks.INVERT])):
        images = make_images(0, 2, channels, 4, 4)
        table = decode(images, plan)
        codes, slots = table[:-1, 0], table[:, 1]
        assert codes[:, 0].tolist() == expected
        done = np.cumsum([0] + [code >= 0 for code in expected])
        assert slots[:, 0].tolist() == [-2 if count == 0 else 2 * (count % 2) for count in done]
        assert slots[:, 1].tolist() == [-1 if count == 0 else 1 + 2 * (count % 2) for count in done]


def test_images_too_large_for_fixed_point_run_on_the_reference():
    plan = Plan.of([["invert"]])
    assert tasks.pack(plan, (1, 1, 1, tasks.LARGEST_SIDE), FILL[:1], None, pin=False) is not None
    assert tasks.pack(plan, (1, 1, 1, tasks.LARGEST_SIDE + 1), FILL[:1], None, pin=False) is None


def _slices(packed: tasks.Packed) -> list[slice]:
    return [part for name in packed.__slots__ if isinstance(part := getattr(packed, name), slice)]


def test_every_part_of_the_buffer_is_aligned():
    """Triton would compile again for a pointer that is not a multiple of 16 bytes."""
    normalize = Normalize((0.5,), (0.5,), torch.bfloat16)
    for rows in range(1, 6):
        plan = Plan.of([["invert", "rotate"]] * rows, levels=[[0, 0.5]] * rows, source=[0] * rows, out=[0] * 3)
        packed = tasks.pack(plan, (1, 1, 4, 4), FILL[:1], normalize, pin=False)
        assert len(_slices(packed)) == 9
        assert not any(part.start % 4 for part in _slices(packed))


def test_the_kernel_needs_a_gpu_and_triton(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    images, plan = make_images(0, 1, 3, 4, 4), Plan.of([["invert"]])
    with pytest.raises(ValueError, match="backend 'cuda' needs images on a GPU, got cpu"):
        apply(images, plan, backend="cuda")
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="backend 'cuda' needs Triton, which is not installed"):
        apply(images, plan, backend="cuda")


def test_a_transform_without_a_kernel_is_refused(monkeypatch):
    monkeypatch.setattr(cuda, "knows", lambda names: "invert" not in names)
    with pytest.raises(ValueError, match="backend 'cuda' has no transform 'invert'"):
        run_on("cuda", make_images(0, 1, 3, 4, 4), Plan.of([["invert"]]))


@pytest.mark.slow
def test_every_kernel_compiles_for_a_gpu_and_fuses_no_product_with_a_sum():
    """The interpreter uses the types of numpy and accepts code that the compiler refuses. Compiling needs no GPU."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    script = Path(__file__).with_name("compile_cuda.py")
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "18 kernels" in done.stdout
