"""The measurement of step times: with a fake clock, and with processes that read image files."""

import itertools
import multiprocessing
import weakref
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from made import make_folder
from outspan.comparison import timing
from outspan.comparison.equal_time import plan_budget
from outspan.comparison.timing import measure_steps
from outspan.config import Recipe
from outspan.data import image_files
from outspan.data.dataset import Data
from outspan.data.sets import load_for
from outspan.training import Diverged, Stopped

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def keys(tiny) -> dict:
    """Return keys of a recipe with 12 steps, 3 per epoch."""
    return {"data": str(tiny), "model": "mlp", "epochs": 4, "batch": 20}


@pytest.fixture
def photos(tmp_path, monkeypatch) -> tuple[dict[str, Recipe], Data]:
    """Return recipes of two policies and a folder of 270 images, which two processes read. The rounds are few and short.

    The images are not kept in memory, like those of a larger folder.
    """
    monkeypatch.setattr(image_files, "_KEPT_BYTES", 0)
    monkeypatch.setattr(timing, "_ROUNDS", 3)
    monkeypatch.setattr(timing, "_ROUND_SECONDS", 0.0)
    make_folder(tmp_path / "photos", classes=tuple(f"c{i:02}" for i in range(90)), train=3, test=1)
    recipe = Recipe(data=str(tmp_path / "photos"), model="mlp", epochs=4, batch=20, size=8)
    data = load_for(recipe)
    return {name: replace(recipe, policy=name) for name in ("none", "random")}, replace(
        data, train=replace(data.train, workers=2)
    )


class Clock:
    """A clock that runs only while a policy is called: its seconds, by name."""

    def __init__(self, seconds: dict[str, Iterator[float]]) -> None:
        self.now, self.seconds, self.turns = 0.0, seconds, []

    def perf_counter(self) -> float:
        return self.now

    def install(self, monkeypatch) -> None:
        augment = timing.Run.augment

        def timed(run, inputs, labels):
            self.now += next(self.seconds[run.recipe.policy])
            self.turns.append(run.recipe.policy)
            return augment(run, inputs, labels)

        monkeypatch.setattr(timing, "time", self)
        monkeypatch.setattr(timing.Run, "augment", timed)


def test_the_step_time_is_the_median_over_turns(keys, tmp_path, monkeypatch):
    clock = Clock({"none": iter([0.1] * 1000), "random": iter([0.3] * 40 + [9.0] * 7 + [0.3] * 1000)})
    clock.install(monkeypatch)
    recipe = Recipe(**keys)
    recipes = {name: Recipe(**keys, policy=name) for name in ("none", "random")}
    times = measure_steps(recipes, load_for(recipe), folder=tmp_path, device="cpu")
    assert times == {"none": pytest.approx(0.1), "random": pytest.approx(0.3)}  # two slow turns change nothing
    changes = sum(one != other for one, other in zip(clock.turns, clock.turns[1:], strict=False))
    assert changes == 2 * timing._ROUNDS + 1  # they take turns, after the warm-up of each
    assert list(tmp_path.iterdir()) == [tmp_path / "tiny.npz"]  # nothing was written


def test_timing_can_be_stopped_and_uses_the_requested_threads(keys, tmp_path):
    recipe, threads = Recipe(**keys), []

    def on_step(progress) -> bool:
        threads.append(torch.get_num_threads())
        return progress.step == 2

    before = torch.get_num_threads()
    with pytest.raises(Stopped, match="stopped while the steps were timed"):
        plan_budget(recipe, {"none": recipe}, load_for(recipe), folder=tmp_path / "out", device="cpu", on_step=on_step)
    with pytest.raises(Stopped):
        measure_steps({"none": recipe}, load_for(recipe), folder=tmp_path, device="cpu", threads=2, on_step=on_step)
    assert threads == [1, 1, 2, 2]
    assert torch.get_num_threads() == before
    assert not (tmp_path / "out").exists()


