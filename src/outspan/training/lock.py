"""The lock of a folder in which a process trains."""

import errno
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

patience = 5.0  # seconds: a killed process keeps its lock until the system has removed it
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_warned_devices: set[int] = set()  # file systems without locks, for which a warning was given
_handles: set[int] = set()  # open lock files of this process; a forked child inherits them


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Refuse a folder in which another process trains. The lock ends with this process, also if it is killed.

    Child processes do not share the lock. A folder that is not writable, as on a read-only mount, needs no lock. If
    the file system has no locks, a warning says so, once per file system.
    """
    try:
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        if os.access(folder, os.W_OK):
            raise
        yield
        return
    _handles.add(handle)
    try:
        _lock(handle, folder)
        yield
    finally:
        if handle in _handles:  # not in a forked child, where the number may be that of another file
            _handles.discard(handle)
            os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    end = time.monotonic() + patience
    while fcntl is not None:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise ValueError(
                    f"{folder}: another process is training there; wait until it ends, or choose another folder"
                ) from None
            time.sleep(0.05)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            break
    if (device := os.fstat(handle).st_dev) not in _warned_devices:
        _warned_devices.add(device)
        warnings.warn(f"{folder}: this file system has no locks; make sure that no other process trains there", stacklevel=3)


def _close_inherited() -> None:
    """Close the locks of the parent in a forked child: a data worker that outlives its parent must not lock the folder."""
    for handle in _handles:
        os.close(handle)
    _handles.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)
