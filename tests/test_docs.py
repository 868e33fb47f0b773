"""The training loops of the documentation run unchanged."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "loops.md"
BEGINNING, *LOOPS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
NAMES = ["plain", "distributed", "accelerate", "lightning"]
CPU_ONLY = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true"}
IN_TURN = """
import os, runpy, sys
for file in sys.argv[1:]:
    if "distributed" in file:  # variables that torchrun sets for a single process
        os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    runpy.run_path(file, run_name="__main__")
"""


def write_loops(folder: Path) -> dict[str, Path]:
    files = {name: folder / f"train_{name}.py" for name in NAMES}
    for file, loop in zip(files.values(), LOOPS, strict=True):
        file.write_text(BEGINNING + loop)
    return files


def accuracies(folder: Path, *command: str | Path) -> list[float]:
    """Run a command and return every test accuracy that it prints."""
    options = {"cwd": folder, "env": os.environ | CPU_ONLY, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, *command], **options, timeout=600)
    assert done.returncode == 0, done.stderr
    return [float(value) for value in re.findall(r"test accuracy ([\d.]+)", done.stdout)]


@pytest.mark.slow
def test_the_loops_of_the_documentation_learn(tmp_path):
    """All loops run in one process, which imports torch once. There the distributed loop has a single rank."""
    (tmp_path / "in_turn.py").write_text(IN_TURN)
    files = write_loops(tmp_path)
    order = [files[name] for name in ("plain", "accelerate", "lightning", "distributed")]
    results = accuracies(tmp_path, "in_turn.py", *order)
    assert len(results) == 4
    assert min(results) > 0.6  # after two epochs of 5,000 digits; chance is 0.1


@pytest.mark.slow
def test_the_distributed_loop_learns_in_two_processes(tmp_path):
    file = write_loops(tmp_path)["distributed"]
    (accuracy,) = accuracies(tmp_path, "-m", "torch.distributed.run", "--nproc-per-node", "2", file)
    assert accuracy > 0.6
