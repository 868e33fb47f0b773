"""The commands, run as a user runs them."""

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
from PIL import Image

from outspan import TRANSFORMS, Plan
from outspan.cli import app, training
from outspan.cli.training import training_progress
from outspan.data import example_image
from outspan.train import Stopped, checkpoint
from outspan.transforms.table import ALL
from pillow import apply_with_pillow


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "cat.png"
    Image.fromarray(example_image()[0].permute(1, 2, 0).numpy()).save(path)
    return path


def pixels(path) -> np.ndarray:
    with Image.open(path) as image:
        return np.array(image)


def test_transforms_lists_the_table(run):
    out = run("transforms")
    assert all(name in out for name in ALL)
    entries = json.loads(run("transforms", "--json"))
    assert [entry["name"] for entry in entries] == list(ALL)
    assert [entry["name"] for entry in entries if entry["of"] == "images"] == list(TRANSFORMS)
    rotate = next(entry for entry in entries if entry["name"] == "rotate")
    assert rotate["unit"] == "degrees"
    assert rotate["at_level_1"] == 30
    assert rotate["levels"] == [-4.5, 4.5]


def test_apply_writes_what_pillow_gives(picture, tmp_path, run):
    out = tmp_path / "out.png"
    run("apply", picture, "-o", out, "--ops", "rotate:0.5, invert")
    plan = Plan.of([["rotate", "invert"]], levels=[[0.5, 0]])
    assert np.array_equal(pixels(out), apply_with_pillow(example_image(), plan)[0].permute(1, 2, 0).numpy())
    assert {path.name for path in tmp_path.iterdir()} == {"cat.png", "out.png"}


def test_apply_mixes_with_a_partner(picture, tmp_path, run):
    other, out = tmp_path / "grey.png", tmp_path / "out.png"
    Image.fromarray(np.full((224, 224), 100, dtype=np.uint8)).save(other)
    run("apply", picture, "-o", out, "--ops", "mixup:0.5", "--partner", other)
    expected = Image.blend(Image.fromarray(pixels(picture)), Image.new("RGB", (224, 224), (100, 100, 100)), 0.5)
    assert np.array_equal(pixels(out), np.asarray(expected))


def test_apply_keeps_grey_images_grey(tmp_path, run):
    path, out = tmp_path / "grey.png", tmp_path / "out.png"
    Image.fromarray(np.arange(100, dtype=np.uint8).reshape(10, 10)).save(path)
    run("apply", path, "-o", out, "--ops", "invert")
    assert np.array_equal(pixels(out), 255 - pixels(path))


def test_gallery_draws_a_picture(picture, tmp_path, run):
    for arguments in ((), (picture,)):
        out = tmp_path / "gallery.png"
        assert str(out) in run("gallery", *arguments, "-o", out)
        assert pixels(out).shape[:2] == (1350, 2400)


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ("rotat:0.5", "did you mean 'rotate'"),
        ("rotate", "'rotate' needs a level, e.g. rotate:0.5"),
        ("rotate:fast", "level of 'rotate' must be a number, got 'fast'"),
        ("rotate:9", "level of 'rotate' must lie in [-4.5, 4.5], got 9"),
        ("rotate:nan", "got nan"),
        ("cutout:-0.5", "level of 'cutout' must lie in [0, 1], got -0.5"),
        ("invert:1", "'invert' takes no level, got '1'"),
        ("mixup:0.5", "name the second with --partner"),
        ("", "an empty transform in ''"),
        ("invert,", "an empty transform in 'invert,'"),
    ],
)
def test_ops_that_make_no_sense_are_refused(ops, message, picture, tmp_path, run):
    out = tmp_path / "out.png"
    assert message in run("apply", picture, "-o", out, "--ops", ops, code=2)
    assert not out.exists()


