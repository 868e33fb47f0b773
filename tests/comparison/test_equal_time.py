"""Equal time: numbers of steps from times that the tests set, the file that keeps them, and a measurement with a fake clock."""

import json

import numpy as np
import pytest
import torch

import outspan
from outspan.comparison import equal_time
from outspan.comparison.equal_time import Budget, measure_steps, plan_budget
from outspan.config import Recipe
from outspan.data.sets import load_for
from outspan.training import Stopped, checkpoint
from outspan.training.step import lr_at

pytestmark = pytest.mark.usefixtures("one_thread")
TIMES = {"none": 0.5, "random": 1.0, "uncertain": 2.0}


@pytest.fixture
def tiny(tmp_path) -> str:
    """Return a data set of 60 images of two classes, 3 steps per epoch in batches of 20."""
    labels = np.arange(60) % 2
    images = np.full((60, 8, 8), 20, dtype=np.uint8)
    images[labels == 1] = 220
    np.savez(tmp_path / "tiny.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    return str(tmp_path / "tiny.npz")


@pytest.fixture
def keys(tiny) -> dict:
    return {"data": tiny, "model": "mlp", "epochs": 4, "batch": 20}


def compare(out, keys, **options):
    return outspan.compare(out=out, seeds=1, equal="time", step_seconds=TIMES, **options, **keys)


def test_every_policy_gets_the_steps_that_fit_into_the_time_of_the_cheapest(keys, tmp_path):
    result = compare(tmp_path / "out", keys, policies=list(TIMES))
    assert {name: entry.steps for name, entry in result.policies.items()} == {"none": 12, "random": 6, "uncertain": 3}
    assert {name: entry.epochs for name, entry in result.policies.items()} == {"none": 4, "random": 2, "uncertain": 1}
    assert result.equal == "time"
    for name, entry in result.policies.items():
        stored = checkpoint.load(tmp_path / "out" / f"{name}-0")[1]
        assert stored["step"] == entry.steps == stored["recipe"]["steps"]


def test_minutes_fix_the_time_and_a_run_may_end_within_an_epoch(keys, tmp_path):
    result = compare(tmp_path / "out", keys, policies="none,random", minutes=5 / 60)
    assert {name: entry.steps for name, entry in result.policies.items()} == {"none": 10, "random": 5}
    none = result.policies["none"]
    assert none.epochs == pytest.approx(10 / 3)
    assert none.evaluated == (3, 6, 9, 10)
    recipe = Recipe(steps=10, batch=20)
    rates = [row["lr"] for row in checkpoint.load(tmp_path / "out" / "none-0")[1]["metrics"]]
    assert rates == [lr_at(recipe, step - 1, 10) for step in none.evaluated]  # the schedule spans the new length


def test_budgets_repeat_the_comparison_at_multiples(keys, tmp_path):
    result = compare(tmp_path / "out", keys, policies="none,random", budgets=(1, 0.5))
    steps = {multiple: [entry.steps for entry in entries.values()] for multiple, entries in result.budgets.items()}
    assert steps == {1: [12, 6], 0.5: [6, 3]}
    assert result.policies is result.budgets[1]
    assert (tmp_path / "out" / "budget-0.5" / "none-0").is_dir()
    (axis,) = result.frontier().axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["none", "random"]
    stored = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert stored["budgets"]["0.5"]["random"]["steps"] == 3
    assert stored["policies"] == stored["budgets"]["1"]


def test_times_are_kept_and_reused(keys, tmp_path):
    compare(tmp_path / "out", keys, policies="random")
    stored = json.loads((tmp_path / "out" / "step_times.json").read_text())
    assert stored == {"seconds": 12.0, "step_seconds": {"random": 1.0}}
    changed = {"none": 0.25, "random": 9.0}  # what is stored is not measured again, and the time stays
    options = {"policies": "none,random", "equal": "time", "step_seconds": changed}
    result = outspan.compare(out=tmp_path / "out", seeds=1, **options, **keys)
    assert {name: entry.steps for name, entry in result.policies.items()} == {"none": 48, "random": 12}
    with pytest.raises(ValueError, match=r"contains a comparison with another time \(.* 12 seconds each, not 60\)"):
        compare(tmp_path / "out", keys, policies="random", minutes=1)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"seconds": "x", "step_seconds": {}}', '{"seconds": 1, "step_seconds": 3}'])
def test_a_damaged_file_of_times_is_refused(text, keys, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "step_times.json").write_text(text)
    with pytest.raises(ValueError, match=r"step_times.json: cannot be read \(.*\); delete it to time the steps again"):
        compare(tmp_path / "out", keys, policies="random")


