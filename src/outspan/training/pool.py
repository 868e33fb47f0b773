"""Several runs: one after another in this process, or side by side in processes of one thread each."""

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
from outspan.training import OnStep, Progress, Stopped

Watch = Callable[[str], AbstractContextManager[OnStep | None]]
Run = Callable[..., Any]  # called with `on_step`; where it goes to another process, `functools.partial` of a function


def unwatched(title: str) -> AbstractContextManager[None]:
    """Show nothing."""
    return nullcontext()


def named(title: str, run: Run, *, on_step: OnStep | None) -> Any:
    """Return what a run returns; where something is wrong, say of which run."""
    try:
        return run(on_step=on_step)
    except ValueError as error:
        raise ValueError(f"{title}: {error}") from None


def run_all(runs: Sequence[tuple[str, Run]], *, jobs: int = 1, watch: Watch = unwatched) -> list[Any]:
    """Return what each run, after its title, returns; `watch` is asked for the `on_step` of each, or of all that run at a time.

    Where one fails, or all are asked to stop, those under way save themselves, and no other begins.
    """
    if jobs > 1 and len(runs) > 1:
        with watch(f"{jobs} runs at a time") as on_step:
            return _side_by_side([run for _, run in runs], jobs, on_step)
    found = []
    for i, (title, run) in enumerate(runs, 1):
        with watch(f"{title} ({i} of {len(runs)})" if len(runs) > 1 else title) as on_step:
            found.append(run(on_step=on_step))
    return found


def _side_by_side(runs: Sequence[Run], jobs: int, on_step: OnStep | None) -> list[Any]:
    """Run in processes that are controlled by pipes alone: a kill leaves no semaphore behind."""
    tasks, fractions = iter(enumerate(runs)), [0.0] * len(runs)
    results: dict[int, Any] = {}
    errors: list[Exception] = []
    workers: dict[Any, Any] = {}  # the process at the other end of each pipe
    stopped = stopping = False
    try:
        while len(workers) < min(jobs, len(runs)):
            pipe, process = _start()
            workers[pipe] = process
            _send(pipe, next(tasks))
        while workers:
            for pipe in list[Any](wait(list(workers), timeout=0.2)):
                try:
                    number, value, is_done = pipe.recv()
                except (EOFError, OSError):  # OSError: killed in the middle of a message
                    workers.pop(pipe).join()
                    errors.append(_KILLED)
                    continue
                if not is_done:
                    fractions[number] = value
                    continue
                fractions[number] = 1.0
                if isinstance(value, Exception):
                    errors.append(value)
                else:
                    results[number] = value
                task = None if stopping or errors else next(tasks, None)
                _send(pipe, task)
                if task is None:
                    pipe.close()
                    workers.pop(pipe).join()
            progress = Progress(sum(fractions), len(runs), message=f"{len(results)} of {len(runs)} runs")
            stopped = (on_step is not None and bool(on_step(progress))) or stopped
            if (stopped or errors) and not stopping:
                stopping = True
                _ask_to_stop(workers)
    finally:
        _ask_to_stop(workers)
        for pipe, process in workers.items():
            _drain(pipe)
            process.join()
    if _KILLED in errors and not stopped:
        raise ValueError("the process of a run was killed, maybe out of memory; run the same command again to resume")
    for error in errors:
        if not isinstance(error, Stopped) and error is not _KILLED:
            raise error
    if len(results) < len(runs):
        raise Stopped("stopped; run the same command again to resume")
    return [results[number] for number in range(len(runs))]


_KILLED = RuntimeError("a process was killed")


def _start() -> tuple[Any, Any]:
    """Start a process that waits for runs; return our end of its pipe, and the process."""
    context: Any = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, warnings.formatwarning))
    with _interrupts_blocked():
        process.start()
    theirs.close()  # so that the end of the process ends the pipe
    return ours, process


def _send(pipe: Any, task: tuple[int, Run] | None) -> None:
    with suppress(ConnectionError):  # the process was killed: reading from its pipe tells
        pipe.send(task)


def _ask_to_stop(pipes: Iterable[Any]) -> None:
    for pipe in pipes:
        _send(pipe, None)


def _drain(pipe: Any) -> None:
    """Read until the process closes its end: one that waits until a large result is read would never end."""
    with suppress(EOFError, OSError):
        while True:
            pipe.recv_bytes()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C, SIGTERM and SIGHUP while a process starts. It inherits this; its parent receives them and tells it to stop.

    Terminals and schedulers send them to all processes of a job: one that ended at once would not save its run.
    A signal that arrives meanwhile is delivered to the parent afterwards; if it were ignored, it would be lost.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # started later, it would unblock SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(pipe: Any, formatwarning: Callable[..., str]) -> None:
    """Set up a process with one thread that formats warnings as its parent does and ends with its parent. Then serve."""
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
        except Exception as error:  # whatever it is, the parent raises it
            message = pickle.dumps((number, _portable(error), True))
        pipe.send_bytes(message)


def _portable(error: Exception) -> Exception:
    """Return an error that can be sent to another process, with the traceback that it has here as a note."""
    note = f"in the process of the run:\n{''.join(traceback.format_exception(error))}"
    try:
        portable: Any = pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:  # whatever a class of errors needs to be made again
        portable = RuntimeError(f"{type(error).__name__}: {error}")
    if hasattr(portable, "add_note"):  # since Python 3.11
        portable.add_note(note)
    return portable


class _Report:
    """An `on_step` that tells the parent how far a run is, and returns True once the parent asks to stop."""

    def __init__(self, pipe: Any, number: int) -> None:
        self.pipe, self.number = pipe, number
        self.stopping, self.told = False, 0.0

    def __call__(self, progress: Progress) -> bool:
        if time.monotonic() - self.told > 0.1:
            self.told = time.monotonic()
            self.pipe.send((self.number, progress.step / progress.steps, False))
        self.stopping = self.stopping or self.pipe.poll()  # during a run nothing else is sent
        return self.stopping
