"""The command `outspan train`: its output, its errors, and interruptions."""

import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from outspan.cli import output, progress
from outspan.comparison import timing
from outspan.training import checkpoint


def test_one_class_is_refused(tiny, tmp_path, run):
    with np.load(tiny) as file:
        np.savez(tmp_path / "one.npz", **dict(file) | {"train_labels": np.zeros(60, int), "test_labels": np.zeros(60, int)})
    message = run("train", "--data", tmp_path / "one.npz", "-o", tmp_path / "run", code=2)
    assert "one.npz: needs at least two classes, got '0' only" in message


@pytest.mark.filterwarnings("ignore:only .baseline. crops")
def test_a_warning_if_the_model_learns_nothing(tmp_path, run):
    images, labels = np.zeros((20, 8, 8), dtype=np.uint8), np.arange(20) % 5 // 3  # equal images; 12 of class 0, 8 of class 1
    np.savez(tmp_path / "all.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    changes = ("--set", "epochs=1", "--set", "batch=20", "-o")
    output = run("train", "--data", tmp_path / "all.npz", "--model", "mlp", "--policy", "none", *changes, tmp_path / "run")
    assert "Not above the majority-class baseline (60.00 %)." in output
    changes = ("--set", f"data={tmp_path / 'all.npz'}", "--set", "model=mlp", *changes)
    output = run("compare", "--policies", "none,baseline", "--seeds", "1", *changes, tmp_path / "two")
    assert "Not above the majority-class baseline (60.00 %): `none`, `baseline`." in output


def test_a_recipe_file_is_changed_by_options(tiny, tmp_path, run):
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'data = "{tiny}"\nmodel = "mlp"\nepochs = 1\nbatch = 30\npolicy = "none"\n')
    run("train", recipe, "-o", tmp_path / "run")
    message = run("train", recipe, "--set", "lr=0.5", "-o", tmp_path / "run", code=2)
    assert "a run of another recipe (lr 0.1 there, 0.5 requested)" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "epoch=3"), "unknown key 'epoch', did you mean 'epochs'"),
        (("--set", "learning_rate=3"), "unknown key 'learning_rate', did you mean 'lr'"),
        (("--set", "ops=3"), "unknown key 'ops' (known: data, model"),
        (("--set", "lr", "0.1"), "--set needs key=value, e.g. --set lr=0.1, got 'lr'"),
        (("--data", "nothing"), "unknown data set 'nothing'"),
        (("--policy", "uncertian", "--set", "epochs=1"), "did you mean 'uncertain'"),
        (("none.toml",), "none.toml: no such file"),
        (("digits",), "recipe file 'digits' not found; for a data set use --data digits"),
        (("--model", "efficientnet_b0"), "timm:NAME for a model of timm, e.g. timm:efficientnet_b0)"),
        (("--epochs", "1"), "No such option: --epochs. epochs is a recipe key: use `--set epochs=1`"),
        (("--batch-size=8",), "No such option: --batch-size. batch_size is the recipe key batch: use `--set batch=8`"),
        (("--learning-rate",), "learning_rate is the recipe key lr: use `--set lr=VALUE`"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message, tmp_path, run):
    assert message in run("train", *arguments, "-o", tmp_path / "run", code=2)


def test_a_run_says_if_it_starts_again_or_is_already_finished(tiny, tmp_path, run_command, monkeypatch):
    monkeypatch.setattr(progress, "_PAUSE", float("inf"))  # no progress lines, even on a slow machine
    out, changes = tmp_path / "run", ("--set", "epochs=1", "--set", "batch=20")
    command = ("train", "--data", tiny, "--model", "mlp", "--policy", "none", *changes, "-o", out)
    out.mkdir()
    (out / "recipe.toml").write_text("")  # a run that was killed before its first checkpoint
    _, first, begun = run_command(*command)
    assert begun.endswith(f"device cpu; {out} has no checkpoint yet, starting again\n")
    assert first.startswith("test accuracy ")
    _, again, nothing = run_command(*command)
    assert (again, nothing) == (f"already finished: {first}", "")


