"""Processes that end with their parent. Nothing heavy is imported here, so that a child can watch before it imports torch."""

import multiprocessing
import multiprocessing.context as context
import os
import signal
import sys
import threading
import time
from types import TracebackType
from typing import Any

_PARENT_CHECK = 0.2  # seconds between two looks whether the parent still lives


def get_context(method: str | None = None) -> context.BaseContext:
    """Return the context of a start method, the current one by default, whose processes end when their parent is killed.

    A spawned process watches its parent from before it imports the modules of its task. A forked one imports nothing.
    """
    method = method or multiprocessing.get_start_method()
    return _CONTEXTS[method]() if method in _CONTEXTS else multiprocessing.get_context(method)


class _SpawnProcess(context.SpawnProcess):
    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), os.getpid()), self.__dict__


class _SpawnContext(context.SpawnContext):
    Process = _SpawnProcess


_CONTEXTS: dict[str, type[context.BaseContext]] = {"spawn": _SpawnContext}
if hasattr(context, "ForkServerProcess"):

    class _ForkServerProcess(context.ForkServerProcess):
        def __reduce__(self) -> tuple[Any, ...]:
            return _rebuild, (type(self), os.getpid()), self.__dict__

    class _ForkServerContext(context.ForkServerContext):
        Process = _ForkServerProcess

    _CONTEXTS["forkserver"] = _ForkServerContext


def _rebuild(kind: Any, parent: int) -> Any:
    """Make a process object in the child, and watch the parent before what the object holds is imported."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    return kind.__new__(kind)


def _watch(parent: int) -> None:
    """End this process when its parent has ended, or the server that forked it, which ends with the parent."""
    forked_by = os.getppid()
    while os.getppid() == forked_by and _lives(parent):
        time.sleep(_PARENT_CHECK)
    os._exit(1)


def _lives(pid: int) -> bool:
    """Return whether a process runs; one that has ended and that nobody has waited for does not."""
    if os.name == "nt":  # there os.kill would end it
        return True
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:  # another user's process, or a system without /proc
        return True


def follow_parent(_: int = 0) -> None:
    """Ignore signals that reach a whole terminal or job; a worker ends with its parent, or when its parent sends SIGTERM."""
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    if hasattr(signal, "sigtimedwait"):  # it tells who sent a signal; neither Windows nor macOS has it
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.excepthook = _ignore_broken_pipes


def _ignore_broken_pipes(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print no traceback if the parent is killed while it receives a batch."""
    if not issubclass(kind, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)


def _end_with_parent() -> None:
    parent, forked_by = multiprocessing.parent_process(), os.getppid()  # the second may be a fork server
    assert parent is not None
    # Workers forked later keep the parent's pipe open, so that is_alive() is late; the parent's id changes at once.
    while parent.is_alive() and os.getppid() == forked_by and _lives(parent.pid or 0):
        if not hasattr(signal, "sigtimedwait"):
            parent.join(_PARENT_CHECK)
        elif (sent := signal.sigtimedwait({signal.SIGTERM}, _PARENT_CHECK)) is not None and sent.si_pid == parent.pid:
            break
    os._exit(0)  # a parent that exits waits for its workers, and a worker without a parent would wait forever
