"""The engine for Ray (docs.ray.io): each run is a task, on a cluster or on this machine."""

import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
import warnings
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from outspan.messages import shown
from outspan.training import Stopped
from outspan.training.engine import Job, Lost, Message
from outspan.training.ray_worker import Board, Driver, own_versions, work

_LOSSES = 5  # a run whose worker is lost more often is given up: maybe it needs too much memory
_CONNECT_LIMIT = 5.0  # seconds to open a connection
_ANSWER = 60.0  # seconds for a cluster to answer
_OBJECT_STORE = 100_000_000  # bytes; the results of runs are small
_VARIABLES = ("OUTSPAN_DATA",)  # of the environment, which decide what a run reads
_CONNECT_ONLY = """
import logging, sys, ray
try:
    ray.init(address=sys.argv[1], logging_level=logging.ERROR, log_to_driver=False)
except Exception as error:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    print("; ".join(line.strip()[:300] for line in dict.fromkeys((lines[0], lines[-1]))))
    sys.exit(1)
"""


def check_ray(address: str | None) -> None:
    """Refuse to go on without Ray, or with an address where no cluster answers.

    Ray itself would wait for a quarter of an hour and fill the terminal. So another process connects first.
    """
    if find_spec("ray") is None:
        raise ValueError("engine 'ray' needs Ray, which is not installed: pip install 'outspan[ray]'")
    if address is None or _is_connected():
        return
    how = "start one with `ray start --head`, or leave out the address (--address) to use this machine only"
    try:
        if address != "auto":
            host, _, port = address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_LIMIT).close()
        command = [sys.executable, "-c", _CONNECT_ONLY, address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER)  # noqa: S603
        reason = "" if not done.returncode else done.stdout.strip() or "the connection failed"
    except subprocess.TimeoutExpired:
        reason = f"no answer in {_ANSWER:.0f} seconds"
    except (OSError, OverflowError) as error:  # a port above 65535 is an OverflowError
        reason = str(error)
    if reason:
        raise ValueError(f"no Ray cluster at address {shown(address)} ({reason}); {how}")


def check_address(address: Any) -> None:
    """Refuse what is not the address of a cluster."""
    if not isinstance(address, str) or not (address == "auto" or re.fullmatch(r"[^/\s]+:\d{1,5}", address)):
        how = "run the command on a machine of the cluster"
        raise ValueError(f"address must be 'auto' or HOST:PORT of a Ray cluster, got {shown(address)}: {how}")


def _is_connected() -> bool:
    return "ray" in sys.modules and sys.modules["ray"].is_initialized()


