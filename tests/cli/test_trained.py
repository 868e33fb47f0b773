"""The commands that read a trained run: `evaluate`, `predict` and `compositions`."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from made import make_folder, pixels
from outspan.config import Recipe
from outspan.data.sets import load
from outspan.training import Stopped, predicted
from outspan.training.train import train


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
    output = run(*command)
    assert "after the last epoch" in output
    assert (out / "metrics.jsonl").read_text().count("\n") == 3
    assert run(*command) == f"already finished: {output}"  # without training
    for name, value in (("dark", 20), ("light", 220)):
        Image.new("L", (30, 20), value).save(tmp_path / f"{name}.png")
    lines = run("predict", out, tmp_path / "dark.png", tmp_path / "light.png").splitlines()
    assert [line.split()[1] for line in lines] == ["0", "1"]
    report = run("evaluate", out)
    assert report.splitlines()[-1].split() == ["1", "30", "100.00", "100.00", "100.00", "0", "30"]
    assert report.startswith(f"tested on the test split of {tiny}, 60 images\n")
    assert "\naccuracy                            100.00  100.00 to 100.00" in report
    assert "top-5" not in report  # there are only two classes
    result = json.loads(run("evaluate", out, "--json"))
    ece, calibration = result.pop("ece"), result.pop("calibration")
    ends = result["intervals"].pop("ece")
    assert 0 <= ends[0] <= ece <= ends[1] < 0.5
    assert sum(part["samples"] for part in calibration) == 60
    perfect = {"precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 30}
    fractions = ("accuracy", "balanced_accuracy", "macro_f1", "weighted_f1", "auroc")
    assert result == {
        "tested": {"data": str(tiny), "part": "test split", "count": 60, "trained_on": 0},
        **dict.fromkeys(fractions, 1.0),
        "top5": None,
        "intervals": {name: [1.0, 1.0] for name in fractions},
        "classes": {"0": perfect, "1": perfect},
        "confusion": [[30, 0], [0, 30]],
    }
    assert "it is written by a policy that keeps fewer" in run("compositions", out, "-o", tmp_path / "c.png", code=2)


@pytest.fixture
def trained(tiny, tmp_path, run):
    """Train a model that separates dark images, class 0, from light ones, class 1. Return the folder of the run."""
    options = ("--model", "mlp", "--policy", "none", "--set", "epochs=3", "--set", "batch=20")
    run("train", "--data", tiny, *options, "-o", tmp_path / "run")
    return tmp_path / "run"


def test_predict_reads_folders_and_skips_files_that_are_not_images(trained, tmp_path, monkeypatch, run):
    monkeypatch.setattr(predicted, "_FILES_AT_ONCE", 2)  # several batches of files
    folder = tmp_path / "more" / "deeper"
    folder.mkdir(parents=True)
    for name, value in (("c", 220), ("a", 20), ("b", 220)):
        Image.new("RGB", (12, 9), (value,) * 3).save(folder / f"{name}.png")
    (folder / "notes.txt").write_text("not an image")
    (folder / "._a.png").write_bytes(b"metadata of a file manager")
    (folder / "folder.png").mkdir()
    lines = run("predict", trained, tmp_path / "more", "--top", "5", "--json").splitlines()
    predictions = [json.loads(line) for line in lines]
    assert [Path(row["file"]).name for row in predictions] == ["a.png", "b.png", "c.png"]
    assert [next(iter(row["probabilities"])) for row in predictions] == ["0", "1", "1"]  # the most probable class first
    assert all(sum(row["probabilities"].values()) == pytest.approx(1) for row in predictions)  # there are only two classes
    (folder / "b.png").write_bytes(b"damaged")
    printed = run("predict", trained, folder, tmp_path / "absent.png", code=1).splitlines()
    assert [Path(line.split()[0]).name for line in printed] == ["a.png", "c.png"]
    assert "b.png: cannot be read as an image" in run("predict", trained, folder / "b.png", code=2)
    (tmp_path / "empty").mkdir()
    assert "empty: no supported files in this folder, expected .bmp, " in run("predict", trained, tmp_path / "empty", code=2)


def test_evaluate_accepts_other_data_with_the_same_classes(tiny, trained, tmp_path, run):
    with np.load(tiny) as file:
        arrays = dict(file)
    other = tmp_path / "other.npz"
    np.savez(other, **arrays | {"test_images": arrays["test_images"][:40], "test_labels": 1 - arrays["test_labels"][:40]})
    result = json.loads(run("evaluate", trained, "--data", other, "--json"))
    assert result["tested"] == {"data": str(other), "part": "test split", "count": 40, "trained_on": 0}
    assert [result[name] for name in ("accuracy", "balanced_accuracy", "macro_f1", "auroc")] == [0.0] * 4
    assert [scores["recall"] for scores in result["classes"].values()] == [0.0, 0.0]
    assert result["confusion"] == [[0, 20], [20, 0]]
    for part in ("train", "test"):
        for name in ("good", "bad"):
            (tmp_path / "texts" / part / name).mkdir(parents=True)
            (tmp_path / "texts" / part / name / "1.txt").write_text(f"a {name} film")
    assert "the model of the run needs images, got texts" in run("evaluate", trained, "--data", tmp_path / "texts", code=2)
    np.savez(other, **arrays | {"train_labels": arrays["train_labels"] * 2})
    assert "other.npz: its classes must be that of the run, ['0', '1'], got" in run(
        "evaluate", trained, "--data", other, code=2
    )
    larger = {f"{split}_images": np.pad(arrays[f"{split}_images"], ((0, 0), (1, 1), (1, 1))) for split in ("train", "test")}
    np.savez(other, **arrays | larger)
    message = run("evaluate", trained, "--data", other, code=2)
    assert "other.npz: its shape must be that of the run, [1, 8, 8], got [1, 10, 10]" in message


def test_evaluate_accepts_a_folder_without_all_classes(tmp_path, run, capsys):
    make_folder(tmp_path / "set", train=4, test=3)
    options = ("--model", "mlp", "--set", "size=8", "--set", "epochs=1", "--set", "batch=4", "--policy", "none")
    run("train", "--data", tmp_path / "set", *options, "-o", tmp_path / "run")
    own = json.loads(run("evaluate", tmp_path / "run", "--json"))
    alone = json.loads(run("evaluate", tmp_path / "run", "--data", tmp_path / "set" / "val", "--json"))
    assert own.pop("tested")["part"] == "test split"
    assert alone.pop("tested")["part"] == "whole"
    assert alone == own
    (tmp_path / "set").rename(tmp_path / "moved")
    assert "set: no longer exists; pass --data with its new path" in run("evaluate", tmp_path / "run", code=2)
    shutil.rmtree(tmp_path / "moved" / "val" / "n01443537")
    output = run("evaluate", tmp_path / "run", "--data", tmp_path / "moved" / "val")
    assert "tested on all 3 images" in output
    result = json.loads(run("evaluate", tmp_path / "run", "--data", tmp_path / "moved" / "val", "--json"))
    recalls = {name: scores["recall"] for name, scores in result["classes"].items()}
    assert result["balanced_accuracy"] == recalls["n01440764"]  # the mean over the classes in the folder
    assert recalls["n01443537"] is None
    assert result["auroc"] is None  # there is nothing to tell apart
    assert output.splitlines()[-1].split()[:2] == ["n01443537", "0"]  # the last, because it has no images and no recall


def test_a_run_on_a_folder_without_splits_is_tested_on_its_held_out_images(tmp_path, run):
    rng = np.random.default_rng(0)
    for name, value, count in (("dark", 20, 40), ("light", 220, 12)):
        (tmp_path / "set" / name).mkdir(parents=True)
        for i in range(count):
            pixel = np.full((8, 8), value) + rng.integers(-5, 5, (8, 8))
            Image.fromarray(pixel.astype(np.uint8)).save(tmp_path / "set" / name / f"{i}.png")
    options = ("--model", "mlp", "--set", "size=8", "--set", "epochs=1", "--set", "batch=8", "--policy", "none")
    run("train", "--data", tmp_path / "set", *options, "-o", tmp_path / "run")
    own = run("evaluate", tmp_path / "run")
    tested = load(str(tmp_path / "set"), size=8).test.paths
    held_out = f"tested on the {len(tested)} images that the run held out of {tmp_path}"
    assert own.startswith(f"{held_out}/set\n")
    shutil.copytree(tmp_path / "set", tmp_path / "copy")
    again = run("evaluate", tmp_path / "run", "--data", tmp_path / "copy")
    assert again.replace("copy", "set", 1) == own  # not on its training images
    (tmp_path / "copy" / tested[0].relative_to(tmp_path / "set")).unlink()  # no longer the run's data
    output = run("evaluate", tmp_path / "run", "--data", tmp_path / "copy")
    assert output.startswith(f"tested on all 51 images of {tmp_path}/copy; the run was trained on {52 - len(tested)} of them\n")
    (tmp_path / "new").mkdir()
    (tmp_path / "copy").rename(tmp_path / "new" / "test")  # the whole folder is a test split
    assert "tested on the test split of" in (output := run("evaluate", tmp_path / "run", "--data", tmp_path / "new"))
    assert "new, 51 images" in output
    for i in range(40):  # add images
        shutil.copy(tmp_path / "set" / "dark" / "0.png", tmp_path / "set" / "dark" / f"new-{i}.png")
    with pytest.warns(UserWarning, match="set: has changed since the run"):
        assert run("evaluate", tmp_path / "run", "--data", tmp_path / "set").startswith("tested on the ")


def test_other_images_with_the_same_file_names_are_all_tested(tmp_path, run):
    draw = np.random.default_rng(0)
    for folder, shift in (("set", 0), ("other", 15)):
        for name, value in (("dark", 20), ("light", 200)):
            (tmp_path / folder / name).mkdir(parents=True)
            for i in range(20):
                pixel = np.full((8, 8), value + shift) + draw.integers(-5, 5, (8, 8))
                Image.fromarray(pixel.astype(np.uint8)).save(tmp_path / folder / name / f"{i}.bmp")  # files of equal size
    options = ("--model", "mlp", "--set", "size=8", "--set", "epochs=1", "--set", "batch=8", "--policy", "none")
    run("train", "--data", tmp_path / "set", *options, "-o", tmp_path / "run")
    os.symlink(tmp_path / "absent", tmp_path / "set" / "dark" / "broken.bmp")
    result = json.loads(run("evaluate", tmp_path / "run", "--data", tmp_path / "other", "--json"))["tested"]
    assert result == {"data": str(tmp_path / "other"), "part": "whole", "count": 40, "trained_on": 0}


def test_balanced_accuracy_counts_rare_classes(tiny, trained, tmp_path, run):
    with np.load(tiny) as file:
        arrays = dict(file)
    rare = np.concatenate([np.flatnonzero(arrays["test_labels"] == 0), np.flatnonzero(arrays["test_labels"] == 1)[:10]])
    images, labels = arrays["test_images"][rare], arrays["test_labels"][rare]
    images[-10:-1] = 255 - images[-10:-1]  # nine of the ten light images become dark
    np.savez(tmp_path / "other.npz", **arrays | {"test_images": images, "test_labels": labels})
    output = run("evaluate", trained, "--data", tmp_path / "other.npz")
    rows = [line.split()[:3] for line in output.splitlines()]
    assert ["accuracy", "77.50"] in [row[:2] for row in rows]  # 31 of 40
    assert ["balanced", "accuracy", "55.00"] in rows  # mean of 30 of 30 and 1 of 10
    assert [line.split()[:4] for line in output.splitlines()[-2:]] == [
        ["1", "10", "10.00", "100.00"],
        ["0", "30", "100.00", "76.92"],
    ]


def test_evaluate_writes_its_numbers_and_figures(trained, tmp_path, run):
    output = run("evaluate", trained, "-o", tmp_path / "out")
    names = ("evaluation.json", "reliability.png", "confusion.png")
    assert output.splitlines()[-3:] == [f"wrote {tmp_path / 'out' / name}" for name in names]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)
    assert json.loads((tmp_path / "out" / "evaluation.json").read_text()) == json.loads(run("evaluate", trained, "--json"))
    assert pixels(tmp_path / "out" / "reliability.png").shape[:2] == (900, 750)
    message = run("evaluate", trained, "-o", tmp_path / "out" / "confusion.png", code=2)
    assert "out must be the path of a folder, got the file" in message


def test_evaluate_warns_of_an_unfinished_run(tiny, tmp_path, run_command):
    recipe = Recipe(data=str(tiny), model="mlp", policy="none", epochs=3, batch=20)
    with pytest.raises(Stopped):
        train(recipe, out=tmp_path / "run", on_step=lambda state: state.step == 4)
    _, _, err = run_command("evaluate", tmp_path / "run")
    assert err == f"outspan: {tmp_path / 'run'} is not finished: step 4 of 9\n"


def test_compositions_are_drawn(tiny, tmp_path, run):
    changes = [part for change in ("epochs=5", "batch=20", "transforms=geometric") for part in ("--set", change)]
    run("train", "--data", tiny, "--model", "mlp", "--policy", "uncertain", *changes, "-o", tmp_path / "run")
    output = run("compositions", tmp_path / "run", "-o", tmp_path / "c.png", "--mark", "shear_x+rotate")
    assert [line.split()[-1] for line in output.splitlines() if "→" in line][-1] == "rotate+shear_x"
    assert pixels(tmp_path / "c.png").shape[:2] == (1200, 1350)
    parts = json.loads(run("compositions", tmp_path / "run", "-o", tmp_path / "plain.png", "--json"))
    assert [round(sum(epoch), 9) for epoch in zip(*parts.values(), strict=True)] == [1] * 5
    assert pixels(tmp_path / "plain.png").shape[:2] == (750, 1350)
    whole = (tmp_path / "run" / "compositions.jsonl").read_text()
    for damaged in ("", "[]\n", '{"epoch": 0, "compositions": {}}\n', '{"epoch": 0, "compositions": {"a": 1}}\n'):
        (tmp_path / "run" / "compositions.jsonl").write_text(damaged)
        message = run("compositions", tmp_path / "run", "-o", tmp_path / "d.png", code=2)
        assert "damaged (a line does not describe an epoch); remove the file" in message
    (tmp_path / "run" / "compositions.jsonl").write_text(whole)
    message = run("compositions", tmp_path / "run", "-o", tmp_path / "d.png", "--mark", "shear_x+rotat", code=2)
    assert "unknown transform 'rotat', did you mean 'rotate'" in message
    assert "a .png file" in run("compositions", tmp_path / "run", "-o", tmp_path / "c.pdf", code=2)
