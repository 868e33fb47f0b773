"""Kill ranks at random times, let torchrun restart them, and compare the results.

    python tests/kill/ranks_drill.py                                    # 2 and 4 ranks, a few runs each
    python tests/kill/ranks_drill.py --world 2,4 --runs 20 --minutes 15 --result results/reliability.json

A run passes if torchrun finishes it without help, its results are bit-identical to those of a run without kills, there is no
traceback of a rank, and 60 seconds after a kill all ranks of the killed start have ended. Only runs with a kill are counted.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import drill  # it saves after every step, with a slow disk
import numpy as np
from drill import Failed, content, digits

from outspan import children

PATIENCE = 60.0  # seconds after a kill in which all ranks must have ended
LIMIT = 900.0  # seconds of a run; only detects hangs
RESTARTS = 20


class Launch:
    """A torchrun, which starts this file as a rank."""

    def __init__(self, world: int, arguments: list[str], log: Path) -> None:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(world)]
        launcher += ["--max-restarts", str(RESTARTS), "--master-port", str(20_000 + os.getpid() % 12_000), __file__]
        with open(log, "w") as file:
            self.process = subprocess.Popen([*launcher, *arguments], stdout=file, stderr=file, start_new_session=True)
        self.log, self.end = log, time.monotonic() + LIMIT
        self.started = {self.process.pid}  # torchrun and all its ranks so far, each the leader of a session

    def ranks(self) -> list[int]:
        """Return the running ranks: the children of torchrun."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                except OSError:  # it has ended
                    continue
                if int(parent) == self.process.pid and state != "Z":
                    found.append(int(folder.name))
        self.started.update(found)
        return found

    def wait_for_ranks(self, world: int) -> list[int]:
        """Return the ranks once all have started; none if the run has ended."""
        while self.process.poll() is None:
            if len(found := self.ranks()) == world:
                return found
            self.sleep()
        return []

    def kill_one(self, ranks: list[int], draw: np.random.Generator) -> float:
        """Kill one of the ranks, and return the seconds until all of them have ended."""
        try:
            os.kill(int(draw.choice(ranks)), signal.SIGKILL)
        except ProcessLookupError:
            return 0.0
        began = time.monotonic()
        while set(ranks) & set(self.ranks()):
            if time.monotonic() - began > PATIENCE:
                raise self.failed(f"a rank is left {PATIENCE:g} s after a kill")
            self.sleep()
        return time.monotonic() - began

    def finish(self) -> None:
        """Wait for the end of the run."""
        while self.process.poll() is None:
            self.ranks()
            self.sleep()
        ended = time.monotonic()
        if self.process.returncode:
            raise self.failed(f"exit code {self.process.returncode}")
        while any(children._is_running(pid) or drill.session(pid) for pid in self.started):  # data workers, too
            if time.monotonic() - ended > PATIENCE:
                raise self.failed(f"a process is left {PATIENCE:g} s after the end of torchrun")
            self.sleep()
        if any(word in self.log.read_text() for word in ("Traceback", "terminate called")):
            raise self.failed("a traceback, or a crash")

    def sleep(self) -> None:
        if time.monotonic() > self.end:
            raise self.failed("it hangs")
        time.sleep(0.02)

    def failed(self, reason: str) -> Failed:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        return Failed(f"{reason}:\n{self.log.read_text()}")


def run_world(world: int, runs: int, kills: int, seed: int, minutes: float) -> dict[str, Any]:
    """Kill ranks of several runs and return the counts. The first failure ends the drill."""
    draw, seconds, done = np.random.Generator(np.random.Philox([seed, world])), [0.0], 0
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        arguments = ["train", "--data", str(digits(root)), "--model", "convnet", "--policy", "uncertain"]
        arguments += ["--set", "epochs=20", "--set", "batch=40"]
        whole = Launch(world, [*arguments, "-o", str(root / "whole")], root / "log")
        whole.wait_for_ranks(world)
        began = time.monotonic()
        whole.finish()
        duration, expected = time.monotonic() - began, dict(content(root / "whole"))
        while done < runs and time.monotonic() < end:
            with tempfile.TemporaryDirectory(dir=root) as out:
                launch, before = Launch(world, [*arguments, "-o", out], root / "log"), len(seconds)
                for _ in range(kills):
                    if ranks := launch.wait_for_ranks(world):
                        time.sleep(float(draw.uniform(0.0, duration)))
                        if len(launch.ranks()) == world:
                            seconds.append(launch.kill_one(ranks, draw))
                launch.finish()
                if dict(content(Path(out))) != expected:
                    raise Failed(f"run {done} with {world} ranks differs from a run that was never killed")
            if len(seconds) == before:
                duration *= 0.8  # the machine was busier before
                continue
            done += 1
            print(f"{world} ranks: {done} runs identical, {len(seconds) - 1} kills", flush=True)
    return {"runs": done, "identical": done, "kills": len(seconds) - 1, "most_seconds_to_end": round(max(seconds), 1)}


def main() -> int:
    """Run the drill, print a line per number of ranks, and add it to a result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", default="2,4", help="numbers of ranks")
    parser.add_argument("--runs", type=int, default=3, help="runs per number of ranks")
    parser.add_argument("--kills", type=int, default=2, help="kills per run")
    parser.add_argument("--minutes", type=float, default=60.0, help="time per number of ranks, in which runs are started")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--result", type=Path, help="JSON file to add the counts to")
    options = parser.parse_args()
    return drill.run_drills(
        {
            ("ranks", world): partial(run_world, int(world), options.runs, options.kills, options.seed, options.minutes)
            for world in options.world.split(",")
        },
        options.result,
    )


if __name__ == "__main__":
    if "RANK" in os.environ:
        sys.argv[0] = "outspan"
        drill.outspan.cli.main()
    sys.exit(main())
