"""Several seeds trained at once: each member equals the single run of its seed."""

from dataclasses import replace

import pytest
import torch

from outspan.config import Recipe
from outspan.data.sets import Data, load
from outspan.data.splits import InMemory
from outspan.measurement.margins import compute_margins
from outspan.models import build
from outspan.training import Stopped, checkpoint
from outspan.training.ensemble import is_batchable, members_at_once, train_ensemble
from outspan.training.ensemble_model import Ensemble
from outspan.training.logits import compute_logits
from outspan.training.train import train
from outspan.training.trained import load as load_model

pytestmark = pytest.mark.usefixtures("one_thread")
RECIPE = Recipe(data="digits", model="mlp-20", policy="random", transforms="rotate", depth=1, epochs=2, batch=32)


def of(*seeds: int, **changes) -> list[Recipe]:
    return [replace(RECIPE, seed=seed, **changes) for seed in seeds]


@pytest.fixture(scope="module")
def few() -> Data:
    digits = load("digits")
    train_split = InMemory(digits.train.images[:120], digits.train.labels[:120])  # the last batch of an epoch is smaller
    return Data("digits", train_split, InMemory(digits.test.images[:80], digits.test.labels[:80]), digits.classes)


def test_the_ensemble_equals_its_members():
    members = [build("mlp-7", (1, 4, 4), 3) for _ in range(4)]
    ensemble = Ensemble(members)
    images = torch.randn(5, 1, 4, 4)
    expected = torch.stack([member(images) for member in members], dim=1)
    assert torch.allclose(ensemble(images), expected, atol=1e-6)
    own = torch.randn(4, 5, 1, 4, 4)
    expected = torch.stack([member(some) for member, some in zip(members, own, strict=True)])
    assert torch.allclose(ensemble.each(own.flatten(2)), expected, atol=1e-6)
    assert all(torch.equal(weight, members[2][1 + 2 * i].weight) for i, (weight, _) in enumerate(ensemble.member(2)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"policy": "none", "schedule": "multistep", "momentum": 0.0},
        {"transforms": "cutout", "defaults": "cifar", "label_smoothing": 0.1, "clip": 0.5},  # defaults mix labels
        {"policy": "augmix", "warmup": 0.0},  # has helper rows
        {"steps": 5},
    ],
    ids=str,
)
def test_each_member_equals_the_run_of_its_seed(changes, few, tmp_path):
    recipe, seeds = replace(RECIPE, **changes), [3, 0, 7]
    ensemble, preprocess = train_ensemble([replace(recipe, seed=seed) for seed in seeds], data=few)
    classes = compute_logits(ensemble, few.test, preprocess, "cpu").argmax(2)
    for i, seed in enumerate(seeds):
        out = tmp_path / str(seed)
        train(replace(recipe, seed=seed), out=out, splits=few)
        tensors, _ = checkpoint.load(out)
        for layer, (weight, bias) in zip((1, 3), ensemble.member(i), strict=True):
            assert torch.allclose(weight, tensors[f"model.{layer}.weight"], atol=1e-5)
            assert torch.allclose(bias, tensors[f"model.{layer}.bias"], atol=1e-5)
        run = load_model(out)
        assert run.preprocess == preprocess
        alone = compute_logits(run.model, few.test, preprocess, "cpu")
        sure = compute_margins(alone) > 1e-3  # for smaller margins the order of sums may change the class
        assert sure.double().mean() > 0.9
        assert torch.equal(classes[sure, i], alone.argmax(1)[sure])


