"""The commands `outspan compose`, `core` and `mixup`, run as a user runs them."""

import json
from dataclasses import replace
from itertools import product

import pytest
from PIL import Image

from outspan.cli.studies import _mixup_remarks
from outspan.config import read_recipe
from outspan.measurement.effects import Estimate
from outspan.measurement.info import StudyInfo
from outspan.measurement.intervals import Interval
from outspan.measurement.mixup import MixupStudy, Tuning
from outspan.measurement.mixup_margins import Corrected, Margins
from outspan.measurement.scores import Scores
from studies import SETTINGS

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def options(few):
    return ("--data", few, "--model", "mlp-10", "--seeds", 2, "--set", "epochs=4", "--set", "batch=25")


def test_compose_then_core_then_train(options, tmp_path, run):
    out = tmp_path / "m"
    names = ("--transforms", "rotate, random_crop,rotate")
    for extra, name, words in (
        ((), "composition", "one after the other"),
        (("--additive",), "composition-additive", "blended"),
    ):
        printed = run("compose", *options, *names, *extra, "-o", out)
        assert words in printed
        assert "votes were tied and were decided at random. Ties are common with an even number of seeds." in printed
        stored = json.loads((out / f"{name}.json").read_text())
        assert {tuple(pair[end] for end in ("first", "second")) for pair in stored["pairs"]} == {
            ("rotate", "random_crop"), ("random_crop", "rotate"),
        }  # fmt: skip
        edges = [f"{first} → {second}: reduces the error by" for first, second in stored["edges"]]
        assert all(edge in printed for edge in edges or ["No second transform reduces the error"])
        with Image.open(out / f"{name}.png") as image:
            assert image.format == "PNG"
    before = sorted((out / "models").iterdir())
    printed = run("core", *options, *names, "-o", out)
    assert sorted((out / "models").iterdir()) == before  # all models existed already
    stored = json.loads((out / "core.json").read_text())
    assert "← core" in printed
    assert f"{stored['ties']} of {stored['votes']} votes were tied" in printed
    recipe = read_recipe(out / "core.toml")
    assert recipe.transforms == (",".join(stored["core"]) or "paper16")
    assert recipe.data == str(tmp_path / "few.npz")
    assert "test accuracy" in run("train", out / "core.toml", "-o", tmp_path / "run")
    assert run("core", *options, *names, "-o", out) == printed


@pytest.mark.slow
def test_two_runs_of_mixup_write_the_same_bytes(options, tmp_path, run):
    extra = ("--l2", "1e-3,1e-2", "--fractions", "0,1")
    printed = run("mixup", *options, *extra, "-o", tmp_path / "one")
    run("mixup", *options, *extra, "-o", tmp_path / "two")
    assert (tmp_path / "one" / "mixup.json").read_bytes() == (tmp_path / "two" / "mixup.json").read_bytes()
    stored = json.loads((tmp_path / "one" / "mixup.json").read_text())
    assert f"weight decay {stored['weight_decay']['chosen']:g}" in printed
    assert "+ mixup, 100 % same class" in printed
    assert "16 held-out training images" in printed
    with Image.open(tmp_path / "one" / "mixup.png") as image:
        assert image.size == (1650, 1200)


def test_mixup_corrects_at_the_requested_fractions(options, tmp_path, run):
    printed = run("mixup", *options, "--l2", "1e-3", "--shares", "0.25", "-o", tmp_path / "m")
    (entry,) = json.loads((tmp_path / "m" / "mixup.json").read_text())["margins"]["corrected"]
    assert entry["share"] == 0.25
    stored = ("Mixup with 25 % same class corrects" in printed, "on all images that it gets wrong" in printed)
    assert stored == (entry["count"] > 0,) * 2


def test_mixup_without_corrected_samples_prints_no_margins():
    info = StudyInfo(SETTINGS, (0, 1), 9, "images", 0, 9, 0.5, True)
    score = Scores(9, 0.5, 0.0, 0.5, 0.0, 0)
    corrected = (Corrected(0.0, 0, 1, None, None, (0,) * 10),)
    less = Estimate(-0.02, Interval(-0.03, -0.01))
    study = MixupStudy(info, Tuning(0.1, {}, 0), score, score, score, less, (), Margins({}, {}, corrected, 0.5))
    assert _mixup_remarks(study)[1:] == [
        "Error with mixup, compared with weight decay alone: -2.00 points (-3.00 to -1.00, significant)."
    ]
    corrected += (Corrected(0.5, 2, 1, 0.5, 0.75, (0,) * 10),)
    assert _mixup_remarks(replace(study, margins=Margins({}, {}, corrected, 0.5)))[2:] == [
        "Mixup with 50 % same class corrects 2 images and breaks 1. Mean margin of the baseline on the corrected images: 0.75.",
        "Mean margin of the baseline on all images that it gets wrong: 0.50.",
    ]


