"""The progress of a run on the terminal, and what an interruption does to it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from outspan.cli.output import echo

_PAUSE = 30.0  # seconds between two lines of a command without a terminal
_told = time.perf_counter()  # when it printed the previous line, or began


@contextmanager
def training_progress(title: str = "", *, reads: bool = False) -> Iterator[Callable[[dict[str, Any]], bool]]:
    """Show a bar on a terminal, elsewhere a line every half minute; Ctrl-C, SIGTERM and SIGHUP ask the run to save and stop.

    Where the run `reads` its data first, which can take minutes, there is nothing to save before the first step: they end it.
    """
    import signal

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from outspan.training import Stopped

    requested: list[int] = []
    reading = reads

    def answer(number: int, _: Any) -> None:
        if requested or reading:  # a second time: at once
            raise KeyboardInterrupt
        requested.append(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it: so do we
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, answer) for number in numbers}
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn())
    try:
        console = Console(stderr=True)
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task(title, said="loading data" if reads else "")

            began, images = time.perf_counter(), 0

            def on_step(state: dict[str, Any]) -> bool:
                global _told
                nonlocal images, reading
                reading = False
                images += state["images"]
                speed = images / (time.perf_counter() - began)
                message = state.get("said") or _said(state, speed)
                bar.update(task, completed=state["step"], total=state["steps"], said=message)
                if bar.disable and time.perf_counter() - _told > _PAUSE:
                    _told = time.perf_counter()
                    echo(f"{title}  {state['step'] / state['steps']:.0%}  {message}".strip(), err=True)
                return bool(requested)

            yield on_step
        if requested:  # between two steps of nothing: the run is over, what was to follow is not begun
            raise Stopped("stopped; run the same command again to resume")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _said(state: dict[str, Any], speed: float) -> str:
    message = f"epoch {state['epoch'] + 1}/{state['epochs']}  loss {state['loss']:.3f}  {speed:,.0f} samples/s"
    return message + (f"  test {100 * state['metrics'][-1]['test_accuracy']:.2f} %" if state["metrics"] else "")


def device() -> str:
    """Return the device that commands train on: a GPU where there is one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
