"""The progress of a run on the terminal, and what an interruption does to it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from outspan.children import launched_rank
from outspan.cli.output import echo

if TYPE_CHECKING:
    from outspan.training import Progress

_PAUSE = 30.0  # seconds between two lines of a command without a terminal
_SAME_REQUEST = 1.0  # seconds after a signal in which another one is the same request: a terminal and a launcher send both
_previous_line = time.perf_counter()  # when the previous line was printed, or when the command began


class _Interruption:
    """Whether Ctrl-C, SIGTERM or SIGHUP has asked the run to stop. Another signal, after a second, ends the command at once.

    Under torchrun it does not: torchrun itself ends ranks that do not stop.
    """

    def __init__(self, *, at_once: bool) -> None:
        self.requested, self.at_once, self.is_used = False, at_once, False  # at once: there is nothing to save yet
        self._previous = -_SAME_REQUEST

    def __call__(self, number: int, frame: Any) -> None:
        previous, self._previous = self._previous, time.monotonic()
        self.is_used = True
        if self._previous - previous < _SAME_REQUEST:
            return
        if self.at_once or (self.requested and launched_rank() is None):
            raise KeyboardInterrupt
        if not self.requested and launched_rank() is None:
            below_the_bar = "\n" * os.isatty(2)
            line = "outspan: stopping and saving; another signal stops at once, without saving\n"
            os.write(2, (below_the_bar + line).encode())  # not print, which fails if the signal comes while it prints
        self.requested = True


@contextmanager
def _interruptible(*, at_once: bool) -> Iterator[_Interruption]:
    """Let signals ask the run to stop, instead of ending it; the handlers from before are restored afterwards.

    After an interruption, and in a rank, signals are ignored instead: the command ends, and may get the same signal again.
    """
    interruption = _Interruption(at_once=at_once)
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it, so do we
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, interruption) for number in numbers}
    try:
        yield interruption
    finally:
        ends = interruption.is_used or launched_rank() is not None
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if ends else handler)


class TrainingProgress:
    """Shows the progress of a run. Called after each step, it returns whether the run is asked to stop. Only rank 0 prints."""

    def __init__(self, title: str, bar: Any, interruption: _Interruption) -> None:
        self._title, self._bar, self._interruption = title, bar, interruption
        self._began, self._samples, self.has_begun = time.perf_counter(), 0, False

    def begin(self, description: str) -> None:
        """Print a description of the run. From here on, ranks stop together: one that ends at once would stop the others."""
        self.has_begun = True
        if launched_rank() is not None:
            self._interruption.at_once = False
        if not launched_rank():
            echo(description, err=True)

    def __call__(self, progress: Progress) -> bool:
        self._interruption.at_once = False
        self._samples += progress.samples
        message = progress.message or _describe(progress, self._samples / (time.perf_counter() - self._began))
        self._bar.update(self._bar.task_ids[0], completed=progress.step, total=progress.steps, message=message)
        if self._bar.disable and not launched_rank():
            _print_sometimes(f"{self._title}  {progress.step / progress.steps:.0%}  {message}".strip())
        return self._interruption.requested


@contextmanager
def training_progress(title: str = "", *, reads: bool = False) -> Iterator[TrainingProgress]:
    """Show a bar on a terminal, otherwise a line every half minute. Ctrl-C, SIGTERM and SIGHUP make the run save and stop.

    `reads` means that the run loads its data first, which can take minutes. Until the first step there is nothing to save, so
    a signal ends the command at once.
    """
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from outspan.training import Stopped

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[message]}"), TimeRemainingColumn())
    console = Console(stderr=True)
    is_hidden = not console.is_terminal or launched_rank() is not None
    with _interruptible(at_once=reads) as interruption:
        with Bar(*columns, console=console, transient=True, disable=is_hidden) as bar:
            bar.add_task(title, message="loading data" if reads else "")
            yield TrainingProgress(title, bar, interruption)
        if interruption.requested:  # after the last step of a run: the next one does not start
            raise Stopped("stopped; run the same command again to resume")


def _print_sometimes(line: str) -> None:
    global _previous_line
    if time.perf_counter() - _previous_line > _PAUSE:
        _previous_line = time.perf_counter()
        echo(line, err=True)


def _describe(progress: Progress, speed: float) -> str:
    message = f"epoch {progress.epoch + 1}/{progress.epochs}  loss {progress.loss:.3f}  {speed:,.0f} samples/s"
    return message + (f"  test {100 * progress.metrics[-1]['test_accuracy']:.2f} %" if progress.metrics else "")
