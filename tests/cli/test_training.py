"""Training from the command line: what it says, refuses, and saves when it is interrupted."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from made import pixels
from outspan.cli import main, training
from outspan.cli.training import training_progress
from outspan.training import Stopped, checkpoint


def test_one_class_is_refused(tiny, tmp_path, run):
    with np.load(tiny) as file:
        np.savez(tmp_path / "one.npz", **dict(file) | {"train_labels": np.zeros(60, int), "test_labels": np.zeros(60, int)})
    refused = run("train", "--data", tmp_path / "one.npz", "-o", tmp_path / "run", code=2)
    assert "one.npz: needs two classes or more, got '0' alone" in refused


def test_a_run_without_a_terminal_says_a_line_now_and_then(monkeypatch, capsys):
    state = {"step": 30, "steps": 120, "epoch": 1, "epochs": 4, "loss": 0.5, "images": 8, "metrics": [{"test_accuracy": 0.75}]}
    monkeypatch.setattr(training, "_PAUSE", float("inf"))
    with training_progress("random, seed 1") as on_step:
        on_step(state)
    assert capsys.readouterr().err == ""  # the pause is not over
    monkeypatch.setattr(training, "_PAUSE", 0.0)
    monkeypatch.setattr(training, "_told", -float("inf"))
    with training_progress("random, seed 1") as on_step:
        on_step(state)
    assert re.fullmatch(
        r"random, seed 1  25%  epoch 2/4  loss 0.500  [\d,]+ samples/s  test 75.00 %\n", capsys.readouterr().err
    )


def test_a_model_that_learnt_nothing_is_said(tmp_path, run):
    images, labels = np.zeros((20, 8, 8), dtype=np.uint8), np.arange(20) % 5 // 3  # all alike; 12 of a class, 8 of the other
    np.savez(tmp_path / "all.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    changes = ("--set", "epochs=1", "--set", "batch=20", "-o")
    said = run("train", "--data", tmp_path / "all.npz", "--model", "mlp", "--policy", "none", *changes, tmp_path / "run")
    assert "Not above the majority-class baseline (60.00 %)." in said
    changes = ("--set", f"data={tmp_path / 'all.npz'}", "--set", "model=mlp", *changes)
    said = run("compare", "--policies", "none,baseline", "--seeds", "1", *changes, tmp_path / "two")
    assert "Not above the majority-class baseline (60.00 %): none, baseline." in said


def test_a_recipe_file_is_changed_by_options(tiny, tmp_path, run):
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'data = "{tiny}"\nmodel = "mlp"\nepochs = 1\nbatch = 30\npolicy = "none"\n')
    run("train", recipe, "-o", tmp_path / "run")
    refused = run("train", recipe, "--set", "lr=0.5", "-o", tmp_path / "run", code=2)
    assert "a run of another recipe (lr 0.1 there, 0.5 asked)" in refused


def test_compare_prints_a_table_and_draws(tiny, tmp_path, run, side_by_side):
    changes = [part for change in (f"data={tiny}", "model=mlp", "epochs=2", "batch=20") for part in ("--set", change)]
    said = run("compare", *changes, "--policies", "none,random", "--seeds", "2", "-o", tmp_path / "all")
    assert "none" in said
    assert "±" in said
    assert "leads" in said
    found = json.loads((tmp_path / "all" / "comparison.json").read_text())
    assert found["seeds"] == [0, 1]
    assert len(found["policies"]["random"]["test_accuracy"]) == 2
    assert pixels(tmp_path / "all" / "accuracy.png").shape[:2] == (675, 1200)
    run("compare", *changes, "--policies", "none,random", "--seeds", "2", "--jobs", "2", "-o", tmp_path / "jobs")
    for name in ("none-0", "none-1", "random-0", "random-1"):
        alone, beside = (
            [json.loads(line)["train_loss"] for line in (tmp_path / folder / name / "metrics.jsonl").read_text().splitlines()]
            for folder in ("all", "jobs")
        )
        assert beside == pytest.approx(alone, rel=1e-3)  # one thread adds in another order than two
    assert json.loads((tmp_path / "jobs" / "comparison.json").read_text())["seeds"] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "epoch=3"), "unknown key 'epoch', did you mean 'epochs'"),
        (("--set", "epochs"), "a change is key=value, got 'epochs'"),
        (("--data", "nothing"), "unknown data set 'nothing'"),
        (("--policy", "uncertian", "--set", "epochs=1"), "did you mean 'uncertain'"),
        (("none.toml",), "no such file"),
    ],
)
def test_training_that_cannot_begin_is_refused(arguments, message, tmp_path, run):
    assert message in run("train", *arguments, "-o", tmp_path / "run", code=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policies", "none,nne"), "unknown policy 'nne', did you mean 'none'"),
        (("--set", "seed=7"), "compare sets seed itself, so --set seed is not allowed: use --policies and --seeds"),
        (("--policies", "mixup,uncertain", "--set", "same_class=0.5"), "same_class is for policies that do not choose"),
        (("--policies", "none,pba"), "policy 'pba' needs policy_file"),
        (("--data", "nothing"), "unknown data set 'nothing'"),
    ],
)
def test_a_comparison_that_cannot_end_is_refused_before_it_begins(arguments, message, tmp_path, run):
    assert message in run("compare", *arguments, "-o", tmp_path / "all", code=2)
    assert not (tmp_path / "all").exists()


def test_a_key_without_effect_is_said(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "_PAUSE", float("inf"))  # no line of progress, however slow the machine
    changes = ("--set", "epochs=1", "--set", "magnitude=3", "--set", "candidates=8", "--set", "batch=20")
    command = ["outspan", "train", "--data", str(tiny), "--model", "mlp", "--policy", "randaugment", *changes]
    monkeypatch.setattr(sys, "argv", [*command, "-o", str(tmp_path / "run")])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.splitlines() == [
        "outspan: policy randaugment ignores these keys: candidates",
        "60 train and 60 test images, 2 classes, 1 x 8 x 8; model mlp, 6,702 parameters; policy randaugment; device cpu",
    ]


def test_a_baseline_that_is_set_beside_less_is_said(tiny, tmp_path, monkeypatch, capsys):
    for data, changes, said in ((tiny, [], True), (tiny, ["--set", "defaults=flip"], False), ("digits", [], False)):
        command = ["outspan", "compare", "--data", str(data), "--model", "mlp", "--policies", "none,baseline", "--seeds", "1"]
        command += ["--set", "epochs=1", "--set", "share=0.01", "--set", "batch=20", *changes]
        monkeypatch.setattr(sys, "argv", [*command, "-o", str(tmp_path / f"{Path(data).stem}{len(changes)}")])
        with pytest.raises(SystemExit):
            main()
        assert ("only `baseline` crops and flips. For a fair comparison add" in capsys.readouterr().err) == said


def test_a_file_in_the_way_is_said(tiny, run):
    assert "File exists" in run("train", "--data", tiny, "-o", tiny, code=2)


def test_ctrl_c_saves_and_the_same_command_goes_on(tiny, tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "outspan", "train", "--data", str(tiny), "--model", "mlp", "--policy", "random"]
    command += ["--set", "epochs=1000000", "--set", "batch=20", "-o", str(out)]  # more than it can do before it is interrupted
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (out / "metrics.jsonl").exists():  # the first epoch is over
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "stopped at step" in said
    assert "Traceback" not in said
    step = checkpoint.load(out)[1]["step"]
    assert f"stopped at step {step} of 3000000" in said


def interrupted(number: int, *, reads: bool, steps: int) -> None:
    """Do so many steps, be interrupted, and do one more, which must be asked to save."""
    step = {"step": 1, "steps": 9, "epoch": 0, "epochs": 1, "loss": 0.0, "images": 1, "metrics": []}
    with training_progress(reads=reads) as on_step:
        for _ in range(steps):
            assert not on_step(step)
        os.kill(os.getpid(), number)
        assert on_step(step)


@pytest.fixture
def terminal():
    """Heed SIGHUP, as under a terminal, where the suite itself runs under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_while_the_data_is_read_ctrl_c_ends_it(number):
    with pytest.raises(KeyboardInterrupt):
        interrupted(number, reads=True, steps=0)
    for reads, steps in ((True, 1), (False, 0), (False, 1)):
        with pytest.raises(Stopped):
            interrupted(number, reads=reads, steps=steps)


def test_under_nohup_a_closed_terminal_does_not_stop_it():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with training_progress() as on_step:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not on_step({"step": 1, "steps": 9, "epoch": 0, "epochs": 1, "loss": 0.0, "images": 1, "metrics": []})
    finally:
        signal.signal(signal.SIGHUP, before)