def test_of_several_processes_the_first_reports_wrong_arguments(tmp_path, run, monkeypatch):
    waits = []
    monkeypatch.setattr(output.time, "sleep", waits.append)  # in the others, torchrun ends this wait
    for name, value in {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", rank)
        for arguments in (("train", "--epochs", "1"), ("train", "--set", "epoch=1"), ("compare",)):
            run(*arguments, "-o", tmp_path / "run", code=2)
        assert len(waits) == 3 * int(rank)


def test_ignored_keys_are_named(tiny, tmp_path, monkeypatch, run_command):
    monkeypatch.setattr(progress, "_PAUSE", float("inf"))  # no progress lines, even on a slow machine
    changes = ("--set", "epochs=1", "--set", "magnitude=3", "--set", "candidates=8", "--set", "batch=20")
    options = ("--data", tiny, "--model", "mlp", "--policy", "randaugment", *changes, "-o", tmp_path / "run")
    with pytest.warns(UserWarning, match="policy randaugment ignores these keys: candidates$"):
        _, _, err = run_command("train", *options)
    assert err.splitlines() == [
        "60 train and 60 test images, 2 classes, 1 x 8 x 8; model mlp, 6,702 parameters; policy randaugment; device cpu",
    ]


def test_an_output_path_that_is_a_file_is_refused(tiny, run):
    assert "out must be the path of a folder, got the file" in run("train", "--data", tiny, "-o", tiny, code=2)


def test_ctrl_c_saves_a_checkpoint(tiny, tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "outspan", "train", "--data", str(tiny), "--model", "mlp", "--policy", "random"]
    command += ["--set", "epochs=1000000", "--set", "batch=20", "-o", str(out)]  # more epochs than it can finish
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (out / "metrics.jsonl").exists():  # the first epoch is over
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "stopped at step" in err
    assert "Traceback" not in err
    step = checkpoint.load(out)[1]["step"]
    assert f"stopped at step {step} of 3000000" in err


def test_a_dry_run_prints_what_would_be_trained_and_writes_nothing(tiny, tmp_path, run, monkeypatch):
    monkeypatch.setattr(timing, "_ROUND_SECONDS", 0.0)
    arguments = ("--data", tiny, "--model", "mlp", "--policy", "random", "--set", "epochs=3", "--set", "batch=20", "-o")
    printed = run("train", "--dry-run", *arguments, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert re.search(r"60 train and \d+ test images, \d+ classes, .*; model mlp, [\d,]+ parameters; policy random", printed)
    lines = printed.splitlines()
    recipe = lines[lines.index("recipe; all other keys have the defaults for this data and model:") + 1 :]
    expected = ['model = "mlp"', 'policy = "random"', "epochs = 3", "batch = 20", 'optimizer = "sgd"']
    assert sorted(recipe[1:6]) == sorted(expected)
    assert recipe[0].startswith('data = "')
    assert recipe[6].startswith("9 steps")
    assert "9 steps, 3 epochs of 3 steps" in printed
    assert re.search(r"about [\d.]+ s per epoch, [\d.]+ s in all, without evaluation", printed)
    assert re.search(r"a step with policy random takes \d+\.\d\d times as long as one without augmentation", printed)
    assert "nothing was written" in printed
    run("train", *arguments, tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert "contains a run, which would be resumed if" in run("train", "--dry-run", *arguments, tmp_path / "run")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    assert "unknown key 'epoch'" in run("train", "--dry-run", *arguments, tmp_path / "run", "--set", "epoch=1", code=2)


def test_the_best_epoch_is_printed_and_used(tiny, tmp_path, run):
    keys = ("epochs=20", "batch=20", "validation=10", "patience=1")
    changes = [part for key in keys for part in ("--set", key)]
    printed = run("train", "--data", tiny, "--model", "mlp", "--policy", "none", *changes, "-o", tmp_path)
    assert re.search(r"test accuracy [\d.]+ % after (epoch \d+, where it stopped early|the last epoch) \(", printed)
    best = re.search(r"best epoch by validation: (\d+) \(validation [\d.]+ %, test ([\d.]+) %\)", printed)
    assert best is not None
    evaluated = run("evaluate", tmp_path, "--best")
    assert f"with the weights of the best epoch by validation (step {3 * int(best[1])})" in evaluated
    assert re.search(rf"accuracy +{best[2]} ", evaluated)
    assert "is not there (available: cpu" in run("evaluate", tmp_path, "--device", "cuda:9", code=2)
