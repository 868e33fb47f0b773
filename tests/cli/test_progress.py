"""The progress of a run: the printed lines, and interruptions."""

import itertools
import os
import re
import signal

import pytest

from outspan.cli import progress
from outspan.cli.progress import training_progress
from outspan.training import Progress, Stopped


def test_without_a_terminal_progress_lines_are_rare(monkeypatch, capsys):
    state = Progress(30, 120, epoch=1, epochs=4, loss=0.5, samples=8, metrics=[{"test_accuracy": 0.75}])
    monkeypatch.setattr(progress, "_PAUSE", float("inf"))
    with training_progress("random, seed 1") as on_step:
        on_step(state)
    assert capsys.readouterr().err == ""  # the pause is not over
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    monkeypatch.setattr(progress, "_previous_line", -float("inf"))
    with training_progress("random, seed 1") as on_step:
        on_step(state)
    assert re.fullmatch(
        r"random, seed 1  25%  epoch 2/4  loss 0.500  [\d,]+ samples/s  test 75.00 %\n", capsys.readouterr().err
    )


def interrupted(number: int, *, reads: bool, steps: int) -> None:
    """Make some steps, send a signal, and make one more step, which must return that the run should save."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)  # the suite itself may run under nohup
    step = Progress(1, 9, epochs=1, loss=0.0, samples=1)
    with training_progress(reads=reads) as on_step:
        for _ in range(steps):
            assert not on_step(step)
        os.kill(os.getpid(), number)
        assert on_step(step)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_reading_at_once_and_stops_training_after_a_step(number):
    with pytest.raises(KeyboardInterrupt):
        interrupted(number, reads=True, steps=0)
    for reads, steps in ((True, 1), (False, 0), (False, 1)):
        with pytest.raises(Stopped):
            interrupted(number, reads=reads, steps=steps)


@pytest.mark.usefixtures("signals")
def test_a_second_signal_stops_at_once_unless_it_is_the_same_request(monkeypatch, capfd):
    def send(*numbers: int) -> None:
        with training_progress() as on_step:
            for number in numbers:
                os.kill(os.getpid(), number)
            assert on_step(Progress(1, 9, epochs=1, loss=0.0, samples=1))

    with pytest.raises(Stopped):
        send(signal.SIGTERM, signal.SIGTERM, signal.SIGINT)  # as a terminal and a launcher send them
    os.kill(os.getpid(), signal.SIGTERM)  # while the command ends
    assert capfd.readouterr().err == "outspan: stopping and saving; another signal stops at once, without saving\n"
    monkeypatch.setattr(progress, "_SAME_REQUEST", 0.0)
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGTERM, signal.SIGINT)


def test_under_nohup_a_closed_terminal_does_not_stop_a_run():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with training_progress() as on_step:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not on_step(Progress(1, 9, epochs=1, loss=0.0, samples=1))
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_time_of_the_run_is_printed_once_after_a_few_steps(monkeypatch, capsys):
    """The clock advances 2 s with every reading."""
    clock = itertools.count(0, 2)
    with training_progress(reads=True) as on_step:
        on_step.begin("a run")
        monkeypatch.setattr(progress.time, "perf_counter", lambda: next(clock))
        for step in range(1, 20):
            on_step(Progress(step, 400, epochs=10, loss=0.0, samples=0, message="one"))
    [line] = [line for line in capsys.readouterr().err.splitlines() if "per epoch" in line]
    assert re.fullmatch(
        r"about [\d.]+ (s|min) per epoch, \d+ min in all, \d+ min left, without evaluation; [\d.]+ GB of .*", line
    )
