"""The command `outspan measure`, run as a user runs it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from PIL import Image

from outspan.cli.progress import training_progress
from outspan.measurement.predictions import load_predictions
from outspan.measurement.recipes import study_recipe

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def run(run):
    return lambda *arguments, code=0: run("measure", *arguments, code=code)


@pytest.mark.slow
def test_two_runs_write_the_same_bytes(few, tmp_path, run):
    options = ("--data", few, "--transforms", "rotate, invert,rotate", "--seeds", 4, "--set", "epochs=2", "--set", "batch=25")
    out = run(*options, "-o", tmp_path / "one")
    run(*options, "-o", tmp_path / "two")
    for name in ("scores.json", "predictions.npz"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert run(*options, "-o", tmp_path / "one") == out  # nothing to train: the same table
    assert max(map(len, out.partition("Values in %")[0].splitlines())) <= 80

    stored = json.loads((tmp_path / "one" / "scores.json").read_text())
    assert list(stored["transforms"]) == ["rotate", "invert"]
    assert stored["seeds"] == [0, 1, 2, 3]
    assert stored["settings"]["model"] == "mlp"
    assert stored["settings"]["probability"] == 0.5
    entries = {"baseline": stored["baseline"], **stored["transforms"]}
    rows = {line.split()[0]: line for line in out.splitlines() if line.split()[0] in entries}
    assert list(rows) == sorted(entries, key=lambda name: entries[name]["error"]["value"])
    for name, row in rows.items():
        assert f"{100 * entries[name]['error']['value']:.2f}" in row
    tied = "votes were tied and were decided at random. Ties are common with an even number of seeds."
    assert f"{stored['ties']} of 180 {tied}" in out
    assert load_predictions(tmp_path / "one" / "predictions.npz")["rotate"].classes.shape == (4, 60)
    with Image.open(tmp_path / "one" / "measure.png") as image:
        assert image.size == (1200, 900)


def test_measuring_fewer_transforms_keeps_earlier_results(few, tmp_path, run):
    options = ("--data", few, "--seeds", 2, "--set", "epochs=1", "-o", tmp_path / "m", "--transforms")
    first = run(*options, "rotate,invert")
    assert "earlier" not in first
    printed = run(*options, "blur")
    assert "Measured earlier in the same folder: invert, rotate." in printed
    assert list(json.loads((tmp_path / "m" / "scores.json").read_text())["transforms"]) == ["blur", "invert", "rotate"]
    assert list(load_predictions(tmp_path / "m" / "predictions.npz")) == ["baseline", "blur", "invert", "rotate"]
    (tmp_path / "m" / "models" / "invert-1.npy").unlink()  # one seed is not enough
    printed = run(*options, "rotate")
    assert "in the same folder: blur." in printed
    assert "Not shown, measured earlier with fewer than 2 seeds: invert." in printed


def test_a_warning_if_the_baseline_learns_nothing(few, tmp_path, run, monkeypatch):
    options = ("--seeds", 2, "--transforms", "rotate", "-o", tmp_path / "m")
    warning = "The model without transforms is not above the majority-class baseline"
    assert warning in run("--data", few, *options, "--set", "epochs=1", "--set", "lr=1e-6")
    stored = json.loads((tmp_path / "m" / "scores.json").read_text())
    labels = load_predictions(tmp_path / "m" / "predictions.npz")["baseline"].labels.tolist()
    assert stored["largest_class"] == max(map(labels.count, labels)) / len(labels)
    assert warning not in run("--data", few, *options[:-1], tmp_path / "n", "--set", "epochs=8", "--set", "batch=25")
    monkeypatch.chdir(few.parent)  # the same data by a relative path
    assert warning in run("--data", few.name, *options, "--set", "epochs=1", "--set", "lr=1e-6")


def test_shared_batches_and_a_recipe(few, tmp_path, run):
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'data = "{few}"\nmodel = "mlp-5"\npolicy = "uncertain"\nepochs = 1\n')
    with pytest.warns(UserWarning, match="ignores their values in .*: policy"):
        out = run(recipe, "--transforms", "blur", "--seeds", 2, "--shared-batches", "-o", tmp_path / "m")
    assert "Shared batches: all seeds saw the same samples and transforms" in out
    assert json.loads((tmp_path / "m" / "scores.json").read_text())["settings"]["model"] == "mlp-5"


def test_ignored_keys_of_a_recipe_are_named(tmp_path):
    recipe = tmp_path / "r.toml"
    recipe.write_text('policy = "none"\ndefaults = "cifar"\nprobability = 0.7\nepochs = 1\n')
    message = f"measure sets these keys itself and ignores their values in {recipe}: defaults, probability"
    with pytest.warns(UserWarning, match=re.escape(message)):
        study_recipe("measure", recipe, {"data": "digits"})


def test_the_default_model_is_the_one_of_the_paper(few, tmp_path, run):
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'data = "{few}"\nepochs = 1\n')
    for extra, expected in (((), "mlp"), (("--model", "mlp-7"), "mlp-7"), (("--set", "model=mlp-8"), "mlp-8")):
        run(recipe, *extra, "--transforms", "blur", "--seeds", 2, "-o", tmp_path / expected)
        assert json.loads((tmp_path / expected / "scores.json").read_text())["settings"]["model"] == expected


def test_a_table_without_significant_effects(few, tmp_path, run):
    grey = ("--transforms", "color", "--seeds", 2, "--set", "epochs=1")  # it does not change grey images
    printed = run("--data", few, *grey, "-o", tmp_path / "m")
    assert "No transform is significantly better than the baseline." in printed
    assert "No transform is significantly worse than the baseline." in printed


def test_wrong_arguments_are_refused(few, tmp_path, run):
    out = ("-o", tmp_path / "m", "--data", few)
    assert "at least 2 different seeds, got 1" in run(*out, "--seeds", 1, code=2)
    assert "'mixup' mixes labels" in run(*out, "--transforms", "rotate,mixup", code=2)
    assert "did you mean 'rotate'" in run(*out, "--transforms", "rotat", code=2)
    assert "unknown transform 'flip', did you mean 'horizontal_flip'?" in run(*out, "--transforms", "flip", code=2)
    spaces = "recipe file 'invert' not found; separate transforms by commas, e.g. --transforms rotate,invert"
    assert spaces in run(*out, "--transforms", "rotate", "invert", code=2)
    assert "measure sets transforms itself" in run(*out, "--set", "transforms=rotate", code=2)
    assert "measure sets defaults itself" in run(*out, "--set", "defaults=mixup", code=2)
    assert "unknown key 'epoch'" in run(*out, "--set", "epoch=1", code=2)
    assert not (tmp_path / "m").exists()
    assert "Example: outspan measure" in run("--help")


@pytest.mark.usefixtures("signals")
def test_an_interruption_keeps_finished_models(few, tmp_path, run, monkeypatch):
    out = tmp_path / "m"

    @contextmanager
    def interrupted(title):
        with training_progress(title) as on_step:

            def watched(state):
                if title.startswith("rotate") and state.step == 3:  # while the seeds of rotate are trained
                    os.kill(os.getpid(), signal.SIGINT)
                return on_step(state)

            yield watched

    monkeypatch.setattr("outspan.cli.measure.training_progress", interrupted)
    monkeypatch.setattr("outspan.cli.progress._PAUSE", float("inf"))  # no progress lines, even on a slow machine
    printed = run(
        "--data", few, "--seeds", 2, "--transforms", "rotate", "--set", "epochs=2", "--set", "batch=25", "-o", out, code=130
    )
    assert printed == "outspan: stopped at step 3 of 8, training 2 models at once; run the same command again to resume\n"
    assert sorted(path.name for path in (out / "models").iterdir()) == ["baseline-0.npy", "baseline-1.npy"]


def workers_of(parent: int) -> list[str]:
    """Return the command lines of the worker processes of a parent."""
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "ppid=,args="], capture_output=True, text=True, check=True).stdout  # noqa: S607
    return [line for line in listed.splitlines() if line.split()[0] == str(parent) and "spawn_main" in line]


@pytest.mark.slow
def test_ctrl_c_while_processes_start_stops_them_all(few, tmp_path):
    """A terminal sends SIGINT to all processes. Those that still import torch must not print a traceback."""
    out = tmp_path / "m"
    options = [sys.executable, "-m", "outspan", "measure", "--data", few, "--seeds", "2", "--transforms", "rotate", "-o", out]
    options += ["--jobs", "2", "--set", "epochs=1000000"]  # more epochs than they can finish before they are stopped
    process = subprocess.Popen([*map(str, options)], stderr=subprocess.PIPE, text=True, start_new_session=True)
    while len(workers_of(process.pid)) < 2:
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # they exist but are not ready: they still import torch
    _, err = process.communicate(timeout=600)
    *progress, final = err.splitlines()
    assert (process.returncode, final) == (130, "outspan: stopped; run the same command again to resume")
    assert progress.pop(0) == "outspan: stopping and saving; another signal stops at once, without saving"
    assert all(line.startswith("2 runs at a time ") for line in progress)  # after half a minute, on a slow machine
