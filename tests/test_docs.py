"""The loops that the documentation shows, run as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "loops.md"
BEGINNING, *LOOPS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("loop", LOOPS, ids=["plain", "distributed", "accelerate", "lightning"])
def test_a_loop_of_the_page_learns(loop, tmp_path):
    file = tmp_path / "train.py"
    file.write_text(BEGINNING + loop)
    processes = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if "torchrun" in loop else []
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true"}
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 600}
    done = subprocess.run([sys.executable, *processes, file], **options)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"test accuracy ([\d.]+)", done.stdout)
    assert len(found) == 1
    assert float(found[0]) > 0.6  # in two epochs of 5,000 digits; chance is 0.1
