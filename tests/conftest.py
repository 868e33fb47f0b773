"""Fixtures and strategies of the whole suite."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import nn

from clusters import cluster
from made import make_official
from outspan import TRANSFORMS, Plan, apply, devices, rng
from outspan.cli import main
from outspan.data import published
from outspan.data.sets import load
from outspan.files import HOME
from outspan.reproduce import status
from outspan.reproduce.paper import ROWS
from outspan.training import processes
from outspan.transforms.kernels import cuda
from outspan.transforms.kernels.cpu import _cpu, is_built, knows
from reviews import write_model

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported: its kernels then run here

settings.register_profile(
    "suite", deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


def instruction_sets() -> list[str]:
    """Return the instruction sets that this machine can run."""
    names = []
    for name in ("baseline", "avx2", "avx512") if is_built() else ():
        try:
            _cpu.use_instruction_set(name)
            names.append(name)
        except ValueError:
            continue
    return names  # the last and best one stays selected


BACKENDS = ["reference", *instruction_sets(), *(["cuda"] if cuda.is_available() else [])]
DIGITS = Path(str(files("outspan.data").joinpath("digits.npz")))
FAST = [name for name in BACKENDS if name != "cuda" or torch.cuda.is_available()]  # Triton's interpreter is slow


def run_on(backend: str, images: torch.Tensor, plan: Plan, **options: Any) -> torch.Tensor:
    """Apply a plan with the reference, one instruction set of the CPU kernel, or the GPU kernel (interpreted without a GPU)."""
    if backend == "cuda":
        device = "cuda" if torch.cuda.is_available() else "cpu"
        out = options.pop("out", None)
        result = apply(images.to(device), plan, backend="cuda", out=None if out is None else out.to(device), **options)
        return result.cpu() if out is None else out.copy_(result)
    if backend == "reference" or not knows(plan.names):  # the kernel may not have a new transform yet
        return apply(images, plan, backend="reference", **options)
    before = _cpu.instruction_set()
    _cpu.use_instruction_set(backend)
    try:
        return apply(images, plan, backend="cpu", **options)
    finally:
        _cpu.use_instruction_set(before)


def magnitudes(plan: Plan) -> dict[str, set[float]]:
    """Return all magnitudes of a plan by transform, in the unit of the transform."""
    values: dict[str, set[float]] = {}
    for op, level in zip(plan.ops.flatten().tolist(), plan.levels.flatten().tolist(), strict=True):
        if op >= 0:
            transform = TRANSFORMS[plan.names[op]]
            values.setdefault(plan.names[op], set()).add(round(transform.rest + transform.span * level, 4))
    return values


@pytest.fixture
def unchecked():
    """Turn the type checks of the suite off, as for a user."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(params=["threads", pytest.param("processes", marks=pytest.mark.slow)])
def side_by_side(request, monkeypatch):
    """Run jobs in threads, one at a time, instead of processes, which take seconds to start.

    Arguments and results are pickled in both cases. The tests with real processes are slow tests.
    """
    if request.param == "processes":
        return
    turn = threading.Lock()  # torch's generator and flags are global

    def serve(pipe: Any) -> None:
        with turn:
            processes._serve(pipe)

    def start() -> tuple[Any, Any]:
        ours, theirs = multiprocessing.Pipe()
        thread = threading.Thread(target=serve, args=(theirs,))
        thread.start()
        return ours, thread

    monkeypatch.setattr(processes, "_start", start)


def pytest_collection_finish():
    """Let the garbage collector skip all that was imported: nothing of it is freed."""
    gc.freeze()


def pytest_unconfigure():
    """Let it free everything at the end, as without `gc.freeze`: nanobind would print what is left."""
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def read_digits_once():
    """Keep the digits in memory: many tests read them."""
    read, digits = published.read_npz, published.read_npz(DIGITS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "read_npz", lambda path: digits if path == DIGITS else read(path))
        yield


@pytest.fixture(autouse=True)
def library_on_cpu(monkeypatch):
    """Let library functions use the CPU by default, where results are bit-identical."""
    monkeypatch.setattr(devices, "default_device", lambda: "cpu")


