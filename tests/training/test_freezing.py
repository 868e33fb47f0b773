"""Frozen layers, and learning rates by layer."""

from dataclasses import replace

import pytest
import torch

from outspan.config import Recipe
from outspan.models.layers import find_layers
from outspan.training import Stopped, checkpoint
from outspan.training.ensemble import is_batchable
from outspan.training.freezing import set_training, warn_without_effect
from outspan.training.state import initial_model, new_state
from outspan.training.step import Learner, lr_at, take_step
from outspan.training.train import train
from trained_runs import SMALL, equal, few, final

pytestmark = pytest.mark.filterwarnings("ignore:freeze is 'all but head', so the head is trained on random features")

TUNED = replace(SMALL, model="wide_resnet-10-1", epochs=4, batch=50, freeze="all but head", unfreeze=2)


def test_only_the_head_trains_until_the_model_is_unfrozen(tmp_path):
    model = initial_model(TUNED, (1, 28, 28), 10)
    before = {f"model.{name}": tensor.clone() for name, tensor in model.state_dict().items()}
    changed = {}

    def keep(progress):
        tensors = checkpoint.load(tmp_path).tensors
        changed[progress.step] = {name for name, tensor in before.items() if not torch.equal(tensors[name], tensor)}

    train(TUNED, out=tmp_path, splits=few(), save_every=0, on_step=keep)
    head = {name for name in before if name.startswith(f"model.{len(model) - 1}.")}
    assert changed[1] == changed[8] == head  # also running statistics do not change
    assert changed[9] > head
    assert changed[16] == before.keys()


def test_a_frozen_run_resumes_exactly_before_and_after_it_is_unfrozen(tmp_path):
    recipe = replace(TUNED, layer_decay=0.7, optimizer="adamw", lr=0.01, policy="uncertain")
    train(recipe, out=tmp_path / "whole", splits=few())
    stop = True
    while stop:
        try:
            train(recipe, out=tmp_path / "parts", splits=few(), on_step=lambda progress: progress.step % 3 == 0)
            stop = False
        except Stopped:
            continue
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))


def test_a_model_that_stays_frozen_keeps_its_body(tmp_path):
    recipe = replace(TUNED, unfreeze=0, epochs=2)
    train(recipe, out=tmp_path, splits=few())
    model, stored = initial_model(recipe, (1, 28, 28), 10), checkpoint.load(tmp_path).tensors
    body = {name for name in model.state_dict() if not name.startswith(f"{len(model) - 1}.")}
    assert all(torch.equal(stored[f"model.{name}"], model.state_dict()[name]) for name in body)
    assert {name for name in stored if name.startswith("momentum.")} == {
        f"momentum.{len(model) - 1}.{name}" for name in ("weight", "bias")
    }


def test_set_training_tells_whether_other_parameters_train():
    model = initial_model(TUNED, (1, 28, 28), 10)
    assert [set_training(model, frozen=frozen) for frozen in (False, True, True, False)] == [False, True, False, True]
    set_training(model, frozen=True)
    assert [module.training for module in model] == [False] * (len(model) - 1) + [True]


def test_the_learning_rate_falls_from_the_head_to_the_first_layer():
    """The reference is a step of plain SGD by hand: each layer moves by its own rate times its gradient."""
    recipe = Recipe(model="wide_resnet-10-1", layer_decay=0.5, momentum=0.0, weight_decay=0.0, lr=0.1)
    state = new_state(recipe, (1, 8, 8), 3, torch.device("cpu"))
    before = [parameter.detach().clone() for parameter in state.model.parameters()]
    learner = Learner(state.model, 0.0, graphs=False)
    batch = type("Batch", (), {"inputs": torch.randn(6, 1, 8, 8), "targets": torch.eye(3).repeat(2, 1)})()
    lr = lr_at(recipe, 5, 10)
    take_step(state, learner, recipe, batch, lr)
    layers = find_layers(state.model)
    rates = {id(p): lr * 0.5 ** (len(layers) - 1 - i) for i, layer in enumerate(layers) for p in layer.parameters}
    for parameter, start in zip(state.model.parameters(), before, strict=True):
        torch.testing.assert_close(parameter.detach(), start - rates[id(parameter)] * parameter.grad)


def test_wrong_values_are_refused():
    with pytest.warns(UserWarning, match="so the head is trained on random features: set weights, e.g. to published"):
        warn_without_effect(TUNED, 4)
    with pytest.warns(UserWarning, match="unfreeze 2 has no effect in a run of 2 epochs: set a smaller one"):
        warn_without_effect(replace(TUNED, weights="published"), 2)
    warn_without_effect(replace(TUNED, model="some/text-model"), 4)
    warn_without_effect(replace(TUNED, weights="published"), 4)
    with pytest.raises(ValueError, match="freeze must be one of none, all but head, got 'head'"):
        Recipe(freeze="head")
    with pytest.raises(ValueError, match=r"layer_decay is out of range, got 0.0 \(allowed: \(0, 1\]\)"):
        Recipe(layer_decay=0.0)
    with pytest.raises(ValueError, match="unfreeze must be 0 unless freeze is 'all but head', got 3"):
        Recipe(unfreeze=3)
    assert not is_batchable(Recipe(model="mlp", policy="none", freeze="all but head"))