@pytest.mark.parametrize(
    ("command", "more", "file"),
    [
        ("compose", ("--transforms", "rotate,invert"), "composition.json"),
        ("core", ("--transforms", "invert"), "core.json"),
        ("mixup", ("--l2", "1e-3", "--shares", "0"), "mixup.json"),
    ],
)
def test_shared_batches_are_named_in_the_output(command, more, file, options, tmp_path, run):
    for extra in ((), ("--shared-batches",)):
        out = tmp_path / f"m{len(extra)}"
        printed = run(command, *options, "--set", "epochs=1", *more, *extra, "-o", out)
        assert ("Shared batches: all seeds saw the same samples" in printed) == bool(extra)
        assert ("note" in json.loads((out / file).read_text())) == bool(extra)


def test_a_core_recipe_finds_its_data_from_any_folder(tmp_path, run, monkeypatch):
    """ImageNet is a name, found in $OUTSPAN_DATA. Any other folder is a path."""
    for part, name, shade in product(("train", "val"), ("dark", "light"), (40, 45)):
        (tmp_path / "imagenet" / part / name).mkdir(parents=True, exist_ok=True)
        picture = Image.new("RGB", (9, 9), (shade + 150 * (name == "light"), shade, 0))
        picture.save(tmp_path / "imagenet" / part / name / f"{shade}.png")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path))
    more = ("--model", "mlp-3", "--seeds", 2, "--transforms", "invert", "--set", "size=8", "--set", "epochs=1")
    for folder, expected in (("elsewhere", "imagenet"), ("", str(tmp_path / "imagenet"))):
        monkeypatch.chdir(tmp_path / folder)
        run("core", "--data", "imagenet", *more, "-o", tmp_path / f"m{folder}")
        assert read_recipe(tmp_path / f"m{folder}" / "core.toml").data == expected


@pytest.mark.parametrize("command", ["compose", "core"])
def test_all_transforms(command, options, tmp_path, run, monkeypatch):
    monkeypatch.setattr("outspan.measurement.recipes.measurable", lambda *_: ("rotate", "invert"))
    run(command, *options, "--set", "epochs=1", "--transforms", "all", "-o", tmp_path / "m")
    assert {path.name.split("-")[0] for path in (tmp_path / "m" / "models").iterdir()} >= {"baseline", "rotate", "invert"}


def test_wrong_arguments_are_refused(options, few, tmp_path, run):
    out = ("-o", tmp_path / "m")
    assert "at least 2 different transforms, got ['rotate']" in run("compose", *options, *out, "--transforms", "rotate", code=2)
    assert "at least 2 different seeds, got 1" in run("compose", "--data", few, "--seeds", 1, *out, code=2)
    for command in ("compose", "core"):
        assert "'mixup' mixes labels" in run(command, *options, *out, "--transforms", "rotate,mixup", code=2)
        assert f"{command} sets depth itself" in run(command, *options, *out, "--set", "depth=2", code=2)
    assert "mixup sets same_class itself" in run("mixup", *options, *out, "--set", "same_class=1", code=2)
    assert "--l2 must be comma-separated numbers, got '1e-3,x'" in run("mixup", *options, *out, "--l2", "1e-3,x", code=2)
    message = "fractions of the same class must lie in [0, 1], at least one, got [0.0, 2.0]"
    assert message in run("mixup", *options, *out, "--shares", "0,2", code=2)
    assert "weight decays must be 0 or more" in run("mixup", *options, *out, "--l2", "nan,1", code=2)
    message = run("mixup", "--data", few, "--model", "convnet", *out, code=2)
    assert "needs an mlp without validation images, got convnet: pass one value, e.g. --l2 0.0005" in message
    assert not (tmp_path / "m").exists()
    run("core", *options, *out, "--transforms", "invert")
    message = run("compose", *options[:-1], "batch=50", *out, code=2)
    assert "a measurement with other settings (batch 25 there, 50 requested)" in message
    for command in ("compose", "core", "mixup"):
        assert f"Example: outspan {command}" in run(command, "--help")


@pytest.mark.parametrize("command", ["measure", "compose", "core", "mixup", "grid", "compare", "reproduce"])
def test_every_study_names_a_device_that_is_not_there(command, few, tmp_path, run):
    (tmp_path / "grid.toml").write_text(f'data = "{few}"\nvalidation = 10\nlr = [0.1, 0.2]\n')
    first = {"grid": [tmp_path / "grid.toml"], "reproduce": ["table-3", "--rows", "cifar10/wrn-28-10"]}.get(command, [])
    printed = run(command, *first, "--device", "cuda:99", "-o", tmp_path / "out", code=2)
    assert "device 'cuda:99' is not there (available: cpu" in printed
