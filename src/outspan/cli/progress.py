"""The progress of a run on the terminal, and what an interruption does to it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from outspan.cli.output import echo

if TYPE_CHECKING:
    from outspan.training import Progress

_PAUSE = 30.0  # seconds between two lines of a command without a terminal
_previous_line = time.perf_counter()  # when the previous line was printed, or when the command began


class _Interruption:
    """Whether Ctrl-C, SIGTERM or SIGHUP has asked the run to stop. A second signal ends the command at once."""

    def __init__(self, *, at_once: bool) -> None:
        self.requested, self.at_once = False, at_once  # at once: there is nothing to save yet

    def __call__(self, number: int, frame: Any) -> None:
        if self.requested or self.at_once:
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
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def training_progress(title: str = "", *, reads: bool = False) -> Iterator[Callable[[Progress], bool]]:
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
    with _interruptible(at_once=reads) as interruption:
        with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task(title, message="loading data" if reads else "")
            began, samples = time.perf_counter(), 0

            def on_step(progress: Progress) -> bool:
                nonlocal samples
                interruption.at_once = False
                samples += progress.samples
                message = progress.message or _describe(progress, samples / (time.perf_counter() - began))
                bar.update(task, completed=progress.step, total=progress.steps, message=message)
                if bar.disable:
                    _print_sometimes(f"{title}  {progress.step / progress.steps:.0%}  {message}".strip())
                return interruption.requested

            yield on_step
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
