"""The executor of plans: backends, invalid input, and memory."""

import subprocess
import sys
import threading

import pytest
import torch

from conftest import BACKENDS, make_images, run_on
from outspan import TRANSFORMS, Normalize, Plan, apply, rng, uniform
from outspan.transforms.kernels import cpu


def images(batch: int = 2) -> torch.Tensor:
    return make_images(0, batch, 3, 8, 8)


@pytest.mark.parametrize("backend", ["reference", "cpu", "auto", *(["cuda"] if "cuda" in BACKENDS else [])])
@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan.of([["rotat"]]), "unknown transform 'rotat', did you mean 'rotate'"),
        (Plan.of([["rotate"]], levels=[[4.6]]), r"level of 'rotate' must lie in \[-4.5, 4.5\], got 4.6 in row 0"),
        (Plan.of([["rotate"]], levels=[[float("nan")]]), "level of 'rotate' must lie in .*, got nan"),
        (Plan.of([["rotate"]], levels=[[float("inf")]]), "level of 'rotate' must lie in .*, got inf"),
        (Plan.of([["invert"], ["cutout"]], levels=[[0], [-0.1]]), r"level of 'cutout' must lie in \[0, 1\], got -0.1 in row 1"),
        (Plan.of([["posterize"]], levels=[[2.1]]), "level of 'posterize' must lie in"),
        (Plan.of([["mixup"]], levels=[[0.5]]), "'mixup' in row 0 needs a partner row, got -1"),
        (Plan.of([["invert"]], source=[2]), "the plan reads image 2, but the batch has 2 images"),
        (Plan.of([["cutout"]], levels=[[0.5]], places=[[[1.5, 0, 0, 0]]]), r"places must lie in \[0, 1\)"),
        (Plan.of([["cutout"]], levels=[[0.5]], places=[[[float("nan")] * 4]]), r"places must lie in \[0, 1\)"),
    ],
)
def test_invalid_plans_are_refused_by_name(plan, message, backend, unchecked):
    with pytest.raises(ValueError, match=message):
        run_on(backend, images(), plan) if backend == "cuda" else apply(images(), plan, backend=backend)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (torch.zeros(1, 3, 8, 8), "images must be a uint8 tensor .*, got torch.float32"),
        (
            torch.zeros(3, 8, 8, dtype=torch.uint8),
            r"images must have shape \[batch, channels, height, width\], got \[3, 8, 8\]",
        ),
        (
            torch.zeros(1, 2, 8, 8, dtype=torch.uint8),
            r"images must be \[B, C, H, W\] with 1 or 3 channels, got \[1, 2, 8, 8\]$",
        ),
        (torch.zeros(1, 4, 8, 8, dtype=torch.uint8), r"with 1 or 3 channels, got \[1, 4, 8, 8\]: convert RGBA to RGB"),
        (torch.zeros(1, 8, 8, 3, dtype=torch.uint8), r"got \[1, 8, 8, 3\]: use images.permute\(0, 3, 1, 2\)"),
        (torch.zeros(1, 3, 0, 8, dtype=torch.uint8), "at least one pixel"),
    ],
)
def test_invalid_images_are_refused_by_name(batch, message, unchecked):
    with pytest.raises(ValueError, match=message):
        apply(batch, Plan.of([["invert"]]))


def test_a_wrong_fill_backend_or_device_is_refused(unchecked):
    plan = Plan.of([["cutout"]], levels=[[0.5]])
    with pytest.raises(ValueError, match=r"fill must be 3 whole numbers from 0 to 255, got \(1, 2\)"):
        apply(images(), plan, fill=[1, 2])
    with pytest.raises(ValueError, match="fill must be 3 whole numbers"):
        apply(images(), plan, fill=[1, 2, 256])
    with pytest.raises(ValueError, match="backend must be 'auto', 'reference', 'cpu' or 'cuda', got 'gpu'"):
        apply(images(), plan, backend="gpu")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"plan must be a Plan, got 'rotate': use Plan\.of"):
        apply(images(), "rotate")
    with pytest.raises(ValueError, match=r"normalize must be an outspan\.Normalize, got builtin_function_or_method"):
        apply(images(), plan, normalize=abs)
    with pytest.raises(ValueError, match="backend 'cpu' needs images on the cpu, got meta"):
        apply(images().to("meta"), plan, backend="cpu")


