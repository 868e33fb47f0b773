"""A Ray cluster on this machine for tests: two nodes with one worker each, its processes, and the files of runs on it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ranks import free_port

RAY = Path(sys.executable).with_name("ray")
# Ray does not write a token into the home folder if it gets one.
ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
MARK = "OUTSPAN_TEST_CLUSTER"  # a variable that all processes of a cluster inherit
NODE = "OUTSPAN_TEST_NODE"  # one that those of a node inherit


def processes(mark: str, variable: str = MARK) -> dict[int, str]:
    """Return the command lines of running processes that have inherited a mark. Workers are called ray::TASK."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if f"{variable}={mark}\0".encode() in (folder / "environ").read_bytes() and state != "Z":
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:  # it has ended
                continue
    return found


def wait_until(condition: Callable[[], Any], seconds: float = 300.0) -> Any:
    """Return the first true result. The time limit only detects hangs."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, "it hangs"
        time.sleep(0.05)
    return result


def kill(mark: str, variable: str = MARK) -> None:
    """Kill all processes with a mark."""
    while found := processes(mark, variable):
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.1)


def contents(folder: Path) -> dict[str, object]:
    """Return the files of a folder, without the times in them. Figures and reports show times. Slow runs save more often."""
    kept = [path for path in folder.rglob("*") if path.suffix not in (".png", ".html")]
    files = {str(path.relative_to(folder)): without_times(path) for path in kept}
    last = {str(path.parent): path.name for path in sorted(map(Path, files)) if path.suffix == ".safetensors"}
    return {name: one for name, one in files.items() if not name.endswith(".safetensors") or Path(name).name in last.values()}


def without_times(path: Path) -> object:
    """Return the content of a file."""
    if path.is_dir():
        return None
    data = path.read_bytes()
    if path.suffix in (".json", ".jsonl"):
        text = re.sub(r'"(train_)?seconds": (\[[^]]*\]|[\d.e-]+)', "", data.decode())
        assert text
        return text
    if path.suffix == ".safetensors":
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        header["__metadata__"] = re.sub(r'"seconds": [\d.e-]+', "", header["__metadata__"]["meta"])
        return header, data[8 + int.from_bytes(data[:8], "little") :]
    return data


class Cluster:
    """A cluster that runs. A worker is started only for a task."""

    def __init__(self, folder: str) -> None:
        self.mark, port, self.nodes = uuid.uuid4().hex, free_port(), 0
        self.address = f"127.0.0.1:{port}"
        self.head = ["--head", "--port", port, "--temp-dir", folder, "--include-dashboard=false", "--ray-client-server-port"]

    def start(self) -> None:
        """Start two nodes."""
        self.add_node(*self.head, free_port())
        self.join()

    def join(self) -> None:
        """Add a node."""
        self.add_node("--address", self.address)

    def add_node(self, *options: object) -> None:
        """Start a node with one CPU. They have a second mark. Under high load the 30 s that Ray allows are too short."""
        self.nodes += 1
        own = ["--num-cpus", "1", "--object-store-memory", "100000000", "--min-worker-port", "0", "--max-worker-port", "0"]
        environment = os.environ | ENVIRONMENT | {MARK: self.mark, NODE: f"{self.mark}-{self.nodes}"}
        command = [RAY, "start", *map(str, options), *own, "--disable-usage-stats"]
        for _ in range(10):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
            if done.returncode == 0:
                return
            kill(f"{self.mark}-{self.nodes}", NODE)
        raise AssertionError(done.stdout + done.stderr)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a cluster, and kill it at the end. Paths of sockets must be short."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    started = Cluster(folder)
    try:
        started.start()
        yield started
    finally:
        kill(started.mark)
        shutil.rmtree(folder, ignore_errors=True)
