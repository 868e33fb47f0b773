"""Execute several runs: one after another in this process, or in parallel in processes of one thread each."""

import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import Any

import torch

from outspan.children import get_context
from outspan.messages import shown
from outspan.training import OnStep, Progress, Stopped

Watch = Callable[[str], AbstractContextManager[OnStep | None]]  # from the title of a run to its `on_step`
Job = Callable[..., Any]  # a run, called with `on_step`; a process needs one that can be pickled, e.g. a `functools.partial`


def no_progress(title: str) -> AbstractContextManager[None]:
    """Show nothing."""
    return nullcontext()


def run_with_title(title: str, run: Job, *, on_step: OnStep | None) -> Any:
    """Return the result of a run. A ValueError gets the title of the run."""
    try:
        return run(on_step=on_step)
    except ValueError as error:
        raise ValueError(f"{title}: {error}") from None


def run_all(runs: Sequence[tuple[str, Job]], *, jobs: int = 1, watch: Watch = no_progress) -> list[Any]:
    """Return the results of runs, each given with its title. `watch` returns the `on_step` of a run, or of parallel runs.

    If a run fails or a stop is requested, the active runs save themselves, and no other run starts.
    """
    if not isinstance(jobs, int) or jobs < 1:
        raise ValueError(f"jobs must be a number of processes, at least 1, got {shown(jobs)}")
    if jobs > 1 and len(runs) > 1:
        with watch(f"{jobs} runs at a time") as on_step:
            return _run_in_processes([run for _, run in runs], jobs, on_step)
    results = []
    for i, (title, run) in enumerate(runs, 1):
        with watch(f"{title} ({i} of {len(runs)})" if len(runs) > 1 else title) as on_step:
            results.append(run(on_step=on_step))
    return results


def _run_in_processes(runs: Sequence[Job], jobs: int, on_step: OnStep | None) -> list[Any]:
    """Execute runs in processes. They are controlled by pipes only, so that a kill leaves no semaphore behind."""
    workers, stopped = _Workers(runs), False
    try:
        workers.start(min(jobs, len(runs)))
        while workers.processes:
            for pipe in list[Any](wait(list(workers.processes), timeout=0.2)):
                workers.receive(pipe)
            stopped = (on_step is not None and bool(on_step(workers.progress))) or stopped
            if stopped or workers.errors:
                workers.request_stop()
    finally:
        workers.end()
    return workers.collect(stopped)


_KILLED = RuntimeError("the process of a run was killed, maybe out of memory; run the same command again to resume")
# The process imports the script again. Without the guard it would start processes itself, which Python refuses.
_UNGUARDED = RuntimeError('the process of a run could not start; a script needs `if __name__ == "__main__":` to use jobs')


class _Workers:
    """The processes of several runs by their pipes, and what they sent: progress, results and errors."""

    def __init__(self, runs: Sequence[Job]) -> None:
        self.tasks, self.fractions = iter(enumerate(runs)), [0.0] * len(runs)
        self.processes: dict[Any, Any] = {}
        self.results: dict[int, Any] = {}
        self.errors: list[Exception] = []
        self.stopping = False

    @property
    def progress(self) -> Progress:
        """The number of runs that are done, with the fractions of those that are not."""
        count = len(self.fractions)
        return Progress(sum(self.fractions), count, message=f"{len(self.results)} of {count} runs")

    def start(self, count: int) -> None:
        """Start processes, and send a run to each."""
        while len(self.processes) < count:
            pipe, process = _start()
            self.processes[pipe] = process
            _send(pipe, next(self.tasks))

    def receive(self, pipe: Any) -> None:
        """Read one message of a process. After a result or an error, send it the next run, or end it."""
        try:
            number, value, is_done = pipe.recv()
        except (EOFError, OSError):  # OSError: killed in the middle of a message
            process = self.processes.pop(pipe)
            process.join()
            self.errors.append(_UNGUARDED if process.exitcode == 1 else _KILLED)  # 1: after a Python error
            return
        self.fractions[number] = 1.0 if is_done else value
        if not is_done:
            return
        if isinstance(value, Exception):
            self.errors.append(value)
        else:
            self.results[number] = value
        task = None if self.stopping or self.errors else next(self.tasks, None)
        _send(pipe, task)
        if task is None:
            pipe.close()
            self.processes.pop(pipe).join()

    def request_stop(self) -> None:
        """Request, once, that all runs save themselves and stop."""
        if not self.stopping:
            self.stopping = True
            _request_stop(self.processes)

    def end(self) -> None:
        """Stop all processes and wait until they have ended."""
        _request_stop(self.processes)
        for pipe, process in self.processes.items():
            _drain(pipe)
            process.join()

    def collect(self, stopped: bool) -> list[Any]:
        """Return the results in the order of the runs, or raise the first error. `stopped` means that the user stopped it."""
        for error in (_KILLED, _UNGUARDED):
            if error in self.errors and not stopped:
                raise ValueError(str(error))
        for error in self.errors:
            if not isinstance(error, Stopped) and error not in (_KILLED, _UNGUARDED):
                raise error
        if len(self.results) < len(self.fractions):
            raise Stopped("stopped; run the same command again to resume")
        return [self.results[number] for number in range(len(self.fractions))]


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


def _request_stop(pipes: Iterable[Any]) -> None:
    for pipe in pipes:
        _send(pipe, None)


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
            message = pickle.dumps((number, _portable(error), True))
        pipe.send_bytes(message)


def _portable(error: Exception) -> Exception:
    """Return an error that can be sent to another process, with the traceback that it has here as a note."""
    note = f"in the process of the run:\n{''.join(traceback.format_exception(error))}"
    try:
        portable: Any = pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:  # the class of the error cannot be pickled
        portable = RuntimeError(f"{type(error).__name__}: {error}")
    if hasattr(portable, "add_note"):  # since Python 3.11
        portable.add_note(note)
    return portable


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
