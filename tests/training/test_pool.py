"""Several runs, in this process and in other processes."""

import multiprocessing
import multiprocessing.synchronize
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial

import pytest

from outspan.training import Progress, Stopped, processes
from outspan.training.pool import Pool, run_all


def work(number, *, on_step):
    on_step(Progress(1, 2))
    return number


def die(first, *, on_step):
    """The first run is killed while others wait. Running ones stop when `on_step` requests it."""
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    while not on_step(Progress(1, 2)):
        time.sleep(0.01)


started = []  # numbers of the runs, from threads that replace processes
second = threading.Event()


def fail(number, error, *, on_step):
    """The first run fails after the second has begun. All others continue until `on_step` requests a stop."""
    started.append(number)
    if error is not None and number == 0:
        assert second.wait(600)
        raise error
    second.set()
    while not on_step(Progress(1, 2)):
        time.sleep(0.01)
    raise Stopped("at a step")


@pytest.fixture
def in_threads(monkeypatch):
    """Replace processes, which take seconds to start, by threads."""

    def start():
        ours, theirs = multiprocessing.Pipe()
        thread = threading.Thread(target=processes._serve, args=(theirs,))
        thread.start()
        return ours, thread

    started.clear()
    second.clear()
    monkeypatch.setattr(processes, "_start", start)


@pytest.mark.usefixtures("in_threads")
@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (ValueError("invert, seed 0: bad"), ValueError, "invert, seed 0: bad"),
        (None, Stopped, "stopped; run the same command again to resume"),
    ],
    ids=["fails", "stopped"],
)
def test_if_one_process_fails_the_others_save_and_stop(error, raised, message):
    @contextmanager
    def watch(title):
        yield lambda state: error is None

    with pytest.raises(raised, match=message):
        run_all([(f"run {i}", partial(fail, i, error)) for i in range(9)], pool=Pool(2), watch=watch)
    assert sorted(started) == [0, 1]  # no other run begins


@pytest.mark.usefixtures("in_threads")
@pytest.mark.parametrize("jobs", [1, 2])
def test_results_are_in_the_order_of_the_runs(jobs):
    titles, seen = [], []

    @contextmanager
    def watch(title):
        titles.append(title)
        yield seen.append

    runs = [(f"run {i}", partial(work, i)) for i in range(3)]
    assert run_all(runs, pool=Pool(jobs), watch=watch) == [0, 1, 2]
    assert titles == ([f"run {i} ({i + 1} of 3)" for i in range(3)] if jobs == 1 else ["2 runs at a time"])
    assert seen[-1].step == (1 if jobs == 1 else 3)


class TwoArguments(Exception):
    """An error that can be pickled but not unpickled."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


class WithFunction(Exception):
    """An error that cannot be pickled."""

    def __init__(self, text):
        super().__init__(text)
        self.function = lambda: text


def make_lambda(*, on_step):
    return lambda: 0


def raise_error(error, *, on_step):
    raise (TwoArguments("one", "two") if error == 0 else WithFunction("three") if error == 1 else KeyError("four"))


@pytest.mark.usefixtures("in_threads")
@pytest.mark.parametrize(
    ("run", "message"),
    [
        (partial(raise_error, 0), "TwoArguments: one and two"),
        (partial(raise_error, 1), "WithFunction: three"),
        (partial(raise_error, 2), "four"),
        (make_lambda, "pickle"),
    ],
)
def test_any_error_is_raised_with_the_traceback_of_its_process(run, message):
    with pytest.raises(Exception, match=message) as raised:
        run_all([("a", run), ("b", run)], pool=Pool(2))
    if sys.version_info >= (3, 11):
        assert "in _serve" in "".join(raised.value.__notes__)


@pytest.mark.parametrize(
    ("exitcode", "message"),
    [(-9, "the process of a run was killed"), (1, 'a script needs `if __name__ == "__main__":` to use jobs')],
)
def test_a_process_that_ends_in_the_middle_of_a_message_raises_an_error(exitcode, message, monkeypatch):
    def start():
        ours, theirs = multiprocessing.Pipe()
        theirs._send(struct.pack("!i", 100) + b"half a message")
        theirs.close()
        thread = threading.Thread(target=lambda: None)
        thread.exitcode = exitcode
        thread.start()
        return ours, thread

    monkeypatch.setattr(processes, "_start", start)
    with pytest.raises(ValueError, match=message):
        run_all([(f"run {i}", partial(work, i)) for i in range(3)], pool=Pool(2))


def return_much(*, on_step):
    while not on_step(Progress(1, 2)):
        time.sleep(0.01)
    return bytes(5_000_000)


@pytest.mark.usefixtures("in_threads")
def test_a_large_unread_result_does_not_keep_its_process_running():
    def fail_at_once(state):
        raise LookupError("of the progress bar")

    @contextmanager
    def watch(title):
        yield fail_at_once

    errors = []

    def start():
        try:
            run_all([("a", return_much), ("b", return_much)], pool=Pool(2), watch=watch)
        except LookupError as error:
            errors.append(error)

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    thread.join(60)
    assert len(errors) == 1


killed = threading.Event()


def run_until_killed(*, on_step):
    assert killed.wait(60)


def test_a_second_interruption_ends_runs_that_have_not_stopped_yet(monkeypatch):
    def start():
        ours, theirs = multiprocessing.Pipe()
        thread = threading.Thread(target=processes._serve, args=(theirs,))
        thread.kill = killed.set
        thread.start()
        return ours, thread

    @contextmanager
    def watch(title):
        answers = iter([True])  # a stop is requested

        def on_step(state):
            if (answer := next(answers, None)) is None:
                raise KeyboardInterrupt
            return answer

        yield on_step

    monkeypatch.setattr(processes, "_start", start)
    killed.clear()
    with pytest.raises(KeyboardInterrupt):
        run_all([("a", run_until_killed), ("b", run_until_killed)], pool=Pool(2), watch=watch)
    assert killed.is_set()


def test_ctrl_c_while_a_process_starts_reaches_only_the_parent():
    ask = "import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
    blocked = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore SIGINT
    try:
        with pytest.raises(KeyboardInterrupt), processes._interrupts_blocked():  # noqa: PT012
            done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
            blocked.append(done.stdout)
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # to this thread, so that no other thread gets it later
    finally:
        signal.signal(signal.SIGINT, before)
    assert blocked == [f"{sorted([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])}\n"]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


def test_a_killed_process_raises_an_error_and_ends_the_others(capfd, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a named semaphore stays in /dev/shm when all processes are killed")

    monkeypatch.setattr(multiprocessing.synchronize.SemLock, "__init__", refuse)
    runs = [(f"run {i}", partial(die, i == 0)) for i in range(6)]
    with pytest.raises(
        ValueError, match="the process of a run was killed, maybe out of memory; run the same command again to resume"
    ):
        run_all(runs, pool=Pool(2))
    assert "Traceback" not in capfd.readouterr().err
