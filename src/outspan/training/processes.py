"""The engine of this machine: processes of one thread each."""

import multiprocessing
import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import Any

import torch

from outspan.children import get_context
from outspan.training import Progress
from outspan.training.engine import Job, Lost, Message, portable

_KILLED = Lost("the process of a run was killed, maybe out of memory; run the same command again to resume")
# The process imports the script again. Without the guard it would start processes itself, which Python refuses.
_UNGUARDED = Lost('the process of a run could not start; a script needs `if __name__ == "__main__":` to use jobs')


class Processes:
    """An `Engine` of processes. They are controlled by pipes only, so that a kill leaves no semaphore behind."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.tasks: Iterator[tuple[int, Job]] = iter(())  # that wait
        self.active: dict[Any, tuple[Any, int]] = {}  # by pipe, the process and the number of its run
        self.is_stopping = self.is_requested = False

    def start(self, runs: Sequence[tuple[str, Job]]) -> None:
        """Start processes, and send a run to each."""
        self.tasks = enumerate(run for _, run in runs)
        for _ in range(min(self.jobs, len(runs))):
            self._give(*_start())

    @property
    def is_active(self) -> bool:
        """Whether any process runs."""
        return bool(self.active)

    def receive(self, seconds: float) -> list[Message]:
        """Return one message of each process that has sent one. After a result, a process gets the next run, or ends."""
        return [self._read(pipe) for pipe in list[Any](wait(list(self.active), timeout=seconds))]

    def _read(self, pipe: Any) -> Message:
        process, number = self.active[pipe]
        try:
            message = Message(*pipe.recv())
        except (EOFError, OSError):  # OSError: killed in the middle of a message
            del self.active[pipe]
            process.join()
            self.is_stopping = True
            return Message(number, _UNGUARDED if process.exitcode == 1 else _KILLED, True)  # 1: after a Python error
        self.is_stopping = self.is_stopping or isinstance(message.value, Exception)
        if message.is_done:
            self._give(pipe, process)
        return message

    def _give(self, pipe: Any, process: Any) -> None:
        """Send a process the next run. If there is none, it ends."""
        task = None if self.is_stopping else next(self.tasks, None)
        _send(pipe, task)
        if task is not None:
            self.active[pipe] = process, task[0]
            return
        pipe.close()
        del self.active[pipe]
        process.join()

    def request_stop(self) -> None:
        """Request, once, that all runs save themselves and stop."""
        if not self.is_requested:
            self.is_requested = self.is_stopping = True
            for pipe in self.active:
                _send(pipe, None)

    def end(self) -> None:
        """Request a stop of all runs, and wait until all processes have ended. If it was requested before, kill them."""
        if self.is_requested:
            for process, _ in self.active.values():
                process.kill()
        self.request_stop()
        for pipe, (process, _) in self.active.items():
            _drain(pipe)
            process.join()


def _start() -> tuple[Any, Any]:
    """Start a process that waits for runs; return our end of its pipe, and the process."""
    context: Any = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, warnings.formatwarning))
    with _interrupts_blocked():
        process.start()
    theirs.close()  # so that the pipe ends with the process
    return ours, process


def _send(pipe: Any, task: tuple[int, Job] | None) -> None:
    with suppress(ConnectionError):  # the process was killed: reading from its pipe reports it
        pipe.send(task)


def _drain(pipe: Any) -> None:
    """Read until the process closes its end of the pipe. A process whose large result is not read would never end."""
    with suppress(EOFError, OSError):
        while True:
            pipe.recv_bytes()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C, SIGTERM and SIGHUP in this process.

    Block these signals while a child starts, so that the child inherits the blocked mask. Only the parent handles a signal; it
    asks its children to save and stop. Terminals and schedulers send signals to all processes: a child that ended at once
    would not save its run. The parent receives a signal that arrives in the meantime when the block ends.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # if it started later, it would unblock SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(pipe: Any, formatwarning: Callable[..., str]) -> None:
    """Execute runs in this process, with one thread. It formats warnings as its parent does, and ends with its parent."""
    warnings.formatwarning = formatwarning
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    _serve(pipe)


def _serve(pipe: Any) -> None:
    """Execute the runs that the pipe delivers and send back their results or errors, until it delivers None."""
    while (task := pipe.recv()) is not None:
        number, run = task
        try:
            value = run(on_step=_Report(pipe, number))
            message = pickle.dumps((number, value, True))
        except Exception as error:  # the parent raises it
            message = pickle.dumps((number, portable(error), True))
        pipe.send_bytes(message)


class _Report:
    """An `on_step` that sends the progress of a run to the parent, and returns True when the parent requests a stop."""

    def __init__(self, pipe: Any, number: int) -> None:
        self.pipe, self.number = pipe, number
        self.stopping, self.reported = False, 0.0

    def __call__(self, progress: Progress) -> bool:
        if time.monotonic() - self.reported > 0.1:
            self.reported = time.monotonic()
            self.pipe.send((self.number, progress.step / progress.steps, False))
        self.stopping = self.stopping or self.pipe.poll()  # during a run nothing else is sent
        return self.stopping
