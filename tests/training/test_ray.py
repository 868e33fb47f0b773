"""Runs on a Ray cluster of two nodes with one worker each: after failures, the same files as those of local processes."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clusters import ENVIRONMENT, MARK, NODE, contents, kill, processes, wait_until

COMPARE = ("compare", "--data", "digits", "--model", "convnet", "--policies", "none,random", "--seeds", "2")
EPOCHS = ("--set", "epochs=3")
LONG = ("--set", "epochs=40")


def start(*arguments: object, mark: str = "none") -> subprocess.Popen[str]:
    """Start a command as the leader of its own process group, as a shell does."""
    command = [sys.executable, "-m", "outspan", *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    return subprocess.Popen(command, env=os.environ | ENVIRONMENT | {MARK: mark}, **options)


def run_here(*arguments: object) -> str:
    """Run a command that starts Ray on this machine, again if it does not start within its 30 seconds under high load."""
    for _ in range(10):
        process = start(*arguments, mark="here")
        error = process.communicate(timeout=900)[1]
        if "Ray could not start" not in error:
            assert process.returncode == 0, error
            return error
    raise AssertionError(error)


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    """Return what a command has printed to standard error."""
    error = process.communicate(timeout=900)[1]
    assert process.returncode == code, error
    return error


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The files of the comparison with local processes."""
    out = tmp_path_factory.mktemp("local") / "compared"
    finish(start(*COMPARE, *EPOCHS, "--jobs", 2, "-o", out))
    return contents(out)


@pytest.mark.cluster
def test_without_an_address_ray_starts_on_this_machine_and_ends(expected, tmp_path):
    run_here(*COMPARE, *EPOCHS, "--engine", "ray", "--jobs", 2, "-o", tmp_path / "compared")
    assert contents(tmp_path / "compared") == expected
    wait_until(lambda: not processes("here"))


def workers(mark: str, policy: str = "") -> list[int]:
    """Return the processes that execute a run, of any policy or of one."""
    return [pid for pid, name in processes(mark).items() if re.match(f"ray::{policy or '(none|random)'}, seed", name)]


def finished(folder: Path) -> dict[Path, int]:
    """Return the files of finished runs with the times of their last change."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("*/step-000000120.safetensors")}


@pytest.mark.cluster
def test_the_run_of_a_killed_worker_is_repeated_and_no_finished_run_is_lost(ray_cluster, expected, tmp_path):
    out = tmp_path / "compared"
    process = start(*COMPARE, *EPOCHS, "--engine", "ray", "--address", ray_cluster.address, "-o", out)
    wait_until(lambda: workers(ray_cluster.mark, "random"))  # the last runs
    assert len(workers(ray_cluster.mark)) <= 2  # of one CPU each
    before = finished(out)
    os.kill(workers(ray_cluster.mark, "random")[0], signal.SIGKILL)
    error = finish(process)
    assert len(re.findall(r"outspan: .*: its worker was lost, another one resumes the run", error)) == 1, error
    assert before
    assert before.items() <= finished(out).items()
    assert contents(out) == expected


@pytest.mark.cluster
def test_the_runs_of_a_lost_node_are_repeated_on_another_one(ray_cluster, expected, tmp_path):
    out = tmp_path / "compared"
    process = start(*COMPARE, *EPOCHS, "--engine", "ray", "--address", ray_cluster.address, "-o", out)
    wait_until(lambda: len(workers(ray_cluster.mark)) == 2)
    kill(f"{ray_cluster.mark}-{ray_cluster.nodes}", NODE)
    assert "its worker was lost" in finish(process)
    assert contents(out) == expected
    ray_cluster.join()


@pytest.mark.cluster
@pytest.mark.parametrize("place", ["cluster", "here"])
def test_ctrl_c_saves_all_runs_and_the_same_command_goes_on(place, request, tmp_path):
    mark, out = f"ctrl-c-{place}", tmp_path / "compared"
    options = ("--jobs", 2) if place == "here" else ("--address", request.getfixturevalue("ray_cluster").address)
    command = (*COMPARE, *EPOCHS, "--engine", "ray", *options, "-o", out)
    process = start(*command, mark=mark)
    wait_until(lambda: len(list(out.glob("*/metrics.jsonl"))) == 2)  # two runs have finished an epoch
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process, code=130).splitlines()[-1] == "outspan: stopped; run the same command again to resume"
    assert len(list(out.glob("*/step-*.safetensors"))) >= 2
    assert not list(out.glob(".ray-*"))
    wait_until(
        lambda: not processes(mark) and not (place == "cluster" and workers(request.getfixturevalue("ray_cluster").mark))
    )
    finish(start(*command, mark=mark))
    assert contents(out) == request.getfixturevalue("expected")


@pytest.mark.cluster
def test_workers_end_with_a_killed_command(ray_cluster, tmp_path):
    for options, mark in ((("--jobs", 2), "killed"), (("--address", ray_cluster.address), ray_cluster.mark)):
        process = start(*COMPARE, *LONG, "--engine", "ray", *options, "-o", tmp_path / mark, mark="killed")
        wait_until(lambda mark=mark: len(workers(mark)) == 2)
        process.kill()
        process.communicate()
        wait_until(lambda mark=mark: not workers(mark))


LOST = """
import os, sys
from outspan.training.pool import Pool, run_all

def die(*, on_step):
    os._exit(1)

try:
    run_all([("a run", die)], Pool(2, "ray"))
except ValueError as error:
    print(error)
"""


@pytest.mark.cluster
def test_a_run_whose_worker_is_always_lost_is_given_up(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOST], env=os.environ | ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, timeout=900
    )
    message = "a run: its worker was lost 6 times, maybe out of memory; run the same command again to resume"
    assert done.stdout.splitlines()[-1:] == [message], done.stderr  # after messages of Ray itself
    assert not list(tmp_path.iterdir())
