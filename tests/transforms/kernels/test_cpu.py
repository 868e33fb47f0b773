"""The compiled kernel compared with the reference."""

import re
import sys
import threading
from pathlib import Path

import pytest
import torch

import outspan
from conftest import instruction_sets, make_images, run_on
from outspan import TRANSFORMS, Plan, apply
from outspan.transforms.kernels import cpu

SOURCES = Path(outspan.__file__).parent / "transforms" / "kernels" / "cpu"


pytestmark = pytest.mark.skipif(not cpu.is_built(), reason="installed without a compiler")


def test_the_kernel_has_only_transforms_of_the_table():
    assert set(cpu._cpu.NAMES) <= set(TRANSFORMS)
    assert len(cpu._cpu.NAMES) == 24
    assert not cpu.knows(("invert", "something_new"))
    with pytest.raises(ValueError, match="the kernel has no 'something_new'"):
        cpu._cpu.mean(["something_new"], [0.0], [0.0], [0.0], [0.0])


def test_names_are_in_the_order_of_the_enumeration():
    body = re.search(r"enum class Op : int8_t \{(.*?)\}", (SOURCES / "rows.h").read_text(), re.DOTALL)
    assert body is not None
    assert tuple(re.findall(r"\w+", body[1])) == cpu._cpu.NAMES


def test_an_unsupported_instruction_set_is_refused():
    with pytest.raises(ValueError, match="has no 'neon9'"):
        cpu._cpu.use_instruction_set("neon9")


@pytest.mark.parametrize("name", ["mixup", "color", "sharpness"])
def test_integer_blends_equal_float_blends(name):
    """For factors close to fractions with small denominators, products are close to integers."""
    low, high = TRANSFORMS[name].levels
    denominators = [1, 2, 3, 7, 16, 85, 100, 128, 251, 255]
    factors = [p / q for q in denominators for p in {0, 1, q // 2, q - 1, q, q + 1, 5 * q // 4, 2 * q - 1}]
    levels = torch.tensor([(factor - TRANSFORMS[name].rest) / TRANSFORMS[name].span for factor in factors])
    levels = torch.cat([levels, levels.nextafter(torch.tensor(9.0)), levels.nextafter(torch.tensor(-9.0))])
    levels = levels[(levels >= low) & (levels <= high)].unsqueeze(1).tolist()
    grid = torch.arange(256, dtype=torch.uint8)
    image = torch.stack([grid.repeat(256), grid.repeat_interleave(256), grid.flip(0).repeat(256)]).view(1, 3, 256, 256)
    images = torch.cat([image, image.flip(1)])
    rows = len(levels)
    plan = Plan.of(
        [[name]] * rows + [[]],
        levels=[*levels, []],
        partners=[[rows]] * rows + [[]],
        source=[0] * rows + [1],
        out=range(rows),
    )
    expected = apply(images, plan, backend="reference")
    for isa in instruction_sets():
        assert torch.equal(run_on(isa, images, plan), expected)


@pytest.mark.parametrize("isa", instruction_sets())
def test_the_kernel_does_not_access_memory_out_of_bounds(isa):
    """The batch and the output are surrounded by known bytes, so that reads and writes out of bounds are visible."""
    for height, width in ((1, 1), (1, 3), (3, 1), (2, 2), (5, 63), (5, 64), (5, 65)):
        memory = torch.full((3 * height * width + 256,), 255, dtype=torch.uint8)
        images = memory[128 : 128 + 3 * height * width].view(1, 3, height, width)
        images.zero_()
        room = torch.full((3, 3 * 3 * height * width), 77, dtype=torch.uint8)
        out = room[1].view(3, 3, height, width)
        for name, transform in TRANSFORMS.items():
            if name in ("invert", "solarize", "mixup", "cutmix"):
                continue
            levels = [[transform.limit], [0.5], [-0.5 if transform.signed else 0.25]]
            plan = Plan.of([[name]] * 3, levels=levels, source=[0] * 3)
            assert not run_on(isa, images, plan, out=out).any(), name
            assert (room[0] == 77).all(), name  # no write next to its output
            assert (room[2] == 77).all(), name


def test_the_gil_is_released_while_the_kernel_runs(monkeypatch):
    """Python does not switch threads here, so another thread can only run while the kernel has released the GIL."""
    images = make_images(0, 8, 3, 224, 224)
    plan = Plan.of([["resized_crop", "blur", "rotate"]] * 8, levels=[[0, 0, 0.5]] * 8)
    kernel, gate, ran = cpu._cpu.apply, threading.Lock(), []

    def wait() -> None:
        with gate:
            ran.append(True)

    def work_until_the_other_ran(*arguments):
        before = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        try:
            gate.release()
            for _ in range(1000):  # on a busy machine a call may end before the other thread gets a core
                assert kernel(*arguments)
                if ran:
                    break
        finally:
            sys.setswitchinterval(before)
        seen.append(bool(ran))
        return True

    seen: list[bool] = []
    gate.acquire()
    other = threading.Thread(target=wait)
    other.start()
    monkeypatch.setattr(cpu._cpu, "apply", work_until_the_other_ran)
    apply(images, plan, backend="cpu")
    other.join()
    assert seen == [True]
