"""The training loops of the documentation run unchanged."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "loops.md").read_text()
BEGINNING, DISTRIBUTED = re.findall(r"(?ms)^```python\n(.*?)^```$", PAGE)
DIFFS = dict(re.findall(r"(?ms)^## ([\w ]+)$(?:(?!^## ).)*?^```diff\n(.*?)^```$", PAGE))
NAMES = ["Plain PyTorch", "accelerate", "timm", "Lightning", "Hugging Face", "Hugging Face with texts"]
BERT = "google-bert/bert-base-uncased"
MOST_LINES = 3  # that a user changes
CPU_ONLY = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true"}
IN_TURN = """
import os, runpy, sys
for file in sys.argv[1:]:
    if "distributed" in file:  # variables that torchrun sets for a single process
        os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    runpy.run_path(file, run_name="__main__")
"""


def program(diff: str, sign: str) -> str:
    """Return the program before a change, with the lines of the sign "-", or after it, with those of "+"."""
    return BEGINNING + "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] in (" ", sign))


def write(folder: Path, name: str, source: str) -> Path:
    file = folder / f"train_{name.replace(' ', '_')}.py"
    file.write_text(source)
    return file


def accuracies(folder: Path, *command: str | Path) -> list[float]:
    """Run a command and return every test accuracy that it prints."""
    options = {"cwd": folder, "env": os.environ | CPU_ONLY, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, *command], **options, timeout=600)
    assert done.returncode == 0, done.stderr
    return [float(value) for value in re.findall(r"test accuracy ([\d.]+)", done.stdout)]


def test_at_most_three_lines_change():
    assert list(DIFFS) == NAMES
    for name, diff in DIFFS.items():
        signs = [line[0] for line in diff.splitlines()]
        assert 0 < max(signs.count("+"), signs.count("-")) <= MOST_LINES, name
        assert set(signs) <= {" ", "+", "-"}, name


@pytest.mark.slow
def test_the_loops_of_the_documentation_learn_before_and_after_the_change(tmp_path, tiny_model):
    """All loops run in one process, which imports torch once. There the distributed loop has a single rank."""
    (tmp_path / "in_turn.py").write_text(IN_TURN)
    files = [
        write(tmp_path, name + sign, program(diff, sign).replace(BERT, str(tiny_model)))
        for name, diff in DIFFS.items()
        if name != "timm"  # it needs torchvision: benchmarks/timm_loop.py
        for sign in "-+"
    ]
    files.append(write(tmp_path, "distributed", BEGINNING + DISTRIBUTED))
    results = accuracies(tmp_path, "in_turn.py", *files)
    assert len(results) == len(files)
    assert min(results) > 0.6  # after two epochs of 5,000 digits; chance is 0.1
    pairs = list(zip(results[:-3:2], results[1:-3:2], strict=True))  # not the texts, which are easy
    assert all(before != after for before, after in pairs)  # the policy changes the result


@pytest.mark.slow
def test_the_distributed_loop_learns_in_two_processes(tmp_path):
    file = write(tmp_path, "distributed", BEGINNING + DISTRIBUTED)
    (accuracy,) = accuracies(tmp_path, "-m", "torch.distributed.run", "--nproc-per-node", "2", file)
    assert accuracy > 0.6
