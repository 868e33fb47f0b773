"""The Python API: train, load, evaluate and predict with plain arguments."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import outspan
from made import make_folder
from outspan import Recipe
from outspan.data.sets import Data
from outspan.data.sets import load as load_data

KEYS = {"data": "digits", "model": "mlp", "policy": "none", "epochs": 1, "batch": 50, "fraction": 0.04}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a finished run on a few digits."""
    out = tmp_path_factory.mktemp("api") / "run"
    outspan.train(**KEYS, out=out, device="cpu")
    return out


def test_train_accepts_keys_a_recipe_or_a_file(folder, tmp_path):
    summary = outspan.train(Recipe(**KEYS), out=str(folder), device="cpu")  # the run is finished, so it is only read
    assert isinstance(summary, outspan.Summary)
    assert summary.steps == 4
    assert summary.accuracy == outspan.train(**KEYS, out=folder, device="cpu").accuracy
    file = tmp_path / "recipe.toml"
    file.write_text('data = "digits"\nmodel = "mlp"\npolicy = "none"\nepochs = 3\nbatch = 50\nfraction = 0.04\n')
    assert outspan.train(file, out=tmp_path / "a", epochs=1, device="cpu").metrics == summary.metrics
    assert outspan.train(str(file), out=tmp_path / "a", epochs=1, device="cpu").metrics == summary.metrics


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"epoch": 3}, "unknown key 'epoch', did you mean 'epochs'"),
        ({"epochs": 0}, r"epochs is out of range, got 0 \(allowed: 1 to 1,000,000\)"),
        ({"data": "digit"}, "unknown data set 'digit'"),
        ({"policy": "randm"}, "did you mean 'random'"),
    ],
)
def test_train_refuses_bad_keys_by_name(keys, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        outspan.train(**{**KEYS, **keys}, out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_the_progress_of_a_run_is_a_dataclass(tmp_path):
    seen = []
    outspan.train(**KEYS, out=tmp_path, device="cpu", on_step=seen.append)
    assert [progress.step for progress in seen] == [1, 2, 3, 4]
    assert all(progress.samples == 50 and progress.steps == 4 for progress in seen)
    assert seen[-1].metrics[-1]["epoch"] == 0


def test_evaluate_counts_per_class(folder):
    result = outspan.evaluate(folder, device="cpu")
    data = result.tested.data.test
    counts = data.labels.bincount(minlength=10)
    assert torch.equal(result.confusion.sum(1), counts)
    assert result.accuracy == outspan.train(**KEYS, out=folder, device="cpu").accuracy
    assert result.by_class["3"] == pytest.approx(int(result.confusion[3, 3]) / int(counts[3]))
    assert result.balanced_accuracy == pytest.approx(
        np.mean([value for value in result.by_class.values() if value is not None])
    )
    assert str(result.tested) == "the test split of digits, 100 images"
    assert outspan.evaluate(outspan.load(folder), "digits", device="cpu").accuracy == result.accuracy


def test_evaluate_and_predict_move_the_model_back(folder, monkeypatch):
    run, places = outspan.load(folder), []

    def move(device: torch.device) -> torch.nn.Module:
        places.append(device)
        return run.model

    monkeypatch.setattr(run.model, "to", move)
    cpu, first = torch.device("cpu"), torch.device("cpu", 0)
    outspan.evaluate(run, device=first)
    assert places == [first, cpu]
    outspan.predict(run, load_data("digits").test.images[:3], device=first)
    run.predict(load_data("digits").test.images[:3])
    assert places == [first, cpu, first, cpu, cpu, cpu]


def test_predict_accepts_a_batch_an_array_or_files(folder, tmp_path):
    from PIL import Image

    images = load_data("digits").test.images[:3]
    run = outspan.load(folder)
    result = outspan.predict(folder, images, device="cpu")
    logits = run.model(run.preprocess(images))
    assert torch.allclose(result.probabilities, logits.softmax(1))
    assert result.classes == [run.classes[i] for i in logits.argmax(1)]
    assert torch.equal(outspan.predict(run, images.numpy(), device="cpu").probabilities, result.probabilities)
    for i, image in enumerate(images):
        Image.fromarray(image[0].numpy()).save(tmp_path / f"{i}.png")
    of_files = outspan.predict(run, [str(tmp_path)], device="cpu")
    assert [path.name for path in of_files.files] == ["0.png", "1.png", "2.png"]
    assert of_files.classes == result.classes
    assert outspan.predict(run, str(tmp_path / "1.png"), device="cpu").classes == result.classes[1:2]
    top = result.top(2)
    assert [next(iter(row)) for row in top] == result.classes
    assert all(len(row) == 2 for row in top)


def test_predict_refuses_inputs_that_do_not_match_the_model(folder, tmp_path):
    images = load_data("digits").test.images[:3]
    for wrong in (images.float(), images[0], images[:, :, :20]):
        with pytest.raises(ValueError, match=r"images must be uint8 \[B, 1, 28, 28\], as the model was trained on, got"):
            outspan.predict(folder, wrong, device="cpu")
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"broken\.png"):
        outspan.predict(folder, [tmp_path / "broken.png"], device="cpu")
    errors = []
    assert len(outspan.predict(folder, [tmp_path / "broken.png"], device="cpu", on_error=errors.append)) == 0
    assert len(errors) == 1
    with pytest.raises(ValueError, match="no such folder"):
        outspan.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run, out: outspan.train(**KEYS, out=out, device="gpu"), "unknown device 'gpu' .available: cpu"),
        (
            lambda run, out: outspan.train({"lr": 1.0}, out=out),
            "recipe must be a Recipe or the path of a TOML file, got {'lr': 1.0}",
        ),
        (lambda run, out: outspan.train(**KEYS, out=out, splits=torch.zeros(3)), "splits must be .*Data, got torch.float32"),
        (lambda run, out: outspan.train(**KEYS, out=out, transforms=["rotate"]), "transforms must be a string.*by commas"),
        (
            lambda run, out: outspan.train(data=load_data("digits"), out=out),
            r"data must be a name or a path, got Data\(.*: pass an outspan.data.sets.Data as splits=",
        ),
        (lambda run, out: outspan.train(data=(torch.zeros(9), 1), out=out), "data must be a name or a path, got .*tensor"),
        (lambda run, out: outspan.train(**KEYS, out=None), "out must be the path of a folder, got None"),
        (lambda run, out: outspan.compare(out=run / "recipe.toml"), "out must be the path of a folder, got the file"),
        (lambda run, out: outspan.measure(out=run / "recipe.toml"), "out must be the path of a folder, got the file"),
        (lambda run, out: outspan.train(**KEYS, out=run / "recipe.toml"), "got the file .*recipe.toml: choose another path"),
        (lambda run, out: outspan.evaluate(run, torch.zeros(3)), "data must be the name or path of data, got torch.float32"),
        (lambda run, out: outspan.evaluate(run, device="tpu"), "unknown device 'tpu'"),
        (lambda run, out: outspan.evaluate(outspan.load(run).model), "must be the path of its folder, .* got Sequential"),
        (lambda run, out: outspan.load(run / "recipe.toml"), "recipe.toml: not a folder; pass a folder that"),
        (lambda run, out: outspan.load(run.parent), "no complete checkpoint; pass a folder that"),
        (lambda run, out: outspan.predict(run, None), "inputs must be paths, or one batch of images, got a value of type None"),
        (lambda run, out: outspan.predict(run, [torch.zeros(1)]), "one batch of images, got a list of Tensor"),
        (lambda run, out: outspan.predict(run, np.zeros((1, 1, 28, 28), np.uint8)).top(0), "count must be at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_refused_by_name(call, message, folder, tmp_path, unchecked):
    with pytest.raises(ValueError, match=message):
        call(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_refused(folder, tmp_path):
    for call in (outspan.train, outspan.compare, outspan.measure):
        with pytest.raises(ValueError, match=r"device 'cuda' is not there .available: cpu.*: torch finds no GPU; install"):
            call(data="digits", model="mlp", out=tmp_path / "out", device="cuda")
    assert not (tmp_path / "out").exists()


def test_data_may_be_a_path(folder, tmp_path):
    make_folder(tmp_path / "photos", train=4)
    keys = {"model": "mlp", "policy": "none", "epochs": 1, "batch": 4, "size": 8}
    summary = outspan.train(data=tmp_path / "photos", **keys, out=tmp_path / "run", device="cpu")
    assert outspan.evaluate(tmp_path / "run", tmp_path / "photos", device="cpu").accuracy == summary.accuracy


def test_an_image_folder_is_trained_and_evaluated(tmp_path):
    make_folder(tmp_path / "photos", train=4)
    keys = {"model": "convnet", "policy": "random", "epochs": 1, "batch": 4, "size": 16}
    outspan.train(data=str(tmp_path / "photos"), **keys, out=tmp_path / "run", device="cpu")
    result = outspan.evaluate(tmp_path / "run", device="cpu")
    assert result.tested.part.value == "test split"


def test_keys_without_effect_are_named(tmp_path):
    with pytest.warns(UserWarning, match="^policy none ignores these keys: candidates, magnitude$"):
        outspan.train(**KEYS, candidates=8, magnitude=3, out=tmp_path / "run", device="cpu")
    with pytest.warns(UserWarning, match="^optimizer adamw ignores the key momentum$"):
        outspan.train(**KEYS, optimizer="adamw", momentum=0.5, out=tmp_path / "adamw", device="cpu")
    keys = {key: value for key, value in KEYS.items() if key != "policy"}
    with pytest.warns(UserWarning, match="^policy none, random ignores these keys: magnitude$"):
        outspan.compare(**keys, policies="none,random", seeds=1, depth=1, magnitude=3, out=tmp_path / "compared", device="cpu")
    with pytest.warns(UserWarning, match="^measure ignores these keys: candidates$"):
        outspan.measure(**keys, transforms="rotate", seeds=2, candidates=8, out=tmp_path / "measured", device="cpu")
    with pytest.warns(UserWarning, match="policy `baseline` has no transforms for data `digits`: it is the same as `none`"):
        outspan.compare(**keys, policies="none,baseline", seeds=1, out=tmp_path / "baseline", device="cpu")


def test_a_run_of_own_tensors_is_evaluated_with_them(tmp_path):
    data = load_data("digits")
    splits = Data("mine", data.train.take(torch.arange(200)), data.test.take(torch.arange(100)), data.classes)
    keys = {**KEYS, "fraction": 1.0}
    run = tmp_path / "run"
    summary = outspan.train(**keys, splits=splits, out=run, device="cpu")
    assert outspan.evaluate(run, splits=splits, device="cpu").accuracy == summary.accuracy
    hint = r"if the run was trained with splits=, evaluate it with outspan.evaluate\(run, splits=...\)"
    with pytest.raises(ValueError, match=f"the data has changed since .*; {hint}"):
        outspan.evaluate(run, device="cpu")
    outspan.train(**{**keys, "data": "mine"}, splits=splits, out=tmp_path / "named", device="cpu")
    with pytest.raises(ValueError, match=f"unknown data set 'mine' .*; {hint}"):
        outspan.evaluate(tmp_path / "named", device="cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splits": torch.zeros(3)}, r"splits must be an outspan.data.sets.Data, got torch.float32 \[3\]"),
        ({"splits": load_data("digits"), "data": "digits"}, "data and splits exclude each other: pass one of them"),
        ({"splits": replace(load_data("digits"), classes=tuple("abcdefghij"))}, "its classes must be that of the run"),
    ],
)
def test_wrong_splits_of_an_evaluation_are_refused(options, message, folder, unchecked):
    with pytest.raises(ValueError, match=message):
        outspan.evaluate(folder, **options, device="cpu")
