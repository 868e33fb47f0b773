"""Run the inputs that once broke the contract, and a few new cases of every target."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import asan
from fuzz.run import NAMES, fuzz
from fuzz.targets import TARGETS
from fuzz.worker import generator, run_case
from outspan.transforms.kernels import cpu

# A warning is not a crash: for example, a checkpoint with changed settings is resumed with a warning.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
CRASHERS = sorted(path for path in (Path(__file__).parent / "crashers").glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", CRASHERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_old_crashers_are_fixed(path, tmp_path, unchecked):
    run_case(TARGETS[path.parent.name], path.read_bytes(), tmp_path)


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_passes_a_hundred_cases(name, tmp_path, unchecked):
    if name == "kernel" and not cpu.is_built():
        pytest.skip("installed without a compiler")
    for case in range(100):
        run_case(TARGETS[name], TARGETS[name].make(generator(0, name, case)), tmp_path)


@pytest.mark.parametrize("name", TARGETS)
def test_a_case_is_drawn_from_its_seed_and_number(name):
    first, again, other = (TARGETS[name].make(generator(seed, name, 3)) for seed in (1, 1, 2))
    assert first == again != other


def test_the_runner_knows_every_target():
    assert set(NAMES) == set(TARGETS)


PLANTED = """
import os, signal, sys, time, types
import numpy as np

def check(data, folder):
    case = int(data)
    if case == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if case == 3:
        time.sleep(1000)
    if case == 5:
        np.ones(13_000_000)  # 100 MB
    if case == 7:
        raise TypeError("a defect")
    if case == 8:
        raise ValueError("two" + chr(10) + "lines")
    if case == 9:
        raise ValueError("one line, as it should be")

numbers = iter(range(int(sys.argv[sys.argv.index("--first") + 1]), 100))
target = types.SimpleNamespace(make=lambda draw: str(next(numbers)).encode(), check=check)
sys.modules["fuzz.targets"] = types.SimpleNamespace(TARGETS={"planted": target})
from fuzz import worker
worker.HANG, worker.MEMORY = 8, 50 << 20
worker.main()
"""


@pytest.mark.slow
def test_the_runner_counts_crashes_hangs_and_tracebacks_and_continues(tmp_path, capfd):
    (tmp_path / "planted.py").write_text(PLANTED)
    result = fuzz("planted", seed=0, minutes=9, cases=12, crashers=tmp_path, worker=[str(tmp_path / "planted.py")])
    assert result == {"minutes": 9, "cases": 12, "crashes": 2, "hangs": 1, "tracebacks": 2}
    assert sorted(path.read_text() for path in (tmp_path / "planted").iterdir()) == ["1", "3", "5", "7", "8"]
    assert "TypeError: a defect" in capfd.readouterr().out


OVERFLOW = """
import torch
from pathlib import Path
from fuzz.worker import use_kernel
use_kernel(Path({path!r}))
from outspan import Plan
from outspan.transforms.kernels import cpu
images, fill, out = (torch.zeros(size, dtype=torch.uint8) for size in ((1, 3, 8, 8), (3,), (191,)))
cpu.apply(images, Plan.of([["invert"]]), fill=fill, normalize=None, out=out)
"""


@pytest.mark.slow
def test_address_sanitizer_detects_a_write_out_of_bounds():
    environment = {**os.environ, **asan.environment(), "PYTHONPATH": str(Path(__file__).parents[1])}
    code = OVERFLOW.format(path=str(asan.build()))
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr


@pytest.mark.slow
def test_the_kernel_passes_under_address_sanitizer(tmp_path):
    result = fuzz("kernel", seed=0, minutes=5, cases=300, crashers=tmp_path)
    assert result == {"minutes": 5, "cases": 300, "crashes": 0, "hangs": 0, "tracebacks": 0}