def test_files_that_cannot_be_used_are_refused(picture, tmp_path, run):
    out = tmp_path / "out.png"
    whole = picture.read_bytes()
    (tmp_path / "short.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.png").write_text("not an image")
    (tmp_path / "empty.png").write_bytes(b"")
    for name, message in (
        ("short.png", "cannot be read as an image"),
        ("text.png", "cannot be read as an image"),
        ("empty.png", "cannot be read as an image"),
        ("none.png", "no such file"),
        (".", "is a folder"),
    ):
        for command in (("apply", tmp_path / name, "-o", out, "--ops", "invert"), ("gallery", tmp_path / name, "-o", out)):
            assert message in run(*command, code=2)
            assert not out.exists()
    assert "unknown image format '.xyz'" in run("apply", picture, "-o", tmp_path / "a.xyz", "--ops", "invert", code=2)
    assert "cannot be written" in run("apply", picture, "-o", tmp_path / "no" / "a.png", "--ops", "invert", code=2)
    other = tmp_path / "other.png"
    Image.new("RGB", (3, 4)).save(other)
    command = ("apply", picture, "-o", out, "--ops", "mixup:0.5", "--partner", other)
    assert "must have the image's height and width [224, 224], got [4, 3]" in run(*command, code=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "No such command 'nothing'"),
        (("apply", "x.png"), "Missing option"),
        (("gallery", "--wrong"), "No such option"),
    ],
)
def test_wrong_usage_is_one_line(arguments, message, run):
    assert message in run(*arguments, code=2)


def commands(group, *path) -> list[tuple[str, ...]]:
    found = [(*path, command.name) for command in group.registered_commands]
    return found + [one for sub in group.registered_groups for one in commands(sub.typer_instance, *path, sub.name)]


@pytest.mark.parametrize("command", commands(app), ids=" ".join)
def test_every_command_has_an_example(command, run):
    assert f"Example: outspan {' '.join(command)}" in run(*command, "--help")