def test_a_plan_changed_after_its_checks_is_refused():
    plan = Plan.of([["invert"]])
    plan.source[0] = 10**12
    with pytest.raises(ValueError, match="the plan reads image 1000000000000"):
        apply(images(), plan)
    plan = Plan.of([["mixup"]], levels=[[0.5]], partners=[[0]])
    plan.partners[0, 0] = 7
    with pytest.raises((ValueError, IndexError)):
        apply(images(), plan)


def test_rows_read_their_source_images_and_follow_the_output_order(backend):
    batch = images(3)
    plan = Plan.of([["invert"], [], ["blur"], []], source=[2, 0, 1, 1], out=[3, 0, 0])
    out = run_on(backend, batch, plan)
    assert torch.equal(out, torch.stack([batch[1], 255 - batch[2], 255 - batch[2]]))


def test_mixing_at_level_0_needs_no_partner(backend):
    batch = images(2)
    assert torch.equal(run_on(backend, batch, Plan.of([["mixup"], ["cutmix"]])), batch)


def test_two_halves_of_one_buffer_do_not_overlap():
    room = images(4)
    apply(room[:2], Plan.of([["invert"]] * 2), out=room[2:])
    assert torch.equal(room[2:], 255 - room[:2])
    with pytest.raises(ValueError, match="out must not share memory"):
        apply(room[:2], Plan.of([["invert"]] * 2), out=room[1:3])


def test_a_transform_without_a_kernel_runs_on_the_reference(monkeypatch):
    monkeypatch.setattr(cpu, "knows", lambda names: "invert" not in names)
    batch, plan = images(2), Plan.of([["invert"]] * 2)
    assert torch.equal(apply(batch, plan), 255 - batch)
    with pytest.raises(ValueError, match="backend 'cpu' has no transform 'invert'"):
        apply(batch, plan, backend="cpu")


