"""Several policies from the command line: the table, the figure, and what is refused."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from made import pixels
from outspan.cli import main


def test_compare_prints_a_table_and_draws(tiny, tmp_path, run, side_by_side):
    changes = [part for change in (f"data={tiny}", "model=mlp", "epochs=2", "batch=20") for part in ("--set", change)]
    printed = run("compare", *changes, "--policies", "none,random", "--seeds", "2", "-o", tmp_path / "all")
    assert "none" in printed
    assert "±" in printed
    assert "leads" in printed
    stored = json.loads((tmp_path / "all" / "comparison.json").read_text())
    assert stored["seeds"] == [0, 1]
    assert len(stored["policies"]["random"]["test_accuracy"]) == 2
    assert pixels(tmp_path / "all" / "accuracy.png").shape[:2] == (675, 1200)
    run("compare", *changes, "--policies", "none,random", "--seeds", "2", "--jobs", "2", "-o", tmp_path / "jobs")
    for name in ("none-0", "none-1", "random-0", "random-1"):
        alone, beside = (
            [json.loads(line)["train_loss"] for line in (tmp_path / folder / name / "metrics.jsonl").read_text().splitlines()]
            for folder in ("all", "jobs")
        )
        assert beside == pytest.approx(alone, rel=1e-3)  # one thread adds in another order than two
    assert json.loads((tmp_path / "jobs" / "comparison.json").read_text())["seeds"] == [0, 1]


def test_the_folder_of_a_comparison_is_no_run(tiny, tmp_path, run):
    changes = [part for change in (f"data={tiny}", "model=mlp", "epochs=1") for part in ("--set", change)]
    out = tmp_path / "all"
    run("compare", *changes, "--policies", "none,random", "--seeds", "1", "-o", out)
    instead = f"{out}: contains a comparison; pass one of its runs, e.g. {out / 'none-0'}"
    assert instead in run("evaluate", out, code=2)
    assert instead in run("predict", out, tmp_path / "any.png", code=2)
    refused = run("train", *changes, "--policy", "none", "-o", out, code=2)
    assert f"{out}: contains a comparison, not a run; choose another folder" in refused
    (out / "comparison.json").unlink()  # as if it was stopped
    assert "no complete checkpoint; pass a folder that `outspan train -o`" in (stopped := run("evaluate", out, code=2))
    assert f"wrote, e.g. {out / 'none-0'}" in stopped


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
def test_a_comparison_that_cannot_end_is_refused_before_it_begins(arguments, message, tmp_path, run):
    assert message in run("compare", *arguments, "-o", tmp_path / "all", code=2)
    assert not (tmp_path / "all").exists()


def test_a_warning_if_only_the_baseline_crops_and_flips(tiny, tmp_path, monkeypatch):
    fair = pytest.warns(UserWarning, match="only `baseline` crops and flips. For a fair comparison set defaults")
    for data, changes, warning in (
        (tiny, [], fair),
        (tiny, ["--set", "defaults=flip"], nullcontext()),  # a warning would be an error here
        ("digits", [], nullcontext()),
    ):
        command = ["outspan", "compare", "--data", str(data), "--model", "mlp", "--policies", "none,baseline", "--seeds", "1"]
        command += ["--set", "epochs=1", "--set", "fraction=0.01", "--set", "batch=20", *changes]
        monkeypatch.setattr(sys, "argv", [*command, "-o", str(tmp_path / f"{Path(data).stem}{len(changes)}")])
        with warning, pytest.raises(SystemExit) as exited:
            main()
        assert exited.value.code == 0