def test_the_installed_command_refuses_without_a_traceback(tmp_path):
    command = [sys.executable, "-m", "outspan", "apply", str(tmp_path / "none.png"), "-o", "out.png", "--ops", "invert"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"outspan: {tmp_path / 'none.png'}: no such file\n"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def tiny(tmp_path):
    """A data set of two classes that anything learns, as an .npz file."""
    labels = np.arange(60) % 2
    images = np.full((60, 8, 8), 20, dtype=np.uint8)
    images[labels == 1] = 220
    path = tmp_path / "tiny.npz"
    np.savez(path, train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    return path


def test_train_then_evaluate(tiny, tmp_path, run):
    out = tmp_path / "run"
    command = (
        "train",
        "--data",
        tiny,
        "--model",
        "mlp",
        "--policy",
        "random",
        "--set",
        "epochs=3",
        "--set",
        "batch=20",
        "-o",
        out,
    )
    said = run(*command)
    assert "after the last epoch" in said
    assert (out / "metrics.jsonl").read_text().count("\n") == 3
    assert run(*command) == said  # finished: the same summary at once
    for name, value in (("dark", 20), ("light", 220)):
        Image.new("L", (30, 20), value).save(tmp_path / f"{name}.png")
    told = run("predict", out, tmp_path / "dark.png", tmp_path / "light.png").splitlines()
    assert [line.split()[1] for line in told] == ["0", "1"]
    report = run("evaluate", out)
    assert "accuracy 100.00 % of 60 test images" in report
    assert report.splitlines()[-1].split() == ["1", "100.00", "0", "30"]
    found = json.loads(run("evaluate", out, "--json"))
    assert found == {"accuracy": 1.0, "classes": {"0": 1.0, "1": 1.0}, "confusion": [[30, 0], [0, 30]]}
    assert "only a run of the policy 'uncertain' that keeps fewer" in run("compositions", out, "-o", tmp_path / "c.png", code=2)


@pytest.fixture
def trained(tiny, tmp_path, run):
    """The folder of a run that tells dark images, 0, from light ones, 1."""
    options = ("--model", "mlp", "--policy", "none", "--set", "epochs=3", "--set", "batch=20")
    run("train", "--data", tiny, *options, "-o", tmp_path / "run")
    return tmp_path / "run"


def test_predict_takes_folders_and_leaves_out_what_is_no_image(trained, tmp_path, monkeypatch, run):
    monkeypatch.setattr(training, "_AT_ONCE", 2)  # more than one part
    folder = tmp_path / "more" / "deeper"
    folder.mkdir(parents=True)
    for name, value in (("c", 220), ("a", 20), ("b", 220)):
        Image.new("RGB", (12, 9), (value,) * 3).save(folder / f"{name}.png")
    (folder / "notes.txt").write_text("not an image")
    (folder / "._a.png").write_bytes(b"what a file manager left")
    (folder / "folder.png").mkdir()
    lines = run("predict", trained, tmp_path / "more", "--top", "5", "--json").splitlines()
    found = [json.loads(line) for line in lines]
    assert [Path(one["file"]).name for one in found] == ["a.png", "b.png", "c.png"]
    assert [next(iter(one["classes"])) for one in found] == ["0", "1", "1"]  # the likeliest first
    assert all(sum(one["classes"].values()) == pytest.approx(1) for one in found)  # both classes, no more than there are
    (folder / "b.png").write_bytes(b"damaged")
    told = run("predict", trained, folder, tmp_path / "absent.png", code=1).splitlines()
    assert [Path(line.split()[0]).name for line in told] == ["a.png", "c.png"]
    assert "b.png: cannot be read as an image" in run("predict", trained, folder / "b.png", code=2)
    (tmp_path / "empty").mkdir()
    assert "empty: a folder without files of .bmp, " in run("predict", trained, tmp_path / "empty", code=2)


def test_evaluate_takes_other_data_of_the_same_classes(tiny, trained, tmp_path, run):
    with np.load(tiny) as file:
        arrays = dict(file)
    other = tmp_path / "other.npz"
    np.savez(other, **arrays | {"test_images": arrays["test_images"][:40], "test_labels": 1 - arrays["test_labels"][:40]})
    found = json.loads(run("evaluate", trained, "--data", other, "--json"))
    assert found == {"accuracy": 0.0, "classes": {"0": 0.0, "1": 0.0}, "confusion": [[0, 20], [20, 0]]}
    for part in ("train", "test"):
        for name in ("good", "bad"):
            (tmp_path / "texts" / part / name).mkdir(parents=True)
            (tmp_path / "texts" / part / name / "1.txt").write_text(f"a {name} film")
    assert "texts: the run's model takes images" in run("evaluate", trained, "--data", tmp_path / "texts", code=2)
    np.savez(other, **arrays | {"train_labels": arrays["train_labels"] * 2})
    assert "other.npz: its classes must be the run's, ['0', '1'], got" in run("evaluate", trained, "--data", other, code=2)
    larger = {f"{kind}_images": np.pad(arrays[f"{kind}_images"], ((0, 0), (1, 1), (1, 1))) for kind in ("train", "test")}
    np.savez(other, **arrays | larger)
    refused = run("evaluate", trained, "--data", other, code=2)
    assert "other.npz: its shape must be the run's, [1, 8, 8], got [1, 10, 10]" in refused


def test_one_class_is_refused(tiny, tmp_path, run):
    with np.load(tiny) as file:
        np.savez(tmp_path / "one.npz", **dict(file) | {"train_labels": np.zeros(60, int), "test_labels": np.zeros(60, int)})
    refused = run("train", "--data", tmp_path / "one.npz", "-o", tmp_path / "run", code=2)
    assert "one.npz: needs two classes or more, got '0' alone" in refused


def test_a_run_without_a_terminal_says_a_line_now_and_then(monkeypatch, capsys):
    state = {"step": 30, "steps": 120, "epoch": 1, "epochs": 4, "loss": 0.5, "images": 8, "metrics": [{"test_accuracy": 0.75}]}
    monkeypatch.setattr(training, "_told", time.perf_counter())
    with training_progress("random, seed 1") as on_step:
        on_step(state)
    assert capsys.readouterr().err == ""  # less than half a minute
    monkeypatch.setattr(training, "_PAUSE", 0.0)
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
    assert "Always naming the largest class comes to 60.00 %" in said
    changes = ("--set", f"data={tmp_path / 'all.npz'}", "--set", "model=mlp", *changes)
    said = run("compare", "--policies", "none,baseline", "--seeds", "1", *changes, tmp_path / "two")
    assert "No better than always naming the largest class, 60.00 %" in said
    assert said.split("learnt nothing yet: ")[1].startswith("none, baseline.")


def test_compositions_are_drawn(tiny, tmp_path, run):
    changes = [part for change in ("epochs=5", "batch=20", "transforms=geometric") for part in ("--set", change)]
    run("train", "--data", tiny, "--model", "mlp", *changes, "-o", tmp_path / "run")
    said = run("compositions", tmp_path / "run", "-o", tmp_path / "c.png", "--mark", "shear_x+rotate")
    assert [line.split()[-1] for line in said.splitlines() if "→" in line][-1] == "rotate+shear_x"
    assert pixels(tmp_path / "c.png").shape[:2] == (1200, 1350)
    parts = json.loads(run("compositions", tmp_path / "run", "-o", tmp_path / "plain.png", "--json"))
    assert [round(sum(each), 9) for each in zip(*parts.values(), strict=True)] == [1] * 5
    assert pixels(tmp_path / "plain.png").shape[:2] == (750, 1350)
    refused = run("compositions", tmp_path / "run", "-o", tmp_path / "d.png", "--mark", "shear_x+rotat", code=2)
    assert "unknown composition 'rotat+shear_x', did you mean 'rotate+shear_x'" in refused
    assert "a .png file" in run("compositions", tmp_path / "run", "-o", tmp_path / "c.pdf", code=2)


@pytest.mark.parametrize("group", ["data", "theory"])
def test_a_group_without_a_command_says_its_help(group, run):
    assert run(group).startswith(f"Usage: outspan {group}")


def test_fetch_leaves_alone_what_is_there(tmp_path, run, monkeypatch):
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "readme").touch()
    assert "train-images-idx3-ubyte: no such file" in run("data", "fetch", "mnist", code=2)
    assert "unknown data set to fetch 'mnst', did you mean 'mnist'" in run("data", "fetch", "mnst", code=2)


def test_a_recipe_file_is_changed_by_options(tiny, tmp_path, run):
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'data = "{tiny}"\nmodel = "mlp"\nepochs = 1\nbatch = 30\npolicy = "none"\n')
    run("train", recipe, "-o", tmp_path / "run")
    refused = run("train", recipe, "--set", "lr=0.5", "-o", tmp_path / "run", code=2)
    assert "a run of another recipe (lr 0.1 there, 0.5 asked)" in refused


