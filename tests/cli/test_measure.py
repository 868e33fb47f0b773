"""The command `outspan measure`, run as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from PIL import Image

from outspan.cli.measure import base_recipe
from outspan.measure.study import OWN_KEYS
from outspan.measure.summary import load_predictions

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def run(run):
    return lambda *arguments, code=0: run("measure", *arguments, code=code)


def test_twice_the_same_bytes(few, tmp_path, run):
    asked = ("--data", few, "--transforms", "rotate, invert,rotate", "--seeds", 4, "--set", "epochs=2", "--set", "batch=25")
    out = run(*asked, "-o", tmp_path / "one")
    run(*asked, "-o", tmp_path / "two")
    for name in ("scores.json", "predictions.npz"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert run(*asked, "-o", tmp_path / "one") == out  # nothing to train: the same table
    assert max(map(len, out.partition("In %")[0].splitlines())) <= 80

    found = json.loads((tmp_path / "one" / "scores.json").read_text())
    assert list(found["transforms"]) == ["rotate", "invert"]
    assert found["seeds"] == [0, 1, 2, 3]
    assert found["settings"]["model"] == "mlp"
    assert found["settings"]["probability"] == 0.5
    entries = {"baseline": found["baseline"], **found["transforms"]}
    rows = {line.split()[0]: line for line in out.splitlines() if line.split()[0] in entries}
    assert list(rows) == sorted(entries, key=lambda name: entries[name]["error"]["value"])
    for name, row in rows.items():
        assert f"{100 * entries[name]['error']['value']:.2f}" in row
    assert f"{found['ties']} of 180 votes were tied, as an even number of seeds often is" in out
    assert load_predictions(tmp_path / "one" / "predictions.npz")["rotate"].classes.shape == (4, 60)
    with Image.open(tmp_path / "one" / "measure.png") as image:
        assert image.size == (1200, 900)


def test_less_asked_of_a_folder_does_not_replace_more(few, tmp_path, run):
    asked = ("--data", few, "--seeds", 2, "--set", "epochs=1", "-o", tmp_path / "m", "--transforms")
    first = run(*asked, "rotate,invert")
    assert "earlier" not in first
    said = run(*asked, "blur")
    assert "Measured earlier, in the same folder: invert, rotate." in said
    assert list(json.loads((tmp_path / "m" / "scores.json").read_text())["transforms"]) == ["blur", "invert", "rotate"]
    assert list(load_predictions(tmp_path / "m" / "predictions.npz")) == ["baseline", "blur", "invert", "rotate"]
    (tmp_path / "m" / "models" / "invert-1.npy").unlink()  # one seed is no measure
    said = run(*asked, "rotate")
    assert "in the same folder: blur." in said
    assert "Measured earlier with fewer seeds, and left out until all 2 are there: invert." in said


def test_models_that_learnt_nothing_are_said(few, tmp_path, run, monkeypatch):
    asked = ("--seeds", 2, "--transforms", "rotate", "-o", tmp_path / "m")
    warning = "The baseline is right no more often than always naming the largest class"
    assert warning in run("--data", few, *asked, "--set", "epochs=1", "--set", "lr=1e-6")
    found = json.loads((tmp_path / "m" / "scores.json").read_text())
    labels = load_predictions(tmp_path / "m" / "predictions.npz")["baseline"].labels.tolist()
    assert found["largest_class"] == max(map(labels.count, labels)) / len(labels)
    assert warning not in run("--data", few, *asked[:-1], tmp_path / "n", "--set", "epochs=8", "--set", "batch=25")
    monkeypatch.chdir(few.parent)  # by another name it is the same data
    assert warning in run("--data", few.name, *asked, "--set", "epochs=1", "--set", "lr=1e-6")


def test_shared_batches_and_a_recipe(few, tmp_path, run):
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'data = "{few}"\nmodel = "mlp-5"\npolicy = "uncertain"\nepochs = 1\n')
    out = run(recipe, "--transforms", "blur", "--seeds", 2, "--shared-batches", "-o", tmp_path / "m")
    assert "Shared batches: all seeds saw the same images and transforms" in out
    assert json.loads((tmp_path / "m" / "scores.json").read_text())["settings"]["model"] == "mlp-5"


def test_what_does_not_count_of_a_recipe_is_said(tmp_path, capsys):
    recipe = tmp_path / "r.toml"
    recipe.write_text('policy = "none"\ndefaults = "cifar"\nprobability = 0.7\nepochs = 1\n')
    base_recipe("measure", recipe, "digits", None, None, OWN_KEYS)
    said = capsys.readouterr().err
    assert said == f"outspan: measure sets these itself, whatever {recipe} says: defaults, probability\n"


def test_a_recipe_that_names_no_model_gets_the_paper_s(few, tmp_path, run):
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'data = "{few}"\nepochs = 1\n')
    for extra, expected in (((), "mlp"), (("--model", "mlp-7"), "mlp-7"), (("--set", "model=mlp-8"), "mlp-8")):
        run(recipe, *extra, "--transforms", "blur", "--seeds", 2, "-o", tmp_path / expected)
        assert json.loads((tmp_path / expected / "scores.json").read_text())["settings"]["model"] == expected


def test_refusals(few, tmp_path, run):
    out = ("-o", tmp_path / "m", "--data", few)
    assert "at least 2 different seeds, got [0]" in run(*out, "--seeds", 1, code=2)
    assert "'mixup' mixes labels" in run(*out, "--transforms", "rotate,mixup", code=2)
    assert "did you mean 'rotate'" in run(*out, "--transforms", "rotat", code=2)
    assert "measure sets transforms itself" in run(*out, "--set", "transforms=rotate", code=2)
    assert "measure sets defaults itself" in run(*out, "--set", "defaults=mixup", code=2)
    assert "unknown key 'epoch'" in run(*out, "--set", "epoch=1", code=2)
    assert not (tmp_path / "m").exists()
    assert "Example: outspan measure" in run("--help")


def test_interrupted_it_keeps_what_is_finished(few, tmp_path):
    out = tmp_path / "m"
    asked = [sys.executable, "-m", "outspan", "measure", "--data", few, "--seeds", "2", "--transforms", "rotate", "-o", out]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*map(str, asked), "--set", "epochs=150"], stderr=subprocess.PIPE, text=True, env=alone)
    while not (out / "models" / "baseline-1.npy").exists():
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.2)  # into the seeds that are next
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on" in err
    *progress, last = err.splitlines()
    assert last.startswith("outspan: ")
    assert all(" samples/s" in line for line in progress)  # on a slow machine there may be a line of it, and no other
    assert sorted(path.name for path in (out / "models").iterdir()) == ["baseline-0.npy", "baseline-1.npy"]


def test_ctrl_c_while_processes_start_stops_them_all(few, tmp_path):
    """A terminal sends it to all of them; those that still import torch must not die of it."""
    out = tmp_path / "m"
    asked = [sys.executable, "-m", "outspan", "measure", "--data", few, "--seeds", "2", "--transforms", "rotate", "-o", out]
    asked += ["--jobs", "2", "--set", "epochs=5000"]
    process = subprocess.Popen([*map(str, asked)], stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not (out / "settings.json").exists():
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)  # they are born, and not ready
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "outspan: stopped; the same command goes on\n")
