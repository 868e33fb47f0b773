"""The setup of a run: errors before training, and the models for training and scoring."""

import warnings
from dataclasses import replace

import pytest
import torch

from made import make_folder
from outspan import models
from outspan.config import Recipe
from outspan.data.sets import Data, load, load_for
from outspan.data.splits import InMemory
from outspan.data.stratify import hold_out
from outspan.training import checkpoint
from outspan.training.setup import use_algorithms
from outspan.training.train import train
from trained_runs import SMALL, few, final, load_run


def test_a_final_batch_of_one_sample_is_refused_if_it_cannot_be_normalized(tmp_path):
    images = torch.randint(0, 256, (9, 3, 4, 4), dtype=torch.uint8)
    data = Data("digits", InMemory(images, torch.arange(9) % 2), InMemory(images, torch.arange(9) % 2), ("a", "b"))
    recipe = Recipe(model="wide_resnet-10-1", epochs=1, batch=4, policy="none")  # its final layers have 1 x 1 pixels here
    with pytest.raises(ValueError, match="'wide_resnet-10-1' cannot normalize a single sample of 3 x 4 x 4: use another batch"):
        train(recipe, out=tmp_path / "run", splits=data)
    for batch, parts in ((9, 8), (6, 3), (9, 4)):  # 9 in parts of 2; the final 3 in parts of 1; 9 in parts of 3: allowed
        changed = replace(recipe, batch=batch, accumulate=parts)
        if (batch, parts) == (9, 4):
            train(changed, out=tmp_path / "parts", splits=data)
            continue
        with pytest.raises(ValueError, match=r"or a part of it, has one sample.*a smaller accumulate"):
            train(changed, out=tmp_path / "run", splits=data)
    assert not (tmp_path / "run").exists()
    train(replace(recipe, batch=5), out=tmp_path / "other", splits=data)


def test_the_compiled_model_is_used_for_training_and_scoring(tmp_path, monkeypatch):
    calls = []

    def compiled(model):
        wrapped = torch.nn.Sequential(model)
        wrapped.register_forward_hook(lambda *_: calls.append(wrapped.training))
        return wrapped

    monkeypatch.setattr(torch, "compile", compiled)
    recipe = replace(SMALL, policy="uncertain", epochs=1)
    train(recipe, out=tmp_path / "compiled", splits=few(), compile=True)
    assert calls == [False, True] * 10  # scoring, then a step
    train(recipe, out=tmp_path / "plain", splits=few())
    whole, other = final(tmp_path / "compiled"), final(tmp_path / "plain")
    assert whole[0].keys() == other[0].keys()  # the names of the original model are saved
    assert whole[1]["metrics"] == other[1]["metrics"]


def test_a_model_that_does_not_fit_the_images_is_refused_before_training(tmp_path, monkeypatch):
    fixed = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(32 * 32, 10))
    monkeypatch.setattr(models, "build", lambda *_: fixed)
    with pytest.raises(ValueError, match=r"model 'mlp' does not take images of 1 x 28 x 28 .*shapes cannot be multiplied"):
        train(SMALL, out=tmp_path / "run", splits=few(40))
    assert not (tmp_path / "run").exists()


def test_a_fraction_of_the_images_is_evenly_spaced_and_has_two_batches(tmp_path):
    whole = load("digits")
    for fraction, batch, count in ((0.1, 20, 500), (0.001, 20, 40)):
        part = load_for(replace(SMALL, fraction=fraction, batch=batch))
        rows = torch.linspace(0, 4999, count, dtype=torch.float64).round().long()
        assert torch.equal(part.train.images, whole.train.images[rows])
        assert len(part.test) == max(40, round(fraction * 1000))
    train(replace(SMALL, fraction=0.01, epochs=1), out=tmp_path)
    assert len(load_run(tmp_path)[1].data.train) == 50


def test_deterministic_algorithms_are_switched_off_after_the_run(tmp_path):
    seen = []
    train(
        replace(SMALL, epochs=1),
        out=tmp_path,
        splits=few(20),
        deterministic=True,
        on_step=lambda _: seen.append(torch.are_deterministic_algorithms_enabled()),
    )
    assert seen == [True]
    assert not torch.are_deterministic_algorithms_enabled()


def test_validation_images_are_not_in_the_statistics(tmp_path):
    data = few()
    train(replace(SMALL, epochs=1, validation=50), out=tmp_path, splits=data)
    kept, _ = hold_out(data.train, 50, 0)
    assert checkpoint.load(tmp_path)[1]["data"]["mean"] == pytest.approx([float(kept.images.double().mean() / 255)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "uncertian"}, "unknown policy 'uncertian', did you mean 'uncertain'"),
        ({"model": "mpl"}, "unknown model 'mpl', did you mean 'mlp'"),
        ({"data": "digit"}, "unknown data set 'digit', did you mean 'digits'"),
        ({"policy": "random", "transforms": "rotat"}, "did you mean 'rotate'"),
        ({"defaults": "mnist"}, "defaults for images must be one of"),
    ],
)
def test_unknown_names_are_refused(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(replace(SMALL, **change), out=tmp_path)


def test_an_interruption_during_imports_of_torch_is_raised(monkeypatch):
    def half_imported(*_):
        raise AttributeError("module 'sympy' has no attribute 'printing'")

    monkeypatch.setattr(torch, "use_deterministic_algorithms", half_imported)
    with pytest.raises(KeyboardInterrupt), use_algorithms(deterministic=False):
        raise KeyboardInterrupt


def test_a_warning_if_the_batch_is_larger_than_the_data_or_small_images_are_enlarged(tmp_path):
    make_folder(tmp_path / "images")  # 6 images, the short side of most has 40 to 50 pixels
    options = {"data": str(tmp_path / "images"), "model": "mlp", "policy": "none", "epochs": 1}
    with pytest.warns(UserWarning, match="the images are|batch 7") as noted:
        train(**options, batch=7, size=100, out=tmp_path / "small")
    assert [str(warning.message) for warning in noted] == [
        "the images are enlarged to 100 px, but the short side of most has at most 47 px: --set size=47 trains faster",
        "batch 7 is larger than the training data: an epoch is one step with all 6 images; a smaller batch gives more steps",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(**options, batch=6, size=90, out=tmp_path / "enough")
