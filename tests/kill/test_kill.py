"""A command killed at random times, also during a save, resumes to bit-identical results; and the drill detects if not."""

import subprocess
import sys
from pathlib import Path

import pytest

DRILL = Path(__file__).with_name("drill.py")


def drill(*arguments: str) -> tuple[int, str]:
    """Return the exit code and the output of a drill. The time limits only detect hangs."""
    command = [sys.executable, DRILL, "--patience", "600", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_run_killed_at_random_times_has_the_same_result():
    code, text = drill("--scenarios", "train,folder", "--runs", "1")
    assert code == 0, text


@pytest.mark.slow
@pytest.mark.parametrize("sabotage", ["save", "stream"])
def test_the_drill_detects_saves_in_place_and_stateful_randomness(sabotage):
    code, text = drill("--scenarios", "train", "--runs", "3", "--sabotage", sabotage)
    assert code == 1, text
    assert {"save": "no complete checkpoint", "stream": "differs from"}[sabotage] in text


@pytest.mark.slow
def test_every_command_survives_kills():
    code, text = drill("--runs", "2")
    assert code == 0, text


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork=30", "spawn=5", "forkserver=5"])
def test_a_command_restarts_at_once_after_only_its_parent_was_killed(method):
    code, text = drill("--scenarios", "", "--supervisor", method)
    assert code == 0, text


@pytest.mark.slow
@pytest.mark.parametrize("world", ["2", "4"])
def test_a_killed_rank_ends_all_and_torchrun_resumes_to_the_same_result(world):
    command = [sys.executable, DRILL.with_name("ranks_drill.py"), "--world", world, "--runs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
