"""Processes that end with their parent. Imports are light, so that a child can watch its parent before it imports torch."""

import multiprocessing
import multiprocessing.context as context
import os
import signal
import sys
import threading
import time
from types import TracebackType
from typing import Any

_PARENT_CHECK = 0.2  # seconds between two checks whether the parent still runs


def launched_rank() -> int | None:
    """Return the rank that torchrun, or a launcher like it, has given to this process; None without one."""
    is_launched = os.environ.keys() >= {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    return int(os.environ["RANK"]) if is_launched else None


def is_first_of_other_machine() -> bool:
    """Return whether this process is the first one that torchrun has started on a machine, but not that of rank 0."""
    return bool(launched_rank()) and os.environ.get("LOCAL_RANK") == "0"


def get_context(method: str | None = None) -> context.BaseContext:
    """Return the context of a start method (default: the current one) whose processes end when their parent is killed.

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


def _rebuild(process_class: Any, parent: int) -> Any:
    """Create a process object in the child. Watch the parent before the content of the object is imported."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    return process_class.__new__(process_class)


def _watch(parent: int) -> None:
    """End this process when its parent has ended, or the server that forked it, which ends with the parent."""
    forked_by = os.getppid()
    while os.getppid() == forked_by and _is_running(parent):
        time.sleep(_PARENT_CHECK)
    os._exit(1)


def _is_running(pid: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    if os.name == "nt":  # on Windows os.kill would end it
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
    if hasattr(signal, "sigtimedwait"):  # it tells the sender of a signal; not on Windows and macOS
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.excepthook = _ignore_broken_pipes


def _ignore_broken_pipes(error_class: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print no traceback if the parent is killed while it receives a batch."""
    if not issubclass(error_class, ConnectionError | EOFError):
        sys.__excepthook__(error_class, error, trace)


def _end_with_parent() -> None:
    parent, forked_by = multiprocessing.parent_process(), os.getppid()  # the second may be a fork server
    assert parent is not None
    # Workers forked later keep the parent's pipe open, so that is_alive() is late. The parent's id changes at once.
    while parent.is_alive() and os.getppid() == forked_by and _is_running(parent.pid or 0):
        if not hasattr(signal, "sigtimedwait"):
            parent.join(_PARENT_CHECK)
        elif (sent := signal.sigtimedwait({signal.SIGTERM}, _PARENT_CHECK)) is not None and sent.si_pid == parent.pid:
            break
    os._exit(0)  # a parent that exits waits for its workers, and a worker without a parent would wait forever
