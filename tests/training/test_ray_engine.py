"""The engine for Ray without Ray: a mock that executes each task at once, in this process."""

import os
import socket
import sys
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from outspan.config import Recipe
from outspan.training import Progress, Stopped, ray_engine, ray_worker
from outspan.training.engine import Engine
from outspan.training.pool import Pool, run_all


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class TaskCancelledError(RayError):
    pass


class Reference:
    """The result of a function that is called when the result is read."""

    def __init__(self, function):
        self.function = function

    def future(self):
        return SimpleNamespace(done=lambda: True, result=self.function)


class Remote:
    """A function whose `remote` returns a reference."""

    def __init__(self, function, log):
        self.function, self.log = function, log

    def options(self, name):
        self.log.append(name)
        return self

    def remote(self, *arguments):
        return Reference(partial(self.function, *arguments))


class Actor:
    """An object whose methods have `remote`. They are called in the order of their calls."""

    def __init__(self, instance):
        self.instance = instance

    def __getattr__(self, name):
        def call(*arguments):
            result = getattr(self.instance, name)(*arguments)
            return Reference(lambda: result)

        return SimpleNamespace(remote=call)


@pytest.fixture
def ray(monkeypatch, one_thread):
    """Replace Ray by a mock that is connected. Return it."""
    log, cancelled = [], []

    def get(reference):
        if reference in cancelled:
            raise TaskCancelledError
        return reference.function()

    def remote(**options):
        def decorate(target):
            if isinstance(target, type):
                return SimpleNamespace(remote=lambda: Actor(target()))
            return Remote(
                lambda board, number, run, driver, is_repeated: target(board, number, run, get(driver), is_repeated), log
            )

        return decorate

    mock = SimpleNamespace(
        exceptions=SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError, TaskCancelledError=TaskCancelledError),
        util=SimpleNamespace(scheduling_strategies=SimpleNamespace(NodeAffinitySchedulingStrategy=lambda *a, **k: None)),
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "a"),
        is_initialized=lambda: True,
        nodes=lambda: [{"Alive": True, "Resources": {"CPU": 2.0}}],
        put=lambda value: Reference(lambda: value),
        wait=lambda references, **options: (references[:2], references[2:]),
        get=get,
        remote=remote,
        cancel=lambda task, force=False: cancelled.append(task),
        kill=lambda board: log.append("killed"),
        log=log,
    )
    monkeypatch.setitem(sys.modules, "ray", mock)
    monkeypatch.setattr(ray_engine, "find_spec", lambda name: name)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # a worker replaces both
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    return mock


def work(number, *, on_step):
    on_step(Progress(1, 2))
    return number


def stop(*, on_step):
    raise Stopped("at a step")


def fail(*, on_step):
    raise ValueError("b, seed 0: bad")


def test_results_are_in_the_order_of_the_runs_and_nothing_else_stays_in_the_folder(ray, tmp_path):
    runs = [(f"run {i}", partial(work, i)) for i in range(3)]
    assert run_all(runs, Pool(2, "ray"), out=tmp_path / "out") == [0, 1, 2]
    assert ray.log == ["run 0", "run 1", "run 2", "killed"]  # the board, and not the connection of the user
    assert list(tmp_path.rglob("*")) == [tmp_path / "out"]


def test_after_an_error_waiting_runs_are_cancelled(ray, tmp_path):
    runs = [("b", fail), *((f"run {i}", partial(work, i)) for i in range(3))]
    with pytest.raises(ValueError, match="b, seed 0: bad") as raised:
        run_all(runs, Pool(2, "ray"), out=tmp_path)
    assert "in work" in "".join(getattr(raised.value, "__notes__", ["in work"]))  # the traceback in the worker
    assert not list(tmp_path.iterdir())


def test_a_run_that_has_stopped_raises_stopped(ray, tmp_path):
    with pytest.raises(Stopped, match="run the same command again"):
        run_all([("a", stop)], Pool(2, "ray"), out=tmp_path)


def test_a_lost_worker_is_replaced_a_few_times(ray, tmp_path):
    left = iter([RayError("lost"), RayError("lost")])

    def lose(*, on_step):
        raise AssertionError

    def submit(board, number, run, driver, is_repeated):
        if error := next(left, None):
            raise error
        return "done" if is_repeated else "begun"

    original = ray.remote
    ray.remote = lambda **options: lambda target: original(**options)(target if isinstance(target, type) else submit)
    with pytest.warns(UserWarning, match="a run: its worker was lost, another one resumes the run"):
        assert run_all([("a run", lose)], Pool(1, "ray"), out=tmp_path) == ["done"]
    left = iter([RayError("lost")] * 6)
    with (
        pytest.warns(UserWarning, match="another one resumes"),
        pytest.raises(ValueError, match="a run: its worker was lost 6 times, maybe out of memory"),
    ):
        run_all([("a run", lose)], Pool(1, "ray"), out=tmp_path)
    left = iter([RayTaskError("remote traceback\nModuleNotFoundError: No module named 'outspan'")])
    with pytest.raises(RuntimeError, match=r"cannot start a run \(ModuleNotFoundError: No module named 'outspan'\)"):
        run_all([("a run", lose)], Pool(1, "ray"), out=tmp_path)