def test_members_with_several_augmentations_equal_the_runs_of_their_recipes(few):
    recipes = [
        *of(3, 0),
        *of(7, 0, policy="none", transforms="paper16"),  # another set of seeds
        *of(0, 3, policy="none", defaults="mixup", same_class=0.5),
        *of(1, policy="blend", transforms="rotate,invert"),
    ]
    together, _ = train_ensemble(recipes, data=few)
    for i, recipe in enumerate(recipes):
        alone, _ = train_ensemble([recipe], data=few)
        for (weight, bias), (own, its) in zip(together.member(i), alone.member(0), strict=True):
            assert torch.allclose(weight, own, atol=1e-5)
            assert torch.allclose(bias, its, atol=1e-5)
    shared, _ = train_ensemble([*of(1, 5), *of(1, transforms="invert")], data=few, shared=5)
    for i, recipe in ((1, of(5)), (2, of(1, transforms="invert"))):
        alone, _ = train_ensemble(recipe, data=few, shared=5)
        assert torch.allclose(shared.member(i)[0][0], alone.member(0)[0][0], atol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_an_ensemble_resumes_to_identical_bits(optimizer, few, tmp_path):
    members = of(0, 1, optimizer=optimizer)
    whole, _ = train_ensemble(members, data=few)
    with pytest.raises(Stopped, match="stopped at step 5 of 8"):
        train_ensemble(members, data=few, out=tmp_path, on_step=lambda state: state.step == 5)
    seen = []
    rest, _ = train_ensemble(members, data=few, out=tmp_path, save_every=0.0, on_step=seen.append)
    assert [state.step for state in seen] == [6, 7, 8]
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), rest.parameters(), strict=True))
    for step in (6, 7):  # the two kills are at different steps
        assert (tmp_path / f"step-{step:09d}.safetensors").exists()
    with pytest.raises(ValueError, match="a run of other recipes"):
        train_ensemble(of(0, 2, optimizer=optimizer), data=few, out=tmp_path)


def test_shared_batches_are_the_same_for_all_members(few):
    alone, _ = train_ensemble(of(5), data=few)
    shared, _ = train_ensemble(of(1, 5), data=few, shared=5)
    own, _ = train_ensemble(of(1, 5), data=few)
    for layer in range(2):
        for part in range(2):
            assert torch.allclose(shared.member(1)[layer][part], alone.member(0)[layer][part], atol=1e-6)
            assert not torch.allclose(shared.member(0)[layer][part], own.member(0)[layer][part], atol=1e-4)


def test_progress_and_stopping(few):
    seen = []
    train_ensemble(of(0, 1), data=few, on_step=seen.append)
    assert [state.step for state in seen] == list(range(1, 9))
    assert [state.samples for state in seen] == [64, 64, 64, 48] * 2
    assert seen[-1].loss < seen[0].loss
    with pytest.raises(Stopped, match="step 1 of 8, training 2 models at once"):
        train_ensemble(of(0, 1), data=few, on_step=lambda state: True)
    train_ensemble(of(0, 1, epochs=1, batch=120), data=few, on_step=lambda state: True)  # the run is already finished


def test_recipes_that_cannot_be_batched():
    assert is_batchable(RECIPE)
    for changes in (
        {"model": "convnet"},
        {"model": "mlpx"},
        {"policy": "uncertain"},
        {"policy": "adversarial"},
        {"validation": 5},
        {"crop": "resized"},
    ):
        assert not is_batchable(replace(RECIPE, **changes))
        with pytest.raises(ValueError, match="an ensemble needs model mlp, a policy that does not use the model"):
            train_ensemble(of(0, 1, **changes))
    with pytest.raises(ValueError, match=r"must agree in lr, got 0.1 and 0.2"):
        train_ensemble([*of(0), *of(1, lr=0.2)])
    with pytest.raises(ValueError, match="members must be at least one recipe"):
        train_ensemble([])
    assert members_at_once(RECIPE, (1, 28, 28)) > 1000
    assert members_at_once(replace(RECIPE, batch=128), (3, 224, 224)) == 5
    assert members_at_once(replace(RECIPE, batch=10_000), (3, 224, 224)) == 1


def test_a_loss_that_is_not_finite_is_refused(few):
    with pytest.raises(
        ValueError, match=r"rotate, seed [01]: the loss is (nan|inf) at step \d+, epoch \d+: try a smaller lr, or leave it out"
    ):
        train_ensemble(of(0, 1, lr=1e6, epochs=5), data=few)
