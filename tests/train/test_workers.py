"""Several runs, in this process and in others."""

import os
import signal
import time
from contextlib import contextmanager
from functools import partial

import pytest

from outspan.train.workers import run_all


def work(number, *, on_step):
    on_step({"step": 1, "steps": 2})
    return number


def die(first, *, on_step):
    """The first is killed while others wait their turn; those under way stop when they are asked."""
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    while not on_step({"step": 1, "steps": 2}):
        time.sleep(0.01)


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_runs_return_comes_in_their_order(jobs):
    titles, seen = [], []

    @contextmanager
    def watch(title):
        titles.append(title)
        yield seen.append

    runs = [(f"run {i}", partial(work, i)) for i in range(3)]
    assert run_all(runs, jobs=jobs, watch=watch) == [0, 1, 2]
    assert titles == ([f"run {i} ({i + 1} of 3)" for i in range(3)] if jobs == 1 else ["2 runs at a time"])
    assert seen[-1]["step"] == (1 if jobs == 1 else pytest.approx(1.5))


def test_a_process_that_is_killed_is_said_and_ends_the_others(capfd):
    runs = [(f"run {i}", partial(die, i == 0)) for i in range(6)]
    with pytest.raises(ValueError, match="the process of a run was killed, maybe for memory; the same command goes on"):
        run_all(runs, jobs=2)
    assert "Traceback" not in capfd.readouterr().err