def test_compare_prints_a_table_and_draws(tiny, tmp_path, run):
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
        (("--set", "seed=7"), "compare sets seed itself"),
        (("--policies", "mixup,uncertain", "--set", "same_class=0.5"), "same_class is for policies that do not choose"),
        (("--policies", "none,pba"), "policy 'pba' needs policy_file"),
        (("--data", "nothing"), "unknown data set 'nothing'"),
    ],
)
def test_a_comparison_that_cannot_end_is_refused_before_it_begins(arguments, message, tmp_path, run):
    assert message in run("compare", *arguments, "-o", tmp_path / "all", code=2)
    assert not (tmp_path / "all").exists()


def test_a_file_in_the_way_is_said(tiny, run):
    assert "File exists" in run("train", "--data", tiny, "-o", tiny, code=2)


def test_ctrl_c_saves_and_the_same_command_goes_on(tiny, tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "outspan", "train", "--data", str(tiny), "--model", "mlp", "--policy", "random"]
    command += ["--set", "epochs=3000", "--set", "batch=20", "-o", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not out.exists():
        time.sleep(0.02)
        assert process.poll() is None
    time.sleep(1.0)  # well into it
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped at step" in said
    assert "Traceback" not in said
    step = checkpoint.load(out)[1]["step"]
    assert f"stopped at step {step} of 9000" in said


def interrupted(number: int, *, reads: bool, steps: int) -> None:
    """Do so many steps, be interrupted, and do one more, which must be asked to save."""
    step = {"step": 1, "steps": 9, "epoch": 0, "epochs": 1, "loss": 0.0, "images": 1, "metrics": []}
    with training_progress(reads=reads) as on_step:
        for _ in range(steps):
            assert not on_step(step)
        os.kill(os.getpid(), number)
        assert on_step(step)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_the_data_is_read_ctrl_c_ends_it(number):
    with pytest.raises(KeyboardInterrupt):
        interrupted(number, reads=True, steps=0)
    for reads, steps in ((True, 1), (False, 0), (False, 1)):
        with pytest.raises(Stopped):
            interrupted(number, reads=reads, steps=steps)


def test_data_lists_what_is_here(tmp_path, run, monkeypatch):
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path))
    said = run("data", "list")
    assert "5,000 train and 1,000 test images, 10 classes" in said
    assert f"not here: {tmp_path / 'mnist' / 'train-images-idx3-ubyte'}: no such file" in said
