"""The progress of a run on the terminal, and what an interruption does to it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from outspan.children import launched_rank
from outspan.cli.output import echo

try:
    import resource
except ModuleNotFoundError:  # Windows
    resource = None

if TYPE_CHECKING:
    from outspan.training import Progress

_ESTIMATE_AFTER, _ESTIMATE_STEPS = 3.0, 5  # seconds and steps, after the first one, that are timed
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
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
        self._first: tuple[float, float] | None = None  # the time after the first step of this start, and its number
        self._is_estimated = False

    def begin(self, description: str) -> None:
        """Print a description of the run. From here on, ranks stop together: one that ends at once would stop the others."""
        self.has_begun = True
        if launched_rank() is not None:
            self._interruption.at_once = False
        for line in () if launched_rank() else description.split("\n"):
            echo(line, err=True)

    def __call__(self, progress: Progress) -> bool:
        self._interruption.at_once = False
        self._samples += progress.samples
        self._estimate(progress)
        message = progress.message or _describe(progress, self._samples / (time.perf_counter() - self._began))
        self._bar.update(self._bar.task_ids[0], completed=progress.step, total=progress.steps, message=message)
        if self._bar.disable and not launched_rank():
            _print_sometimes(f"{self._title}  {progress.step / progress.steps:.0%}  {message}".strip())
        return self._interruption.requested

    def _estimate(self, progress: Progress) -> None:
        """Print once, after a few steps, how long the run will take. The first step is left out: it is slower."""
        if self._is_estimated or not self.has_begun or launched_rank():
            return
        now = time.perf_counter()
        if self._first is None:
            self._first = now, progress.step
            return
        seconds, steps = now - self._first[0], progress.step - self._first[1]
        if seconds < _ESTIMATE_AFTER or steps < _ESTIMATE_STEPS:
            return
        self._is_estimated = True
        step = seconds / steps
        epoch, whole = describe_seconds(step * progress.steps / progress.epochs), describe_seconds(step * progress.steps)
        left = describe_seconds(step * (progress.steps - progress.step))
        line = f"about {epoch} per epoch, {whole} in all, {left} left, without evaluation; {describe_memory()}"
        self._bar.console.print(line, highlight=False) if not self._bar.disable else echo(line, err=True)


def describe_seconds(seconds: float) -> str:
    """Return a duration in the unit that suits it.

    >>> [describe_seconds(value) for value in (0.25, 99.6, 300, 9_000, 400_000)]
    ['0.25 s', '100 s', '5 min', '2.5 h', '111 h']
    """
    value, unit = (seconds, "s") if seconds < 100 else (seconds / 60, "min") if seconds < 6_000 else (seconds / 3_600, "h")
    return f"{value:.2g} {unit}" if value < 10 else f"{value:.0f} {unit}"


def describe_memory() -> str:
    """Return the largest memory so far of this process, and that of tensors on the GPU if it is used."""
    import torch

    used = [] if resource is None else [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT]
    parts = [f"{value / 1e9:.2g} GB of memory" for value in used]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        parts.append(f"{torch.cuda.max_memory_allocated() / 1e9:.2g} GB on the GPU")
    return ", ".join(parts)


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