class RayTasks:
    """An `Engine` of Ray.

    Args:
        address: The cluster, None for this machine.
        jobs: Without an address, the number of runs at a time. A cluster executes as many as fit.
        gpus: GPUs per run.
        out: The output folder of all runs.
        files: Absolute paths of what the runs read.
    """

    def __init__(self, address: str | None, jobs: int, gpus: float, out: Path, files: Sequence[str]) -> None:
        self.ray: Any = import_module("ray")
        self.address, self.jobs, self.gpus, self.files = address, jobs, gpus, files
        self.token = out.absolute() / f".ray-{uuid.uuid4().hex}"
        self.own_folder = ""  # of a Ray that this engine has started
        self.is_own, self.is_stopping = not _is_connected(), False
        self.runs: Sequence[tuple[str, Job]] = ()
        self.active: dict[Any, int] = {}  # by task, the number of its run
        self.begun = set[int]()  # active runs that a worker executes; the others wait
        self.losses = Counter[int]()

    def start(self, runs: Sequence[tuple[str, Job]]) -> None:
        """Connect, and submit all runs. Ray executes as many at a time as there are CPUs and GPUs."""
        ray = self.ray
        self.token.parent.mkdir(parents=True, exist_ok=True)
        self.token.touch()
        if self.is_own:
            self._connect()
        self._warn_if_none_fits()
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self.board = ray.remote(num_cpus=0, scheduling_strategy=here)(Board).remote()
        variables = {name: os.path.abspath(os.environ[name]) for name in _VARIABLES if name in os.environ}
        driver = Driver(self.token, tuple(self.files), os.getcwd(), variables, own_versions(), warnings.formatwarning)
        self.driver, self.runs = ray.put(driver), runs
        self.task = ray.remote(num_cpus=1, num_gpus=self.gpus, max_retries=0)(work)
        for number in range(len(runs)):
            self._submit(number)
        self.news = self.board.collect.remote(False)

    def _connect(self) -> None:
        """Connect to the cluster, or start Ray on this machine."""
        ray = self.ray
        options: dict[str, Any] = {"address": self.address or "local", "logging_level": logging.ERROR, "log_to_driver": False}
        if self.address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            # The paths of sockets are short, and nothing is left in /tmp/ray.
            self.own_folder = tempfile.mkdtemp(prefix="outspan-", dir="/tmp")
            options |= {"num_cpus": self.jobs, "include_dashboard": False, "_temp_dir": self.own_folder}
            options["object_store_memory"] = _OBJECT_STORE
        before = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(**options)
        except Exception as error:
            first = str(error).partition("\n")[0]
            where = f"connect to {self.address}" if self.address else "start on this machine"
            raise RuntimeError(f"Ray could not {where} ({first}); run the same command again") from None
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray has replaced it

    def _warn_if_none_fits(self) -> None:
        ray = self.ray
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(node.get("CPU", 0) >= 1 and node.get("GPU", 0) >= self.gpus for node in nodes):
            needs = "1 CPU" + (f" and {self.gpus:g} GPUs" if self.gpus else "")
            warnings.warn(f"a run needs {needs}, and no node of the Ray cluster has that: the runs wait for one", stacklevel=2)

    def _submit(self, number: int) -> None:
        title, run = self.runs[number]
        is_repeated = self.losses[number] > 0
        task = self.task.options(name=title).remote(self.board, number, run, self.driver, is_repeated)
        self.active[task] = number

    @property
    def is_active(self) -> bool:
        """Whether any run has not ended."""
        return bool(self.active)

    def receive(self, seconds: float) -> list[Message]:
        """Wait, and return the progress of runs, and the results and errors of those that have ended."""
        ray = self.ray
        try:
            waiting = [self.news, *self.active]
            ended, _ = ray.wait(waiting, num_returns=len(waiting), timeout=seconds)
            messages = self._read_board() if self.news in ended else []
            return messages + [message for task in ended if task in self.active for message in self._read(task)]
        except ray.exceptions.RayError as error:
            first = str(error).partition("\n")[0]
            raise RuntimeError(f"the Ray cluster does not answer ({first}); run the same command again to resume") from None

    def _read_board(self) -> list[Message]:
        """Return the progress of active runs, and print what they have to show."""
        ray = self.ray
        news = ray.get(self.news)
        self.news = self.board.collect.remote(self.is_stopping)
        for text in news.texts:
            sys.stderr.write(text)
        self.begun |= news.fractions.keys()
        active = set(self.active.values())
        return [Message(number, fraction, False) for number, fraction in news.fractions.items() if number in active]

    def _read(self, task: Any) -> list[Message]:
        """Return the result or the error of a run that has ended. One whose worker was lost is submitted again."""
        ray = self.ray
        number = self.active.pop(task)
        try:
            return [Message(number, ray.get(task), True)]
        except ray.exceptions.TaskCancelledError:
            return [Message(number, Stopped("stopped before its first step"), True)]
        except ray.exceptions.RayTaskError as error:
            reason = str(error).strip().rpartition("\n")[2]
            how = "outspan must be installed on all nodes, in the same version"
            return [Message(number, RuntimeError(f"a worker of Ray cannot start a run ({reason}); {how}"), True)]
        except ray.exceptions.RayError:
            return self._repeat(number)

    def _repeat(self, number: int) -> list[Message]:
        """Submit a run again, except after too many losses."""
        title = self.runs[number][0]
        self.begun.discard(number)
        self.losses[number] += 1
        if self.is_stopping or self.losses[number] > _LOSSES:
            reason = f"its worker was lost {self.losses[number]} times, maybe out of memory"
            return [Message(number, Lost(f"{title}: {reason}; run the same command again to resume"), True)]
        warnings.warn(f"{title}: its worker was lost, another one resumes the run", stacklevel=2)
        self._submit(number)
        return []

    def request_stop(self) -> None:
        """Request that runs save themselves and stop. Those that wait are cancelled."""
        ray = self.ray
        if not self.is_stopping:
            self.is_stopping = True
            for task, number in self.active.items():
                if number not in self.begun:
                    ray.cancel(task)

    def end(self) -> None:
        """End the runs that are still active, leave the cluster, and end a Ray that was started for these runs."""
        ray = self.ray
        self.token.unlink(missing_ok=True)
        for task in self.active:
            ray.cancel(task, force=True)
        if self.is_own:
            ray.shutdown()
        elif self.runs:
            ray.kill(self.board)
        if self.own_folder:
            shutil.rmtree(self.own_folder, ignore_errors=True)
