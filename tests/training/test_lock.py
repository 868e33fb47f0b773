"""Only one process at a time trains in a folder."""

import errno
import fcntl
import os
import subprocess
import sys

import pytest

from outspan.training import lock


def test_only_one_process_at_a_time_locks_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "patience", 0.0)
    script = f"from pathlib import Path\nfrom outspan.training.lock import locked\nwith locked(Path({str(tmp_path)!r})):\n"
    other = subprocess.Popen(
        [sys.executable, "-c", f"{script}    print('locked', flush=True)\n    input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with other:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(ValueError, match="another process is training there"), lock.locked(tmp_path):
            pass
        other.communicate("\n")
    with lock.locked(tmp_path):  # the other process has ended
        pass


def test_the_lock_waits_while_a_killed_owner_is_removed(tmp_path, monkeypatch):
    """Another descriptor represents the killed owner. The system closes it while we wait."""
    owner = os.open(tmp_path / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(owner, fcntl.LOCK_EX)
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            os.close(owner)

    monkeypatch.setattr(lock.time, "sleep", sleep)
    with lock.locked(tmp_path):
        assert len(waits) == 3


def test_a_forked_child_does_not_keep_the_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "patience", 0.0)
    (wake, woken), (is_up, up) = os.pipe(), os.pipe()
    with lock.locked(tmp_path):
        child = os.fork()
        if not child:  # the child runs longer than the parent holds the lock
            os.write(up, b" ")
            os.read(wake, 1)
            os._exit(0)
        os.read(is_up, 1)
    try:
        with lock.locked(tmp_path):
            pass
    finally:
        os.write(woken, b" ")
        os.waitpid(child, 0)


def test_a_child_that_leaves_the_block_closes_no_other_file(tmp_path):
    (read_end, write_end) = os.pipe()
    child = -1
    try:
        with lock.locked(tmp_path):
            handle = max(lock._handles)
            child = os.fork()
            if not child:
                os.dup2(write_end, handle)  # the number is free in the child, so any file may have it
    finally:
        if not child:
            try:
                os.write(handle, b"open")  # fails if it was closed
            finally:
                os._exit(0)
    os.close(write_end)
    assert os.read(read_end, 4) == b"open"
    os.waitpid(child, 0)


def test_a_file_system_without_locks_is_named_once(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    monkeypatch.setattr(lock, "_warned_devices", set())
    with pytest.warns(UserWarning, match="this file system has no locks"), lock.locked(tmp_path):
        pass
    (tmp_path / "other").mkdir()
    for folder in (tmp_path, tmp_path / "other"):  # a second warning would be an error here
        with lock.locked(folder):
            pass
