"""The end of a process that waits for other ranks in vain."""

import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store  # pyright: ignore[reportPrivateImportUsage]

_LIMIT = 20.0  # seconds that a wait may take after a signal; torchrun kills all ranks after 30
_CHECK = 0.5  # seconds between two checks
_BEAT = 4.0  # seconds between two signs of life of a rank
_MISSED = 10  # so many missing signs of life mean that a rank has ended, or its machine: more than any call blocks Python


class Watch:
    """Ends this process if it waits for other ranks in vain: for 20 seconds after SIGTERM or SIGINT, or if a rank has ended.

    torchrun sends SIGTERM also after another rank has died. Python runs no signal handler during a wait, so a thread watches.
    A process that ends closes its connections, so that a wait for it fails at once. A machine that fails does not. So every
    rank counts in the store, and watches the next rank.
    """

    def __init__(self, rank: int = 0) -> None:
        self._rank, self._beat, self._is_working = rank, time.monotonic(), False
        self._pipe, self._thread = -1, None
        self._neighbor: _Neighbor | None = None

    def follow(self, store: "Store", world: int) -> None:
        """Give signs of life from now on, and watch those of the next rank. The store must be used here only."""
        self._neighbor = _Neighbor(store, self._rank, world)

    def beat(self) -> None:
        """Tell that the other ranks have answered."""
        self._beat = time.monotonic()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Do not end this process while it does its own work, such as a slow save."""
        self._is_working = True
        try:
            yield
        finally:
            self._is_working = False
            self.beat()

    def __enter__(self) -> "Watch":
        if threading.current_thread() is threading.main_thread():  # only there signals can be read
            read, self._pipe = os.pipe()
            os.set_blocking(self._pipe, False)
            signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
            self._thread = threading.Thread(target=self._watch, args=(read,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            signal.set_wakeup_fd(-1)
            os.close(self._pipe)  # the thread reads the end of the pipe
            self._thread.join()  # torch aborts a process that ends while a thread of Python still runs

    def _watch(self, pipe: int) -> None:
        is_asked, lost = False, None
        while True:
            if select.select([pipe], [], [], _CHECK)[0]:
                number = os.read(pipe, 1)
                if not number:
                    return os.close(pipe)
                if not is_asked and number[0] in (signal.SIGTERM, signal.SIGINT):
                    is_asked = True
                    self.beat()
            lost = self._neighbor.lost() if self._neighbor is not None and lost is None else lost
            if self._is_working:
                continue
            if lost is not None:
                self._end(f"rank {lost} does not answer")
            if is_asked and time.monotonic() - self._beat > _LIMIT:
                self._end("the other ranks do not answer")

    def _end(self, reason: str) -> None:
        os.write(2, f"outspan: rank {self._rank}: {reason}; the same command resumes the run\n".encode())
        os._exit(1)


class _Neighbor:
    """The next rank, which counts in the store while it runs."""

    def __init__(self, store: "Store", rank: int, world: int) -> None:
        self._store, self._own, self._next = store, rank, (rank + 1) % world
        self._due, self._count, self._missed = time.monotonic(), 0, 0

    def lost(self) -> int | None:
        """Count if it is time to, and return a rank that has ended, found by this rank or by another one."""
        if time.monotonic() < self._due:
            return None
        self._due = time.monotonic() + _BEAT
        self._missed += 1
        try:
            self._store.add(f"count {self._own}", 1)
            before, self._count = self._count, self._store.add(f"count {self._next}", 0)
            self._missed = self._missed if self._count == before else 0
            if self._missed == _MISSED:
                self._store.set("lost", str(self._next))
            if self._store.check(["lost"]):
                return int(self._store.get("lost"))
        except RuntimeError:  # the machine of the store does not answer
            pass
        return self._next if self._missed >= _MISSED else None
