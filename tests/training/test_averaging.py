"""The average of the weights: its formula, checkpoints, and evaluation."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import outspan
from outspan import Recipe, Stopped, train
from outspan.data.sets import load_for
from outspan.training import checkpoint
from outspan.training.averaging import Average, decay_at
from outspan.training.setup import Options, build_setup

RECIPE = Recipe(data="digits", model="convnet", policy="random", fraction=0.02, batch=25, epochs=3, ema=0.9)


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def test_the_average_follows_its_recursion_and_integer_buffers_are_copied():
    model = make_model()
    average, expected = Average(model, 0.9), copy.deepcopy(model.state_dict())
    for step in range(30):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn_like(parameter)
        model(torch.randn(8, 4))  # changes the statistics of the batch normalization
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                expected[name] = decay * expected[name].double() + (1 - decay) * tensor.double()
    for name, tensor in average.state_dict().items():
        if name.endswith("num_batches_tracked"):
            assert tensor == 30
        else:
            torch.testing.assert_close(tensor.double(), expected[name], rtol=1e-5, atol=1e-5)
    assert not average.model.training
    assert not any(parameter.requires_grad for parameter in average.model.parameters())


def test_tied_weights_are_averaged_once():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    average = Average(model, 0.5)
    before = average.model[0].weight.clone()
    with torch.no_grad():
        model[0].weight += 1
    average.update(1_000)
    torch.testing.assert_close(average.model[0].weight, before + 0.5)


def test_a_model_that_is_moved_is_still_averaged():
    model = make_model()
    model.register_buffer("scale", torch.zeros(1), persistent=False)
    average = Average(model, 0.5)
    for one in (model, average.model):
        one.double()  # replaces the tensors
    with torch.no_grad():
        model.scale.fill_(4)
        for parameter in model.parameters():
            parameter.fill_(7)
    for _ in range(100):
        average.update(1_000)
    assert all(bool((parameter == 7).all()) for parameter in average.model.parameters())
    assert average.model.scale == 4


def test_the_decay_rises_to_its_value():
    decays = [decay_at(step, 0.999) for step in range(20_000)]
    assert decays == sorted(decays)
    assert decays[0] == 0.1
    assert decays[-1] == 0.999


@pytest.mark.parametrize("decay", [1.0, -0.1, float("nan"), "0.9", None])
def test_a_decay_out_of_range_is_refused(decay, unchecked):
    with pytest.raises(ValueError, match=r"decay must be a number in \[0, 1\), got"):
        Average(nn.Linear(1, 1), decay)
    with pytest.raises(ValueError, match="model must be a torch module, got str"):
        Average("mlp", 0.9)
    message = (
        r"is out of range, got .* \(allowed: \[0, 1\)\)" if isinstance(decay, float) else f"must be a number, got {decay!r}"
    )
    with pytest.raises(ValueError, match=f"ema {message}"):
        Recipe(ema=decay)


def test_the_average_is_evaluated_and_does_not_change_training(tmp_path, one_thread):
    summary = train(RECIPE, out=tmp_path / "ema", device="cpu")
    train(replace(RECIPE, ema=0.0), out=tmp_path / "plain", device="cpu")
    with_ema, plain = (checkpoint.load(tmp_path / name).tensors for name in ("ema", "plain"))
    for name, tensor in plain.items():
        assert torch.equal(tensor, with_ema[name])
    run = outspan.load(tmp_path / "ema")
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, with_ema[f"ema.{name}"])
    assert any(not torch.equal(with_ema[f"ema.{name}"], with_ema[f"model.{name}"]) for name in run.model.state_dict())
    assert outspan.evaluate(run, device="cpu").accuracy == summary.accuracy


@pytest.mark.parametrize("stop", [1, 7])
def test_a_run_with_average_finish_and_strength_resumes_to_the_same_bits(stop, tmp_path, one_thread):
    recipe = replace(RECIPE, policy="uncertain", strength=0.7, finish=0.4, candidates=2)
    train(recipe, out=tmp_path / "whole", device="cpu")
    with pytest.raises(Stopped):
        train(recipe, out=tmp_path / "halves", device="cpu", on_step=lambda progress: progress.step == stop)
    train(recipe, out=tmp_path / "halves", device="cpu")
    whole, halves = (checkpoint.load(tmp_path / name) for name in ("whole", "halves"))
    assert whole.tensors.keys() == halves.tensors.keys()
    assert all(torch.equal(tensor, halves.tensors[name]) for name, tensor in whole.tensors.items())
    assert whole.metadata["metrics"] == halves.metadata["metrics"]


def test_candidates_are_scored_with_the_current_weights():
    recipe = replace(RECIPE, policy="uncertain")
    setup = build_setup(recipe, load_for(recipe), Options(torch.device("cpu")))
    assert setup.policy.model is setup.state.model
    assert setup.eval_model is setup.state.average.model


def test_a_checkpoint_without_the_average_is_refused(tmp_path):
    setup = build_setup(RECIPE, load_for(RECIPE), Options(torch.device("cpu")))
    tensors = checkpoint.pack(setup.state.model, setup.state.optimizer)
    with pytest.raises(ValueError, match=r"the checkpoint has no tensor 'ema\."):
        checkpoint.check_tensors(tensors, setup.state.model, torch.optim.SGD(setup.state.model.parameters()), setup.eval_model)
