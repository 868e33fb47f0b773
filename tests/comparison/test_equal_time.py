"""Equal time: numbers of steps from times that the tests set, and the file that keeps them."""

import json

import numpy as np
import pytest
import torch

import outspan
from outspan.comparison import equal_time
from outspan.comparison.equal_time import Budget
from outspan.comparison.result import Comparison, PolicyResult
from outspan.config import Recipe
from outspan.training import checkpoint
from outspan.training.step import lr_at

pytestmark = pytest.mark.usefixtures("one_thread")
TIMES = {"none": 0.5, "random": 1.0, "uncertain": 2.0}


@pytest.fixture
def keys(tiny) -> dict:
    return {"data": str(tiny), "model": "mlp", "epochs": 4, "batch": 20}


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
    assert {text.get_text() for text in axis.texts} == {"none", "random"}
    stored = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert stored["budgets"]["0.5"]["random"]["steps"] == 3
    assert stored["policies"] == stored["budgets"]["1"]


def test_times_are_kept_and_reused(keys, tmp_path):
    compare(tmp_path / "out", keys, policies="random")
    stored = json.loads((tmp_path / "out" / "step_times.json").read_text())
    assert (stored["seconds"], stored["step_seconds"]) == (12.0, {"random": 1.0})
    changed = {"none": 0.25, "random": 9.0}  # what is stored is not measured again, and the time stays
    options = {"policies": "none,random", "equal": "time", "step_seconds": changed}
    result = outspan.compare(out=tmp_path / "out", seeds=1, **options, **keys)
    assert {name: entry.steps for name, entry in result.policies.items()} == {"none": 48, "random": 12}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epochs": 8}, "epochs 4 there, 8 requested"),
        ({"batch": 10, "lr": 0.5}, r"batch 20 there, 10 requested, lr 0\.\d+ there, 0\.5 requested"),
        ({"model": "convnet"}, "model 'mlp' there, 'convnet' requested"),
        ({"minutes": 1}, r"minutes None there, 1\.0 requested"),
        ({"jobs": 2}, "jobs 1 there, 2 requested"),
        ({"data": "digits"}, r"samples '60 images, SHA-256 \w{16}' there, '5,000 images, SHA-256 \w{16}' requested"),
    ],
)
def test_times_of_other_settings_are_refused(changed, message, keys, tmp_path, monkeypatch):
    compare(tmp_path / "out", keys, policies="none")
    monkeypatch.setattr(equal_time, "measure_steps", pytest.fail)  # what is refused is refused before any step is timed
    options = {"out": tmp_path / "out", "policies": "none,random", "seeds": 1, "equal": "time", **keys, **changed}
    advice = "use the same settings, choose another folder, or delete this file and the runs beside it"
    with pytest.raises(
        ValueError, match=rf"step_times\.json: the steps were timed with other settings \({message}\); {advice}"
    ):
        outspan.compare(**options)


def test_times_of_other_devices_and_threads_are_refused(keys, tmp_path, monkeypatch):
    compare(tmp_path / "out", keys, policies="none")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(equal_time, "_name_of", lambda device: "NVIDIA H200")
    with pytest.raises(ValueError, match=r"\(device 'cpu' there, 'NVIDIA H200' requested, threads 1 there, 3 requested\)"):
        compare(tmp_path / "out", keys, policies="none")


def test_a_key_that_an_older_version_did_not_know_has_its_default(keys, tmp_path):
    compare(tmp_path / "out", keys, policies="none")
    path = tmp_path / "out" / "step_times.json"
    stored = json.loads(path.read_text())
    del stored["settings"]["finish"]
    path.write_text(json.dumps(stored))
    compare(tmp_path / "out", keys, policies="none")
    with pytest.raises(ValueError, match=r"\(finish 0\.0 there, 0\.5 requested\)"):
        compare(tmp_path / "out", keys | {"finish": 0.5}, policies="none")


def test_data_that_was_moved_is_the_same_data(keys, tmp_path):
    compare(tmp_path / "out", keys, policies="none")
    (tmp_path / "tiny.npz").rename(tmp_path / "moved.npz")
    compare(tmp_path / "out", keys | {"data": str(tmp_path / "moved.npz")}, policies="none")


def test_equal_epochs_and_equal_time_do_not_share_a_folder(keys, tmp_path, monkeypatch):
    monkeypatch.setattr(equal_time, "measure_steps", pytest.fail)
    outspan.compare(policies="none", seeds=1, out=tmp_path / "epochs", **keys)
    for policies in ("none", "random"):  # the second has no run there
        with pytest.raises(ValueError, match="epochs: contains runs that were not trained at equal time; choose another"):
            outspan.compare(policies=policies, seeds=1, out=tmp_path / "epochs", equal="time", **keys)
    (tmp_path / "epochs" / "comparison.json").unlink()  # as if it was stopped
    with pytest.raises(ValueError, match="contains runs that were not trained at equal time"):
        outspan.compare(policies="none", seeds=1, out=tmp_path / "epochs", equal="time", **keys)
    compare(tmp_path / "time", keys, policies="none")
    with pytest.raises(ValueError, match="time: contains a comparison at equal time; choose another folder, or use equal"):
        outspan.compare(policies="none", seeds=1, out=tmp_path / "time", **keys)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"seconds": 1, "step_seconds": {}}',
        '{"settings": 1, "seconds": 1, "step_seconds": {}}',
        '{"settings": {}, "seconds": "x", "step_seconds": {}}',
        '{"settings": {}, "seconds": 1, "step_seconds": 3}',
        '{"settings": {}, "seconds": 1, "step_seconds": {"random": 0}}',
    ],
)
def test_a_damaged_file_of_times_is_refused(text, keys, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "step_times.json").write_text(text)
    with pytest.raises(ValueError, match=r"step_times\.json: cannot be read \(.*\); choose another folder, or delete"):
        compare(tmp_path / "out", keys, policies="random")


