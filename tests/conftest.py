"""Fixtures and strategies that the whole suite shares."""

import multiprocessing
import os
import sys
import threading
from types import SimpleNamespace
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import nn

from outspan import TRANSFORMS, Plan, apply, rng
from outspan.kernels import cuda
from outspan.kernels.cpu import _cpu, is_built, knows
from outspan.training import pool

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported: its kernels then run here

settings.register_profile(
    "suite", deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


def instruction_sets() -> list[str]:
    """Return the instruction sets that this machine can run."""
    found = []
    for name in ("baseline", "avx2", "avx512") if is_built() else ():
        try:
            _cpu.use_instruction_set(name)
            found.append(name)
        except ValueError:
            continue
    return found  # the last and best one stays chosen


BACKENDS = ["reference", *instruction_sets(), *(["cuda"] if cuda.is_available() else [])]
FAST = [name for name in BACKENDS if name != "cuda" or torch.cuda.is_available()]  # the interpreter is not


def run_on(backend: str, images: torch.Tensor, plan: Plan, **options: Any) -> torch.Tensor:
    """Apply a plan on the reference, on one instruction set of the compiled kernel, or on the GPU or what stands for it."""
    if backend == "cuda":
        device = "cuda" if torch.cuda.is_available() else "cpu"
        out = options.pop("out", None)
        done = apply(images.to(device), plan, backend="cuda", out=None if out is None else out.to(device), **options)
        return done.cpu() if out is None else out.copy_(done)
    if backend == "reference" or not knows(plan.names):  # the kernel may lag behind the table
        return apply(images, plan, backend="reference", **options)
    before = _cpu.instruction_set()
    _cpu.use_instruction_set(backend)
    try:
        return apply(images, plan, backend="cpu", **options)
    finally:
        _cpu.use_instruction_set(before)


def magnitudes(plan: Plan) -> dict[str, set[float]]:
    """Return every magnitude that occurs, in the transform's unit, by name."""
    found: dict[str, set[float]] = {}
    for op, level in zip(plan.ops.flatten().tolist(), plan.levels.flatten().tolist(), strict=True):
        if op >= 0:
            transform = TRANSFORMS[plan.names[op]]
            found.setdefault(plan.names[op], set()).add(round(transform.rest + transform.span * level, 4))
    return found


@pytest.fixture
def unchecked():
    """Turn the suite's own type checks off, to see what a user would see."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(params=["threads", pytest.param("processes", marks=pytest.mark.slow)])
def side_by_side(request, monkeypatch):
    """Let runs that go to processes go to threads, one at a time: a process takes seconds to start.

    What goes to them and comes back is pickled all the same. The real processes are slow tests.
    """
    if request.param == "processes":
        return
    turn = threading.Lock()  # torch's generator and flags belong to the whole process

    def serve(pipe: Any) -> None:
        with turn:
            pool._serve(pipe)

    def start() -> tuple[Any, Any]:
        ours, theirs = multiprocessing.Pipe()
        thread = threading.Thread(target=serve, args=(theirs,))
        thread.start()
        return ours, thread

    monkeypatch.setattr(pool, "_start", start)


@pytest.fixture
def one_thread():
    """Compute with one thread: many small steps in a worker a core would have threads wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def timm(monkeypatch):
    """What was asked of a stand-in for timm, whose only model is called small; the real one needs torchvision.

    As timm does, it passes over weights that do not fit and leaves those of the classifier out.
    """
    asked: list[Any] = []

    def create_model(name, num_classes, in_chans, pretrained=False, pretrained_cfg_overlay=None):
        if name != "small":
            raise RuntimeError(f"Unknown model ({name})")
        asked.append((num_classes, in_chans, pretrained and (pretrained_cfg_overlay or "published")))
        model = nn.Sequential(nn.Flatten(), nn.Linear(16 * in_chans, 2), nn.Linear(2, num_classes))
        model.pretrained_cfg = {"classifier": "2"}
        if pretrained:
            published = {"1.weight": torch.full((2, 16), 0.25), "1.bias": torch.zeros(2)}
            found = pretrained_cfg_overlay["state_dict"] if pretrained_cfg_overlay else published
            model.load_state_dict({key: value for key, value in found.items() if not key.startswith("2.")}, strict=False)
        return model

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
    return asked


@pytest.fixture(params=BACKENDS)
def backend(request):
    """Every backend this machine has."""
    return request.param


def make_images(seed: int, batch: int, channels: int, height: int, width: int) -> torch.Tensor:
    """Return images of several kinds: noise, few values, one value, a ramp."""
    draw = rng.generator(seed, "images")
    images = draw.integers(0, 256, (batch, channels, height, width), dtype=np.uint8)
    for i in range(batch):
        kind = draw.integers(0, 5)
        if kind == 1:
            images[i] = images[i] // 64 * 64
        elif kind == 2:
            images[i] = images[i, :, :1, :1]
        elif kind == 3:
            images[i] = np.linspace(draw.integers(0, 200), 255, width).astype(np.uint8)
    return torch.from_numpy(images)


seeds = st.integers(0, 2**32)
sizes = st.one_of(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 70), st.integers(1, 140)),
    st.just((32, 32)),
)