def test_a_step_that_cannot_be_timed_names_the_policy(keys, tmp_path):
    recipe = Recipe(**keys | {"batch": 59, "model": "convnet"}, policy="random")  # the last batch has one sample
    with pytest.raises(ValueError, match=r"random: its step could not be timed \("):
        measure_steps({"random": recipe}, load_for(recipe), folder=tmp_path, device="cpu")


def test_timing_stays_within_the_run_before_its_finish(keys, tmp_path, monkeypatch):
    """Beyond its end, a linear schedule has negative learning rates, and the finish is cheaper than the other steps."""
    monkeypatch.setattr(timing, "_ROUND_SECONDS", 0.0)
    steps, augment = set(), timing.Run.augment

    def recorded(run, inputs, labels):
        steps.add(run.step)
        return augment(run, inputs, labels)

    monkeypatch.setattr(timing.Run, "augment", recorded)
    recipe = Recipe(**keys, policy="random", schedule="linear", finish=0.5)  # 12 steps
    measure_steps({"random": recipe}, load_for(recipe), folder=tmp_path, device="cpu")
    assert steps == set(range(6))


def test_image_files_are_timed_one_policy_after_another(photos, tmp_path, monkeypatch):
    """Processes that read ahead for another policy, and its model, would take time and memory from the one that is timed."""
    turns, processes, models, alive = [], [], set(), []
    augment = timing.Run.augment

    def recorded(run, inputs, labels):
        turns.append(run.recipe.policy)
        processes.append(len(multiprocessing.active_children()))
        models.add(weakref.ref(run.state.model))
        alive.append(sum(model() is not None for model in models))
        return augment(run, inputs, labels)

    monkeypatch.setattr(timing.Run, "augment", recorded)
    measure_steps(*photos, folder=tmp_path, device="cpu")
    assert turns == sorted(turns)
    assert set(turns) == {"none", "random"}
    assert set(processes) == {2}
    assert set(alive) == {1}
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("error", [Diverged("the loss is nan"), Stopped("stopped")])
def test_no_process_is_left_after_an_error_in_a_round(error, photos, tmp_path, monkeypatch):
    learn, steps = timing.Run.learn, []

    def fail(run, batch):
        steps.append(run.step)
        if len(steps) > timing._WARM_UP + 8:  # in the first round that counts
            raise error
        learn(run, batch)

    monkeypatch.setattr(timing.Run, "learn", fail)
    message = r"^none: its step could not be timed \(the loss is nan\)$" if isinstance(error, ValueError) else "stopped"
    with pytest.raises((ValueError, Stopped), match=message) as raised:
        measure_steps(*photos, folder=tmp_path, device="cpu")
    assert multiprocessing.active_children() == []
    assert raised  # keeps the traceback, and so the frames with the data loaders


@pytest.mark.slow
def test_the_step_time_is_the_mean_if_processes_read_the_data(photos, tmp_path, monkeypatch):
    """Several processes deliver their batches at the same time: seven steps out of eight do not wait."""
    monkeypatch.setattr(timing, "_ROUNDS", 15)
    Clock({name: itertools.cycle([0.01] * 7 + [0.73]) for name in ("none", "random")}).install(monkeypatch)
    times = measure_steps(*photos, folder=tmp_path, device="cpu")
    assert times == {name: pytest.approx(0.1, rel=0.05) for name in ("none", "random")}


def test_image_files_that_no_process_reads_are_timed_in_turns(photos, tmp_path, monkeypatch):
    recipes, data = photos
    clock = Clock({name: itertools.repeat(0.1) for name in recipes})
    clock.install(monkeypatch)
    measure_steps(recipes, replace(data, train=replace(data.train, workers=0)), folder=tmp_path, device="cpu")
    assert clock.turns != sorted(clock.turns)


@pytest.mark.parametrize("length", [{"epochs": 1}, {"steps": 2}])
def test_a_policy_that_stores_losses_is_timed_in_a_run_of_one_epoch(length, keys, tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "_ROUNDS", 3)
    monkeypatch.setattr(timing, "_ROUND_SECONDS", 0.0)
    recipe = Recipe(**{**keys, **length}, policy="auto")
    assert measure_steps({"auto": recipe}, load_for(recipe), folder=tmp_path, device="cpu")["auto"] > 0
