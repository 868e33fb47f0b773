"""The progress of a run on the terminal, and what an interruption does to it."""

from __future__ import annotations

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
_previous_line = time.perf_counter()  # when the previous line was printed, or when the command began


class _Interruption:
    """Whether Ctrl-C, SIGTERM or SIGHUP has asked the run to stop. A second signal ends the command at once.

    Under torchrun it does not: Ctrl-C reaches a rank twice, from the terminal and from torchrun.
    """

    def __init__(self, *, at_once: bool) -> None:
        self.requested, self.at_once = False, at_once  # at once: there is nothing to save yet

    def __call__(self, number: int, frame: Any) -> None:
        if self.at_once or (self.requested and launched_rank() is None):
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def _interruptible(*, at_once: bool) -> Iterator[_Interruption]:
    """Let signals ask the run to stop, instead of ending it; the handlers from before are restored afterwards."""
    interruption = _Interruption(at_once=at_once)
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it, so do we
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, interruption) for number in numbers}
    try:
        yield interruption
    finally:
        for number, handler in before.items():  # a rank that has stopped may still get the signal that stopped the others
            signal.signal(number, handler if launched_rank() is None else signal.SIG_IGN)


class TrainingProgress:
    """Shows the progress of a run. Called after each step, it returns whether the run is asked to stop. Only rank 0 prints."""

    def __init__(self, title: str, bar: Any, interruption: _Interruption) -> None:
        self._title, self._bar, self._interruption = title, bar, interruption
        self._began, self._samples = time.perf_counter(), 0

    def begin(self, description: str) -> None:
        """Print a description of the run. From here on, ranks stop together: one that ends at once would stop the others."""
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
