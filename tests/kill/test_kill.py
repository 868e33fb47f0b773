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


def test_killed_at_random_instants_it_ends_the_same():
    code, text = drill("--scenarios", "train,folder", "--runs", "1")
    assert code == 0, text


@pytest.mark.slow
@pytest.mark.parametrize("sabotage", ["save", "stream"])
def test_the_drill_sees_a_save_in_place_and_randomness_that_is_not_addressed(sabotage):
    code, text = drill("--scenarios", "train", "--runs", "3", "--sabotage", sabotage)
    assert code == 1, text
    assert {"save": "no complete checkpoint", "stream": "differs from"}[sabotage] in text


@pytest.mark.slow
def test_every_command_survives_kills():
    code, text = drill("--runs", "2")
    assert code == 0, text


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork=30", "spawn=5", "forkserver=5"])
def test_a_command_restarts_at_once_after_its_parent_alone_was_killed(method):
    code, text = drill("--scenarios", "", "--supervisor", method)
    assert code == 0, text
