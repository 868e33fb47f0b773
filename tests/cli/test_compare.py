"""The command `outspan compare`: its table, its figure, and its errors."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from made import pixels
from outspan.comparison import equal_time
from outspan.comparison.result import Comparison
from outspan.comparison.statistics import Difference


def test_compare_prints_a_table_and_draws(tiny, tmp_path, run, side_by_side):
    changes = [part for change in (f"data={tiny}", "model=mlp", "epochs=2", "batch=20") for part in ("--set", change)]
    printed = run("compare", *changes, "--policies", "none,random", "--seeds", "2", "-o", tmp_path / "all")
    assert "none" in printed
    assert "±" in printed
    assert "leads" in printed or "are equal" in printed
    stored = json.loads((tmp_path / "all" / "comparison.json").read_text())
    assert stored["seeds"] == [0, 1]
    assert len(stored["policies"]["random"]["test_accuracy"]) == 2
    assert pixels(tmp_path / "all" / "accuracy.png").shape[:2] == (675, 1650)
    run("compare", *changes, "--policies", "none,random", "--seeds", "2", "--jobs", "2", "-o", tmp_path / "jobs")
    for name in ("none-0", "none-1", "random-0", "random-1"):
        alone, parallel = (
            [json.loads(line)["train_loss"] for line in (tmp_path / folder / name / "metrics.jsonl").read_text().splitlines()]
            for folder in ("all", "jobs")
        )
        assert parallel == pytest.approx(alone, rel=1e-3)  # the order of sums depends on the number of threads
    assert json.loads((tmp_path / "jobs" / "comparison.json").read_text())["seeds"] == [0, 1]


def test_compare_at_equal_time_prints_a_table_per_budget(tiny, tmp_path, run, monkeypatch):
    out = tmp_path / "all"
    monkeypatch.setattr(equal_time, "measure_steps", lambda *recipes, **options: {"none": 0.5, "random": 1.0})
    changes = [part for change in (f"data={tiny}", "model=mlp", "batch=20") for part in ("--set", change)]
    options = ("--policies", "none,random", "--seeds", "2", "--equal", "time", "--budgets", "1, 2", "-o", out)
    monkeypatch.setattr(Comparison, "warnings", ("At budget 2 the training times differ",))
    with monkeypatch.context() as patch:  # of few test samples, the two seeds may have equal differences
        patch.setattr(Comparison, "differences", [Difference("none", "random", 0.1, 0.3, 0.4)])
        printed = run("compare", *changes, *options, "--minutes", 4 / 60)
    assert "\nAt budget 2 the training times differ\nAt budget 2:\n" in printed
    assert "\n± after a difference" in printed
    rows = [line.split() for line in printed.splitlines()]
    assert [row[4:6] for row in rows if row[0] in ("none", "random")] == [
        ["2.667", "8"], ["1.333", "4"], ["5.333", "16"], ["2.667", "8"]
    ]  # epochs and steps  # fmt: skip
    assert rows.count(["budget", "2"]) == 1
    assert pixels(out / "frontier.png").shape[:2] == (675, 1050)
    assert "--budgets must be numbers separated by commas" in run("compare", "--budgets", "1,x", "-o", out, code=2)
    message = run("compare", *changes, *options, "--minutes", 0.1, code=2)
    assert "step_times.json: the steps were timed with other settings (minutes 0.0666" in message


def test_one_policy_has_no_differences_to_explain(tiny, tmp_path, run):
    changes = [part for change in (f"data={tiny}", "model=mlp", "epochs=1") for part in ("--set", change)]
    printed = run("compare", *changes, "--policies", "none", "--seeds", "2", "-o", tmp_path / "all")
    assert "\nOnly one policy: nothing to compare.\nwrote " in printed


def test_the_folder_of_a_comparison_is_not_accepted_as_a_run(tiny, tmp_path, run):
    changes = [part for change in (f"data={tiny}", "model=mlp", "epochs=1") for part in ("--set", change)]
    out = tmp_path / "all"
    run("compare", *changes, "--policies", "none,random", "--seeds", "1", "-o", out)
    advice = f"{out}: contains a comparison; pass one of its runs, e.g. {out / 'none-0'}"
    assert advice in run("evaluate", out, code=2)
    assert advice in run("predict", out, tmp_path / "any.png", code=2)
    message = run("train", *changes, "--policy", "none", "-o", out, code=2)
    assert f"{out}: contains a comparison, not a run; choose another folder" in message
    (out / "comparison.json").unlink()  # as if it was message
    assert "no complete checkpoint; pass a folder that `outspan train -o`" in (message := run("evaluate", out, code=2))
    assert f"wrote, e.g. {out / 'none-0'}" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policies", "none,nne"), "unknown policy 'nne', did you mean 'none'"),
        (
            ("--set", "seed=7"),
            "compare sets seed itself, so seed cannot be changed: use policies and seeds (--policies and --seeds)",
        ),
        (("--policies", "mixup,uncertain", "--set", "same_class=0.5"), "same_class is for policies that do not use the model"),
        (("--policies", "none,pba"), "policy 'pba' needs policy_file"),
        (("--data", "nothing"), "unknown data set 'nothing'"),
        (("--set", "jobs=2"), "unknown key 'jobs'"),
        (("--policies", "none", "random"), "separate policies by commas, e.g. --policies none,random"),
        (("--policies", "none", "random", "mixup"), "separate policies by commas, e.g. --policies none,random"),
        (("--policy", "none"), "No such option: --policy (Possible options: --policies)"),
        (("--depth", "3"), "depth is a recipe key: use `--set depth=3`"),
        (("--set", "share=0.5"), "key 'share' is now called 'fraction'"),
    ],
)
def test_wrong_arguments_are_refused_before_training(arguments, message, tmp_path, run):
    assert message in run("compare", *arguments, "-o", tmp_path / "all", code=2)
    assert not (tmp_path / "all").exists()


@pytest.mark.slow
def test_a_warning_if_only_the_baseline_crops_and_flips(tiny, tmp_path, run):
    fair = pytest.warns(UserWarning, match="only `baseline` crops and flips. For a fair comparison set defaults")
    for data, changes, warning in (
        (tiny, [], fair),
        (tiny, ["--set", "defaults=flip"], nullcontext()),  # a warning would be an error here
        ("digits", [], pytest.warns(UserWarning, match="policy `baseline` has no transforms for data `digits`")),
    ):
        options = ["--data", data, "--model", "mlp", "--policies", "none,baseline", "--seeds", "1"]
        options += ["--set", "epochs=1", "--set", "fraction=0.01", "--set", "batch=20", *changes]
        with warning:
            run("compare", *options, "-o", tmp_path / f"{Path(data).stem}{len(changes)}")