def test_a_run_that_fits_on_no_node_gets_a_warning(ray, tmp_path):
    ray.nodes = lambda: [{"Alive": True, "Resources": {"CPU": 0.0}}, {"Alive": False, "Resources": {"CPU": 2.0}}]
    with pytest.warns(UserWarning, match="a run needs 1 CPU, and no node of the Ray cluster has that"):
        run_all([("a", partial(work, 1))], Pool(1, "ray"), out=tmp_path)


@pytest.mark.parametrize("lacking", ["output", "data", "torch"])
def test_a_worker_refuses_other_files_and_versions(lacking, ray, tmp_path, few, monkeypatch):
    versions = ray_worker.own_versions()
    if lacking == "output":
        monkeypatch.setattr(Path, "touch", lambda path: None)  # the worker does not see the file
        message = (
            f"{tmp_path / 'out'}: not there on the node {socket.gethostname()} of the Ray cluster; data and output must be"
        )
    elif lacking == "data":
        monkeypatch.setattr(os, "chdir", lambda folder: few.unlink())
        message = f"{few}: not there on the node .* must be on a file system that all nodes share, with the same paths"
    else:
        monkeypatch.setattr(ray_engine, "own_versions", lambda: {**versions, "torch": "1.0"})
        message = f"has torch {versions['torch']}, and not 1.0: install the same version there"
    with pytest.raises(ValueError, match=message):
        run_all([("a", partial(work, 1))], Pool(1, "ray"), out=tmp_path / "out", recipes=[Recipe(data=str(few))])


def test_a_run_reports_its_progress_and_learns_that_it_should_stop(ray, monkeypatch):
    board = Actor(ray_worker.Board())
    report = ray_worker._Report(board, 7)
    monkeypatch.setattr(ray_worker, "_PAUSE", -1.0)
    assert board.instance.news.fractions == {7: 0.0}
    assert not report(Progress(1, 4))
    assert board.instance.news.fractions == {7: 0.25}
    ray.get(board.collect.remote(True))
    assert board.instance.news.fractions == {}
    assert not report(Progress(2, 4))  # the answer to the first report
    assert report(Progress(3, 4))


def test_both_engines_have_the_same_interface(ray, tmp_path):
    for pool in (Pool(2), Pool(2, "ray")):
        assert isinstance(pool.build_engine(torch.device("cpu"), tmp_path, []), Engine)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "spark"}, "engine must be 'local' or 'ray', got 'spark'"),
        ({"address": "auto"}, r"address and gpus_per_run are for Ray: use engine='ray' \(--engine ray\)"),
        (
            {"engine": "ray", "address": "ray://node1:10001"},
            "address must be 'auto' or HOST:PORT of a Ray cluster, got 'ray://",
        ),
        ({"engine": "ray", "address": "auto", "jobs": 2}, "executes as many runs at a time as fit: leave out jobs, got 2"),
        ({"engine": "ray", "gpus_per_run": 2}, "gpus_per_run must be at most 1, a run uses one GPU, got 2"),
        ({"engine": "ray", "gpus_per_run": 0}, "gpus_per_run must be a positive number, got 0"),
        ({"jobs": 0}, "jobs must be at least 1, got 0"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Pool(**options)


def test_a_device_that_does_not_fit_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="gpus_per_run needs device 'cuda', got 'cpu': start the command on a node with a GPU"):
        Pool(1, "ray", gpus_per_run=0.25).check("cpu")
    with pytest.raises(ValueError, match="Ray chooses the GPU of a run: use device 'cuda', got 'cuda:1'"):
        Pool(1, "ray").check("cuda:1")
    monkeypatch.setattr(ray_engine, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"engine 'ray' needs Ray, which is not installed: pip install 'outspan\[ray\]'"):
        Pool(1, "ray").check("cpu")


def test_a_run_takes_a_cpu_and_its_part_of_a_gpu(ray, tmp_path):
    original, taken = ray.remote, []
    ray.remote = lambda **options: taken.append((options["num_cpus"], options.get("num_gpus"))) or original(**options)
    ray.nodes = lambda: [{"Alive": True, "Resources": {"CPU": 2.0, "GPU": 1.0}}]
    for device, pool in (("cpu", Pool(1, "ray")), ("cuda", Pool(1, "ray")), ("cuda", Pool(1, "ray", gpus_per_run=0.25))):
        assert run_all([("a", partial(work, 1))], pool, device=device, out=tmp_path) == [1]
    assert taken[1::2] == [(1, 0.0), (1, 1.0), (1, 0.25)]
    assert taken[::2] == [(0, None)] * 3  # the board


SEEDS = ("--data", "digits", "--model", "mlp", "--seeds", "2")
COMMANDS = {
    "compare": (*SEEDS, "--policies", "none"),
    "measure": (*SEEDS, "--transforms", "rotate"),
    "compose": SEEDS,
    "core": SEEDS,
    "mixup": SEEDS,
    "grid": ("grid.toml",),
    "reproduce": ("table-3", "--rows", "svhn/wrn-28-10", "--methods", "baseline"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_address_where_nothing_answers_is_one_line(command, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.toml").write_text('data = "digits"\nvalidation = 500\nlr = [0.01, 0.1]\n')
    ray = ("--engine", "ray", "--address", "127.0.0.1:1")
    message = run(command, *COMMANDS[command], *ray, "-o", "out", code=2)
    assert "no Ray cluster at address '127.0.0.1:1' (" in message
    assert "refused); start one with `ray start --head`, or leave out the address (--address)" in message
    assert not (tmp_path / "out").exists()
