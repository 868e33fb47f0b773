"""Several runs: one after another in this process, or side by side in processes of one thread each."""

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from outspan.train import OnStep, Stopped

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
    context = multiprocessing.get_context("spawn")
    stop, shares = context.Event(), context.Array("d", len(runs))
    shared = stop, shares, warnings.formatwarning
    pool = ProcessPoolExecutor(min(jobs, len(runs)), mp_context=context, initializer=_begin, initargs=shared)
    stopped = False
    try:
        with _deaf():
            futures = [pool.submit(_run_in_worker, i, run) for i, run in enumerate(runs)]
        waiting: set[Future[Any]] = set(futures)
        while waiting:
            done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
            said = f"{len(runs) - len(waiting)} of {len(runs)} runs"
            state = {"step": sum(shares[:]), "steps": len(runs), "images": 0, "said": said}
            stopped = (on_step is not None and bool(on_step(state))) or stopped
            if stopped or any(future.exception() for future in done):
                stop.set()  # no future is cancelled: where a process was killed at that moment, the pool would break
    finally:
        stop.set()
        pool.shutdown()
    failed = [error for future in futures if (error := future.exception()) is not None]
    if any(isinstance(error, BrokenProcessPool) for error in failed) and not stopped:
        raise ValueError("the process of a run was killed, maybe for memory; the same command goes on")
    for error in failed:
        if not isinstance(error, Stopped | BrokenProcessPool):
            raise error
    if failed:
        raise Stopped("stopped; the same command goes on")
    return [future.result() for future in futures]


@contextmanager
def _deaf() -> Iterator[None]:
    """Let processes be born deaf to Ctrl-C, which reaches them, too: their parent answers it, and tells them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_asked_to_stop: Any = None  # in a worker: the event that its parent sets
_shares: Any = None  # and how much of each run is done


def _begin(stop: Any, shares: Any, said: Callable[..., str]) -> None:
    """Set a worker up: one thread, warnings as its parent's, and gone when that is."""
    global _asked_to_stop, _shares
    _asked_to_stop, _shares = stop, shares
    warnings.formatwarning = said
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _run_in_worker(number: int, run: Run) -> Any:
    def on_step(state: dict[str, Any]) -> bool:
        _shares[number] = state["step"] / state["steps"]
        return _asked_to_stop.is_set()

    if _asked_to_stop.is_set():
        raise Stopped("not begun")
    return run(on_step=on_step)
