"""Inputs that once broke a contract, and a few fresh ones of every target: so that the fuzzers do not rot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import asan
from fuzz.run import NAMES, fuzz
from fuzz.targets import TARGETS
from fuzz.worker import generator, run_case
from outspan.kernels import cpu

CRASHERS = sorted(path for path in (Path(__file__).parent / "crashers").glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", CRASHERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_once_broke_is_mended(path, tmp_path, unchecked):
    run_case(TARGETS[path.parent.name], path.read_bytes(), tmp_path)


@pytest.mark.parametrize("name", TARGETS)
def test_a_hundred_cases_of_every_target(name, tmp_path, unchecked):
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


OVERFLOW = """
import torch
from pathlib import Path
from fuzz.worker import use_kernel
use_kernel(Path({path!r}))
from outspan import Plan
from outspan.kernels import cpu
images, fill, out = (torch.zeros(size, dtype=torch.uint8) for size in ((1, 3, 8, 8), (3,), (191,)))
cpu.apply(images, Plan.of([["invert"]]), fill=fill, normalize=None, out=out)
"""


@pytest.mark.slow
def test_address_sanitizer_sees_a_byte_written_beyond_the_end():
    environment = {**os.environ, **asan.environment(), "PYTHONPATH": str(Path(__file__).parents[1])}
    code = OVERFLOW.format(path=str(asan.build()))
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr


@pytest.mark.slow
def test_the_kernel_under_address_sanitizer(tmp_path):
    result = fuzz("kernel", seed=0, minutes=5, most=300, crashers=tmp_path)
    assert result == {"minutes": 5, "cases": 300, "crashes": 0, "hangs": 0, "tracebacks": 0}