MEMORY = """
import resource, sys, torch
from outspan import Plan, apply
images = torch.zeros(2, 3, 3000, 3000, dtype=torch.uint8)
plan = Plan.of([["color", "rotate", "blur"]] * 2, levels=[[0.5, 0.5, 0]] * 2)
out = torch.zeros_like(images)
torch.set_num_threads(2)
apply(images[:, :, :8, :8].contiguous(), plan)
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
for room in map(int, sys.argv[1:]):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + room, hard))
    try:
        apply(images, plan, out=out)
        print("done")
    except MemoryError:
        print("MemoryError")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the address space by /proc")
def test_too_little_memory_raises_an_exception_or_uses_fewer_threads():
    rooms = [str(megabytes << 20) for megabytes in (20, 120, 400)]
    done = subprocess.run([sys.executable, "-c", MEMORY, *rooms], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, "MemoryError\ndone\ndone\n"), done.stderr


def test_an_empty_batch_gives_an_empty_batch(backend):
    for batch, plan in ((images(0), Plan.of([])), (images(2), Plan.of([["invert"]] * 2, out=[]))):
        out = run_on(backend, batch, plan)
        assert out.shape == (0, 3, 8, 8)


def test_out_is_written_and_returned(backend):
    batch, plan = images(3), Plan.of([["invert"]] * 3)
    out = torch.zeros_like(batch)
    assert run_on(backend, batch, plan, out=out) is out
    assert torch.equal(out, 255 - batch)
    normalize = Normalize((0.5,) * 3, (0.5,) * 3, torch.bfloat16, channels_last=True)
    out = torch.empty((3, 3, 8, 8), dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
    assert run_on(backend, batch, plan, out=out, normalize=normalize) is out
    assert torch.equal(out, normalize(255 - batch))


@pytest.mark.parametrize(
    "out",
    [
        torch.empty(2, 3, 8, 8, dtype=torch.uint8),
        torch.empty(3, 3, 8, 8),
        torch.empty(6, 3, 8, 8, dtype=torch.uint8)[::2],
        torch.empty(3, 3, 8, 8, dtype=torch.uint8, device="meta"),
    ],
)
def test_an_out_tensor_that_does_not_fit_is_refused(out):
    with pytest.raises(ValueError, match=r"out must be torch.uint8 \[3, 3, 8, 8\] on cpu"):
        apply(images(3), Plan.of([["invert"]] * 3), out=out)
    batch = images(3)
    with pytest.raises(ValueError, match="out must not share memory"):
        apply(batch, Plan.of([["invert"]] * 3), out=batch)


def test_views_and_channels_last_give_the_same_images():
    batch = make_images(1, 6, 3, 10, 12)
    plan = uniform(3, transforms=tuple(TRANSFORMS))(3, rng=rng.generator(0))
    expected = apply(batch[::2].clone(), plan)
    assert torch.equal(apply(batch[::2], plan), expected)
    assert torch.equal(apply(batch[::2].contiguous(memory_format=torch.channels_last), plan), expected)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_any_number_of_threads_gives_the_same_images(threads):
    batch = make_images(2, 64, 3, 48, 48)
    plan = uniform(4, transforms=tuple(TRANSFORMS))(64, rng=rng.generator(1), candidates=4)
    expected = apply(batch, plan, backend="reference")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert all(torch.equal(apply(batch, plan), expected) for _ in range(5))
    finally:
        torch.set_num_threads(before)


def test_calls_from_several_threads_are_independent():
    batch = make_images(3, 64, 3, 48, 48)
    plans = [uniform(3, transforms=tuple(TRANSFORMS))(64, rng=rng.generator(2, i)) for i in range(4)]
    expected = [apply(batch, plan, backend="reference") for plan in plans]
    right = [0] * 4

    def work(i: int) -> None:
        for _ in range(10):
            right[i] += torch.equal(apply(batch, plans[i]), expected[i])

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert right == [10] * 4


FORKED = """
import multiprocessing, torch
from outspan import apply, rng, uniform
images = torch.arange(64 * 3 * 48 * 48, dtype=torch.int32).remainder_(251).to(torch.uint8).view(64, 3, 48, 48)
plan = uniform(3)(64, rng=rng.generator(0))
torch.set_num_threads(2)
here = apply(images, plan).numpy().tobytes()

def work(_):
    return apply(images, plan).numpy().tobytes() == here  # the threads of torch do not survive a fork

with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map_async(work, range(4)).get(timeout=500) == [True] * 4
"""


def test_apply_works_in_a_forked_child():
    """Data loaders fork after the parent has used its threads. The child does not have these threads."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], check=True, timeout=600)


def test_without_the_kernel_there_is_one_warning_and_the_same_images(monkeypatch):
    from outspan.transforms.apply import _warn_slow

    plan = Plan.of([["rotate", "invert"]], levels=[[0.5, 0]])
    expected = apply(images(), plan)
    monkeypatch.setattr(cpu, "_cpu", None)
    cpu.knows.cache_clear()
    _warn_slow.cache_clear()
    try:
        with pytest.warns(UserWarning, match="without its compiled kernel"):
            assert torch.equal(apply(images(), plan), expected)
        assert torch.equal(apply(images(), plan), expected)  # warnings are errors here, so a second one would raise
        with pytest.raises(ValueError, match="backend 'cpu' is not built"):
            apply(images(), plan, backend="cpu")
    finally:
        cpu.knows.cache_clear()
