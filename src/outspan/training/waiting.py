"""The end of a process that waits for other ranks in vain."""

import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LIMIT = 20.0  # seconds that a wait may take after a signal; torchrun kills all ranks after 30
_CHECK = 0.5  # seconds between two checks


class Watch:
    """Ends this process if it waits for other ranks for over 20 seconds after SIGTERM or SIGINT.

    torchrun sends SIGTERM also after another rank has died. Python runs no signal handler during a wait, so a thread watches.
    """

    def __init__(self, rank: int = 0) -> None:
        self._rank, self._beat, self._is_working = rank, time.monotonic(), False
        self._pipe, self._thread = -1, None

    def beat(self) -> None:
        """Tell that the other ranks have answered."""
        self._beat = time.monotonic()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Do not count the time in which this process does its own work, such as a slow save."""
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
            self._thread = threading.Thread(target=self._end_after_signal, args=(read,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            signal.set_wakeup_fd(-1)
            os.close(self._pipe)  # the thread reads the end of the pipe
            self._thread.join()  # torch aborts a process that ends while a thread of Python still runs

    def _end_after_signal(self, pipe: int) -> None:
        is_asked = False
        while True:
            if select.select([pipe], [], [], _CHECK if is_asked else None)[0]:
                number = os.read(pipe, 1)
                if not number:
                    return os.close(pipe)
                if not is_asked and number[0] in (signal.SIGTERM, signal.SIGINT):
                    is_asked = True
                    self.beat()
            if is_asked and not self._is_working and time.monotonic() - self._beat > _LIMIT:
                message = f"outspan: rank {self._rank}: the other ranks do not answer; the same command resumes the run\n"
                os.write(2, message.encode())
                os._exit(1)
