"""What runs on the workers of a Ray cluster: a run, and the board where runs report. Imports are light, for the board."""

import os
import socket
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from outspan.training import Progress, lock
from outspan.training.engine import Job, portable

_PAUSE = 0.5  # seconds between two reports of a run
_PROCESS_PATIENCE = lock.patience
_NODE_PATIENCE = 120.0  # seconds: a file server keeps the locks of a lost node longer than a system those of a process


@dataclass(frozen=True)
class Driver:
    """What a worker must know about the process that starts the runs."""

    token: Path  # a file that this process has written into the output folder
    files: tuple[str, ...]  # absolute paths of what the runs read
    folder: str  # its working directory
    variables: Mapping[str, str]  # of its environment
    versions: Mapping[str, str]  # by package
    formatwarning: Callable[..., str]


@dataclass
class News:
    """What the runs have reported since the driver last asked."""

    fractions: dict[int, float]  # of the steps that are done, by the number of the run
    texts: list[str]  # warnings


class Board:
    """An actor where runs report their progress, and learn that they should stop."""

    def __init__(self) -> None:
        self.news, self.is_stopping = News({}, []), False

    def report(self, number: int, fraction: float) -> bool:
        """Store how much of a run is done, and return whether it should stop."""
        self.news.fractions[number] = fraction
        return self.is_stopping

    def show(self, text: str) -> None:
        """Store a text for the driver to print."""
        self.news.texts.append(text)

    def collect(self, is_stopping: bool) -> News:
        """Return the news to the driver, and store whether the runs should stop."""
        news, self.news, self.is_stopping = self.news, News({}, []), is_stopping
        return news


def own_versions() -> dict[str, str]:
    """Return the versions that must be the same on all nodes. A version of torch for another device is allowed."""
    import torch

    return {"outspan": version("outspan"), "torch": torch.__version__.partition("+")[0]}


def work(board: Any, number: int, run: Job, driver: Driver, is_repeated: bool) -> Any:
    """Return the result of a run, or its error."""
    try:
        _prepare(board, driver)
        lock.patience = _NODE_PATIENCE if is_repeated else _PROCESS_PATIENCE  # a worker executes several runs
        return run(on_step=_Report(board, number))
    except Exception as error:  # the driver raises it
        return portable(error)


def _prepare(board: Any, driver: Driver) -> None:
    """Set up this process as a process of the local engine, and check its versions and its view of the files."""
    import torch

    os.environ |= driver.variables
    torch.set_num_threads(1)
    warnings.formatwarning = driver.formatwarning
    warnings.showwarning = lambda *warning: board.show.remote(warnings.formatwarning(*warning[:4]))  # not the file
    with suppress(OSError):
        os.chdir(driver.folder)  # for relative paths
    node = f"the node {socket.gethostname()} of the Ray cluster"
    for package, installed in own_versions().items():
        if installed != driver.versions[package]:
            raise ValueError(
                f"{node} has {package} {installed}, and not {driver.versions[package]}: install the same version there"
            )
    for path in (driver.token, *map(Path, driver.files)):
        if not path.exists():
            shown = path.parent if path == driver.token else path
            how = "data and output must be on a file system that all nodes share, with the same paths"
            raise ValueError(f"{shown}: not there on {node}; {how}")


class _Report:
    """An `on_step` that reports the progress of a run to the board, and returns True when the driver requests a stop.

    It never waits: Ray gives the CPU of a task that waits to another task.
    """

    def __init__(self, board: Any, number: int) -> None:
        self.board, self.number, self.is_stopping = board, number, False
        self._send(0.0)  # the run has begun

    def _send(self, fraction: float) -> None:
        self.reported = time.monotonic()
        self.answer = self.board.report.remote(self.number, fraction).future()

    def __call__(self, progress: Progress) -> bool:
        if self.answer.done():
            self.is_stopping = self.answer.result()
            if time.monotonic() - self.reported > _PAUSE:
                self._send(progress.step / progress.steps)
        return self.is_stopping