def test_at_least_one_step_and_no_overflow():
    assert Budget(1.0, {"random": 5.0}).steps("random") == 1
    assert Budget(1e300, {"random": 1.0}).steps("random", 1e300) == 10**18  # `Recipe` refuses it


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"equal": "steps"}, "equal must be 'epochs' or 'time', got 'steps'"),
        ({"minutes": 1}, "minutes, budgets and step_seconds need equal time"),
        ({"budgets": (1, 2)}, "minutes, budgets and step_seconds need equal time"),
        ({"step_seconds": TIMES}, "minutes, budgets and step_seconds need equal time"),
        ({"equal": "time", "minutes": 0}, "minutes must be a positive number, got 0"),
        ({"equal": "time", "minutes": "5"}, "minutes must be a number, got '5'"),
        ({"equal": "time", "minutes": True}, "minutes must be a number, got True"),
        ({"equal": "time", "budgets": ()}, r"budgets must be a list of multiples of the time, .* got \(\)"),
        ({"equal": "time", "budgets": 2}, r"budgets must be a list of multiples of the time, .* got 2"),
        ({"equal": "time", "budgets": "12"}, r"budgets must be a list of multiples of the time, .* got '12'"),
        ({"equal": "time", "budgets": (1, -2)}, "each of budgets must be a positive number, got -2"),
        ({"equal": "time", "budgets": (float("nan"),)}, "each of budgets must be a positive number, got nan"),
        ({"equal": "time", "budgets": np.ones((2, 2))}, r"each of budgets must be a number, got array\(\[1., 1.\]\)"),
        ({"equal": "time", "step_seconds": {"none": 1.0}}, r"step_seconds\['random'\] must be a number, got None"),
        ({"equal": "time", "step_seconds": TIMES | {"random": 0}}, r"step_seconds\['random'\] must be a positive .* got 0"),
        ({"equal": "time", "step_seconds": TIMES | {"none": "1"}}, r"step_seconds\['none'\] must be a number, got '1'"),
        ({"equal": "time", "step_seconds": 0.1}, "step_seconds must be a dictionary of seconds by policy, got 0.1"),
        ({"equal": "time", "jobs": 0}, "jobs must be at least 1, got 0"),
        ({"equal": "time", "jobs": 1.5}, "jobs must be a whole number, got 1.5"),
        ({"equal": "time", "seeds": True}, "seeds must be a whole number, got True"),
    ],
)
def test_what_is_refused(options, message, keys, tmp_path, monkeypatch, unchecked):
    monkeypatch.setattr(equal_time, "measure_steps", pytest.fail)
    with pytest.raises(ValueError, match=message):
        outspan.compare(policies="none,random", out=tmp_path / "out", **options, **keys)
    assert not (tmp_path / "out").exists()


def test_numbers_and_arrays_of_numpy(keys, tmp_path, unchecked):
    times = {"none": np.float32(0.5), "random": np.int64(1)}
    options = {"budgets": np.array([1, 2]), "minutes": np.float32(0.1), "seeds": np.int64(1), "jobs": np.int64(1)}
    result = outspan.compare(policies="none,random", out=tmp_path / "out", equal="time", step_seconds=times, **options, **keys)
    steps = {multiple: [entry.steps for entry in entries.values()] for multiple, entries in result.budgets.items()}
    assert steps == {1: [12, 6], 2: [24, 12]}


def compared(equal: str, *seconds: dict[str, float]) -> Comparison:
    """Return a comparison with the given training seconds, by budget (1, 2, …) and policy."""
    results = [
        {name: PolicyResult((0.5,), (0.5,), 0.5, 0.0, 10, 1.0, value, ((0.5,),), (10,)) for name, value in by_policy.items()}
        for by_policy in seconds
    ]
    return Comparison(Recipe(), dict(enumerate(results, 1)), 0.1, equal)


def test_a_warning_if_the_training_times_differ():
    fair = {"none": 10.0, "random": 10.9}
    unfair = {"none": 10.0, "random": 11.1}
    assert compared("time", fair).warnings == ()
    assert compared("epochs", unfair).warnings == ()
    (line,) = compared("time", unfair).warnings
    assert line.startswith("The training times differ by more than 10 % (`none` 10 s, `random` 11.1 s): not a fair comparison.")
    result = compared("time", unfair, fair, unfair)
    assert [line.split(" the ")[0] for line in result.warnings] == ["At budget 1", "At budget 3"]
    assert result.as_dict()["warnings"] == list(result.warnings)
    assert "\n" not in "".join(result.warnings)


def test_the_budget_of_the_verdicts_is_named_if_there_are_several():
    entries = {"none": 10.0, "random": 10.0}
    assert compared("time", entries).verdicts[0] == "`none` and `random` are equal. With one seed per policy the " + (
        "significance is unknown."
    )
    assert compared("time", entries, entries).verdicts[0] == "At budget 2:"


def test_validation_samples_are_not_counted_as_training_samples(keys, tmp_path):
    result = compare(tmp_path / "out", keys | {"validation": 20}, policies="none")
    assert result.policies["none"].epochs == 4
