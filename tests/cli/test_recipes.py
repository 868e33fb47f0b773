"""Every recipe of the paper starts, trains, resumes and evaluates, on generated files in the official formats."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file

from made import make_folder, make_official
from outspan import models
from outspan.config import build_recipe, read_changes, read_recipe, scaled
from outspan.training import Stopped
from outspan.training.logits import accuracy
from outspan.training.train import train
from trained_runs import load_run

PAPER = sorted((Path(__file__).parent.parent.parent / "recipes" / "paper").glob("*.toml"))
IMAGES = [path for path in PAPER if "imdb" not in path.stem]  # the recipe for text is tested in tests/text


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    """Write the files of a data set when they are first needed. They are large, so they are removed at the end."""
    root = tmp_path_factory.mktemp("official")

    def make(name: str) -> Path:
        if not (root / "made" / name).exists():
            make_official(name, root)
            (root / "made" / name).mkdir(parents=True)
        return root

    yield make
    shutil.rmtree(root)


def check_training(path, changes, scale, out) -> None:
    recipe = scaled(build_recipe(path, read_changes(changes)), scale)
    with pytest.raises(Stopped):
        train(recipe, out=out, on_step=lambda progress: progress.step == 1)
    summary = train(recipe, out=out)
    assert summary.steps >= 2
    run, tested = load_run(out)
    assert accuracy(run.model, tested.split, run.preprocess, "cpu") == summary.accuracy


NARROW = {  # the same families, for CPUs
    "mlp": "mlp",
    "wide_resnet-28-2": "wide_resnet-10-1",
    "wide_resnet-28-10": "wide_resnet-10-1",
    "shake_shake-26-2x96d": "shake_shake-26-2x4d",
    "pyramidnet-272-200": "pyramidnet-11-8",
    "resnet-50": "resnet-18",
}


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_a_recipe_runs_with_a_narrow_model(path, official, tmp_path, monkeypatch, one_thread):
    recipe = read_recipe(path)
    monkeypatch.setenv("OUTSPAN_DATA", str(official(recipe.data)))
    check_training(path, ["batch=2", "size=32", f"model={NARROW[recipe.model]}"], 1e-5, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_a_recipe_runs_with_its_own_model(path, official, tmp_path, monkeypatch, one_thread):
    """The recipe's model at its full width, on a few images, so that a CPU can run it."""
    monkeypatch.setenv("OUTSPAN_DATA", str(official(read_recipe(path).data)))
    check_training(path, ["batch=3"], 1e-5, tmp_path)


@pytest.mark.parametrize("name", ["photos", "photos-cpu"])
@pytest.mark.filterwarnings("ignore:the images are enlarged")
def test_the_recipes_for_photographs_fine_tune_on_a_folder(name, tmp_path, one_thread):
    model = models.build("resnet-18", (3, 32, 32), 1000)
    save_file(model.state_dict(), tmp_path / "weights")
    make_folder(tmp_path / "folder", train=8, test=2)
    changes = {"data": str(tmp_path / "folder"), "model": "resnet-18", "weights": str(tmp_path / "weights"), "size": 32}
    summary = train(f"recipes/{name}.toml", out=tmp_path / "run", **changes, epochs=2, batch=8)
    assert summary.steps == 4
    start, end = model[0].weight, load_run(tmp_path / "run")[0].model[0].weight
    assert 0 < (start - end).abs().max() < 0.01  # it has begun from the weights, and was unfrozen


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_a_recipe_states_the_expected_result_and_cost(path):
    text = path.read_text()
    assert "Expected: " in text
    assert "GPU hours" in text or "CPU core" in text
    recipe = read_recipe(path)
    if recipe.policy == "uncertain":
        assert f"C = {recipe.candidates}, S = {recipe.keep}" in text


def test_the_scale_is_an_option(run, official, monkeypatch, tmp_path):
    monkeypatch.setenv("OUTSPAN_DATA", str(official("mnist")))
    mnist = next(path for path in PAPER if path.stem == "mnist-mlp")
    assert "test accuracy" in run("train", mnist, "--scale", "0.001", "-o", tmp_path / "run")
    recipe, data = load_run(tmp_path / "run")[0].recipe, load_run(tmp_path / "run")[1].data
    assert (recipe.epochs, recipe.fraction, len(data.train), len(data.test)) == (1, 0.001, 1000, 1000)
    for scale in ("0", "1.5", "-1"):
        assert "scale must lie in (0, 1], got" in run("train", mnist, "--scale", scale, "-o", tmp_path / "none", code=2)


def test_missing_data_is_named_with_its_source(run, monkeypatch, tmp_path):
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path))
    imagenet = next(path for path in PAPER if "imagenet" in path.stem)
    message = f"{tmp_path / 'imagenet' / 'train'}: no such file or folder; get it: ILSVRC 2012, image-net.org"
    assert message in run("train", imagenet, "-o", tmp_path / "run", code=2)


@pytest.mark.parametrize(
    ("policy", "text", "message"),
    [
        (
            "fastautoaugment",
            "[\n[['Rotat', 1, 1], ['Invert', 1, 1]]]",
            "policy.txt, line 2: unknown operation 'Rotat', did you mean 'Rotate'?",
        ),
        ("pba", "['1']", "policy.txt, line 1: must be [trial, clone, epoch, clone's epoch, policy before, policy after]"),
    ],
)
def test_a_wrong_policy_file_is_refused_and_leaves_no_folder(policy, text, message, run, tmp_path):
    (tmp_path / "policy.txt").write_text(text)
    options = ("--data", "digits", "--model", "mlp", "--policy", policy, "--policy-file", tmp_path / "policy.txt")
    assert message in run("train", *options, "-o", tmp_path / "run", code=2)
    assert not (tmp_path / "run").exists()
