"""What executes several runs at a time: the interface of an engine, and the loop that follows its runs."""

import pickle
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from outspan.training import OnStep, Progress, Stopped

Job = Callable[..., Any]  # a run, called with `on_step`; another process needs one that can be pickled, e.g. a `partial`

_WAIT = 0.2  # seconds between two checks whether the user requests a stop


class Message(NamedTuple):
    """What a run sends: the fraction of its steps that are done, or at the end its result or error."""

    number: int  # of the run
    value: Any
    is_done: bool


class Lost(RuntimeError):
    """The process of a run has ended without a result."""


@runtime_checkable
class Engine(Protocol):
    """Executes runs in other processes, of this machine or of a cluster."""

    def start(self, runs: Sequence[tuple[str, Job]]) -> None:
        """Start runs, each given with its title. Those that do not fit wait."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether any run has not ended."""
        ...

    def receive(self, seconds: float) -> Sequence[Message]:
        """Wait for messages of runs for at most this time, and return them."""
        ...

    def request_stop(self) -> None:
        """Request, once or several times, that active runs save themselves and stop. No other run starts."""
        ...

    def end(self) -> None:
        """End all processes of the runs."""
        ...


def execute(engine: Engine, runs: Sequence[tuple[str, Job]], on_step: OnStep | None) -> list[Any]:
    """Return the results of runs in their order, or raise an error of a run. `on_step` shows the progress of all runs.

    If a run fails or `on_step` requests a stop, the active runs save themselves, and no other run starts.
    """
    results, errors, fractions, is_stopped = dict[int, Any](), list[Exception](), [0.0] * len(runs), False
    try:
        engine.start(runs)
        while engine.is_active:
            for number, value, is_done in engine.receive(_WAIT):
                fractions[number] = 1.0 if is_done else value
                if isinstance(value, Exception):
                    errors.append(value)
                elif is_done:
                    results[number] = value
            progress = Progress(sum(fractions), len(runs), message=f"{len(results)} of {len(runs)} runs")
            is_stopped = (on_step is not None and bool(on_step(progress))) or is_stopped
            if is_stopped or errors:
                engine.request_stop()
    finally:
        engine.end()
    _raise(errors, is_stopped)
    if len(results) < len(runs):
        raise Stopped("stopped; run the same command again to resume")
    return [results[number] for number in range(len(runs))]


def _raise(errors: Sequence[Exception], is_stopped: bool) -> None:
    """Raise the first error, if any. `is_stopped` means that the user stopped the runs: then processes may be lost."""
    for error in errors:
        if isinstance(error, Lost) and not is_stopped:
            raise ValueError(str(error))
    for error in errors:
        if not isinstance(error, Stopped | Lost):
            raise error


def portable(error: Exception) -> Exception:
    """Return an error that can be sent to another process, with the traceback that it has here as a note."""
    note = f"in the process of the run:\n{''.join(traceback.format_exception(error))}"
    try:
        sent: Any = pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:  # the class of the error cannot be pickled
        sent = RuntimeError(f"{type(error).__name__}: {error}")
    if hasattr(sent, "add_note"):  # since Python 3.11
        sent.add_note(note)
    return sent