def test_at_least_one_step():
    assert Budget(1.0, {"random": 5.0}).steps("random") == 1


def test_what_is_refused(keys, tmp_path, unchecked):
    for options, message in (
        ({"equal": "steps"}, "equal must be 'epochs' or 'time', got 'steps'"),
        ({"minutes": 1}, "minutes and budgets need equal time"),
        ({"budgets": (1, 2)}, "minutes and budgets need equal time"),
        ({"equal": "time", "minutes": 0}, "minutes must be a positive number, got 0"),
        ({"equal": "time", "minutes": "5"}, "minutes must be a positive number, got '5'"),
        ({"equal": "time", "budgets": ()}, r"budgets must be positive numbers, .* got \(\)"),
        ({"equal": "time", "budgets": (1, -2)}, r"budgets must be positive numbers, .* got \(1, -2\)"),
        ({"equal": "time", "step_seconds": {"none": 1.0}}, "step_seconds must have a positive number .* 'random', got None"),
        ({"equal": "time", "step_seconds": {"none": 1.0, "random": 0}}, "step_seconds must .* for 'random', got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            outspan.compare(policies="none,random", out=tmp_path / "out", **options, **keys)
    assert not (tmp_path / "out").exists()


class Clock:
    """A clock that runs only while a policy is called: its seconds, by name."""

    def __init__(self, seconds) -> None:
        self.now, self.seconds, self.turns = 0.0, seconds, []

    def perf_counter(self) -> float:
        return self.now


def test_the_step_time_is_the_median_over_turns(keys, tmp_path, monkeypatch):
    clock = Clock({"none": iter([0.1] * 1000), "random": iter([0.3] * 40 + [9.0] * 7 + [0.3] * 1000)})
    augment = equal_time.Run.augment

    def timed(run, inputs, labels):
        clock.now += next(clock.seconds[run.recipe.policy])
        clock.turns.append(run.recipe.policy)
        return augment(run, inputs, labels)

    monkeypatch.setattr(equal_time, "time", clock)
    monkeypatch.setattr(equal_time.Run, "augment", timed)
    recipe = Recipe(**keys)
    recipes = {name: Recipe(**keys, policy=name) for name in ("none", "random")}
    times = measure_steps(recipes, load_for(recipe), folder=tmp_path, device="cpu")
    assert times == {"none": pytest.approx(0.1), "random": pytest.approx(0.3)}  # one slow turn of five changes nothing
    changes = sum(one != other for one, other in zip(clock.turns, clock.turns[1:], strict=False))
    assert changes == 2 * equal_time._ROUNDS + 1  # they take turns, after the warm-up of each
    assert list(tmp_path.iterdir()) == [tmp_path / "tiny.npz"]  # nothing was written


def test_timing_can_be_stopped_and_uses_the_requested_threads(keys, tmp_path):
    recipe, threads = Recipe(**keys), []

    def on_step(progress) -> bool:
        threads.append(torch.get_num_threads())
        return progress.step == 2

    before = torch.get_num_threads()
    with pytest.raises(Stopped, match="stopped while the steps were timed"):
        plan_budget({"none": recipe}, load_for(recipe), folder=tmp_path / "out", device="cpu", threads=2, on_step=on_step)
    assert threads == [2, 2]
    assert torch.get_num_threads() == before
    assert not (tmp_path / "out").exists()


def test_a_step_that_cannot_be_timed_names_the_policy(keys, tmp_path):
    recipe = Recipe(**keys | {"batch": 59, "model": "convnet"}, policy="random")  # the last batch has one sample
    with pytest.raises(ValueError, match=r"random: its step could not be timed \("):
        measure_steps({"random": recipe}, load_for(recipe), folder=tmp_path, device="cpu")


def test_timing_stays_within_the_run_before_its_finish(keys, tmp_path, monkeypatch):
    """Beyond its end, a linear schedule has negative learning rates, and the finish is cheaper than the other steps."""
    steps, augment = set(), equal_time.Run.augment

    def recorded(run, inputs, labels):
        steps.add(run.step)
        return augment(run, inputs, labels)

    monkeypatch.setattr(equal_time.Run, "augment", recorded)
    recipe = Recipe(**keys, policy="random", schedule="linear", finish=0.5)  # 12 steps
    measure_steps({"random": recipe}, load_for(recipe), folder=tmp_path, device="cpu")
    assert steps == set(range(6))


def test_validation_samples_are_not_counted_as_training_samples(keys, tmp_path):
    result = compare(tmp_path / "out", keys | {"validation": 20}, policies="none")
    assert result.policies["none"].epochs == 4