@pytest.fixture
def signals():
    """Restore the handlers of signals: a command that was interrupted ignores them until it has ended."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def one_thread():
    """Compute with one thread. With one worker per core, more threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def run_command(monkeypatch, capsys):
    """Run the command line in this process. Return its exit code, standard output and standard error."""

    def run_with(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["outspan", *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            main()
        return exited.value.code, *capsys.readouterr()

    return run_with


@pytest.fixture
def run(run_command):
    """Run the command line and check its exit code. Return its output, or its error message of one line without a traceback."""

    def run_checked(*arguments: object, code: int = 0) -> str:
        exit_code, out, err = run_command(*arguments)
        assert exit_code == code, f"{arguments}\n{err}"
        first, _, rest = err.partition("\n")
        err = rest if " parameters; " in first else err  # the first line describes the data and the model
        err = err.partition("\n")[2] if err.startswith("defaults: ") else err  # of texts there is a second one
        if code > 1:  # 1: the command finished, but a part of it failed
            assert err.startswith("outspan: ")
            assert err.count("\n") == 1
            assert out == ""
        return err if code > 1 else out

    return run_checked


@pytest.fixture
def tiny(tmp_path):
    """Return a data set of two classes that any model learns, as an .npz file."""
    labels = np.arange(60) % 2
    images = np.full((60, 8, 8), 20, dtype=np.uint8)
    images[labels == 1] = 220
    path = tmp_path / "tiny.npz"
    np.savez(path, train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    return path


@pytest.fixture
def few(tmp_path):
    """Return 100 train and 60 test images of digits, as an .npz file."""
    path, digits = tmp_path / "few.npz", load("digits")
    arrays = {"train_images": digits.train.images[:100], "train_labels": digits.train.labels[:100]}
    arrays |= {"test_images": digits.test.images[:60], "test_labels": digits.test.labels[:60]}
    np.savez(path, **{name: tensor.numpy() for name, tensor in arrays.items()})
    return path


@pytest.fixture
def narrow(tmp_path, monkeypatch):
    """Write the recipes of the paper with a narrow model and small batches, and 600 generated images of SVHN."""
    (tmp_path / "recipes" / "paper").mkdir(parents=True)
    for name in ROWS.values():
        text = (HOME / "recipes" / "paper" / f"{name}.toml").read_text()
        text = text.replace("wide_resnet-28-10", "wide_resnet-10-1").replace("batch = 128", "batch = 4")
        (tmp_path / "recipes" / "paper" / f"{name}.toml").write_text(text)
    monkeypatch.setattr(status, "HOME", tmp_path)
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    make_official("svhn", tmp_path)
    return tmp_path


@pytest.fixture
def timm(monkeypatch):
    """Replace timm, which needs torchvision, by a mock with one model, "small". Return the list of its calls.

    Like timm, it skips weights that do not fit, and those of the classifier.
    """
    calls: list[Any] = []

    def create_model(name, num_classes, in_chans, pretrained=False, pretrained_cfg_overlay=None):
        if name != "small":
            raise RuntimeError(f"Unknown model ({name})")
        calls.append((num_classes, in_chans, pretrained and (pretrained_cfg_overlay or "published")))
        model = nn.Sequential(nn.Flatten(), nn.Linear(16 * in_chans, 2), nn.Linear(2, num_classes))
        model.pretrained_cfg = {"classifier": "2"}
        if pretrained:
            published = {"1.weight": torch.full((2, 16 * in_chans), 0.25), "1.bias": torch.zeros(2)}
            weights = pretrained_cfg_overlay["state_dict"] if pretrained_cfg_overlay else published
            model.load_state_dict({key: value for key, value in weights.items() if not key.startswith("2.")}, strict=False)
        return model

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
    return calls


@pytest.fixture(scope="session")
def ray_cluster():
    """A Ray cluster of two nodes on this machine. Only tests marked `cluster` use it."""
    with cluster() as started:
        yield started


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """The folder of a tiny BERT."""
    folder = tmp_path_factory.mktemp("bert")
    write_model(folder)
    return folder


@pytest.fixture(params=BACKENDS)
def backend(request):
    """Every backend of this machine."""
    return request.param


def make_images(seed: int, batch: int, channels: int, height: int, width: int) -> torch.Tensor:
    """Return random images of different patterns: noise, few values, one value, a ramp."""
    draw = rng.generator(seed, "images")
    images = draw.integers(0, 256, (batch, channels, height, width), dtype=np.uint8)
    for i in range(batch):
        pattern = draw.integers(0, 5)
        if pattern == 1:
            images[i] = images[i] // 64 * 64
        elif pattern == 2:
            images[i] = images[i, :, :1, :1]
        elif pattern == 3:
            images[i] = np.linspace(draw.integers(0, 200), 255, width).astype(np.uint8)
    return torch.from_numpy(images)


seeds = st.integers(0, 2**32)
sizes = st.one_of(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 70), st.integers(1, 140)),
    st.just((32, 32)),
)
