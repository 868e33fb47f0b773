"""The loop: it learns, it resumes to the bit from anywhere, and it refuses what it cannot run."""

import math
from dataclasses import replace

import pytest
import torch

from outspan.config import Recipe
from outspan.data.sets import Data, Split, load
from outspan.policies.named import POLICIES
from outspan.train import Stopped, checkpoint
from outspan.train.loop import accuracy, hold_out, load_run, lr_at, train

SMALL = Recipe(data="digits", model="mlp", policy="none", epochs=3, batch=20, transforms="geometric")


def few(count: int = 200) -> Data:
    digits = load("digits")
    return Data(
        "digits",
        Split(digits.train.images[:count], digits.train.labels[:count]),
        Split(digits.test.images[:100], digits.test.labels[:100]),
        digits.classes,
    )


def final(folder) -> tuple[dict, dict]:
    tensors, meta = checkpoint.load(folder)
    return tensors, {key: value for key, value in meta.items() if key != "seconds"}


def equal(one: tuple[dict, dict], other: tuple[dict, dict]) -> bool:
    assert one[1] == other[1]
    return one[0].keys() == other[0].keys() and all(torch.equal(one[0][name], other[0][name]) for name in one[0])


def test_it_learns_digits(tmp_path):
    summary = train(replace(SMALL, epochs=4, batch=64), out=tmp_path)
    assert summary.accuracy > 0.85
    assert len(summary.metrics) == 4
    assert summary.accuracy == summary.metrics[-1]["test_accuracy"]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 4
    recipe, model, data, last = load_run(tmp_path)
    assert accuracy(model, data.test, last, "cpu") == summary.accuracy
    assert recipe.epochs == 4


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_trains(policy, tmp_path):
    summary = train(replace(SMALL, policy=policy, epochs=1, defaults="cifar"), out=tmp_path, data=few(40))
    assert math.isfinite(summary.loss)


def test_stopped_after_every_step_it_ends_the_same(tmp_path):
    """29 stops in a run of 30 steps, with batch normalisation, selection and mixing in it."""
    recipe = replace(SMALL, policy="uncertain", select="proportional", defaults="cifar", model="convnet", validation=20)
    data = few(220)
    train(recipe, out=tmp_path / "whole", data=data)
    stops = 0
    while True:
        try:
            train(recipe, out=tmp_path / "parts", data=data, on_step=lambda progress: True)
            break
        except Stopped:
            stops += 1
    assert stops == 29
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))


def test_a_finished_run_is_not_run_again(tmp_path):
    first = train(SMALL, out=tmp_path, data=few())
    steps = []
    again = train(SMALL, out=tmp_path, data=few(), on_step=steps.append)
    assert not steps
    assert (again.accuracy, again.loss, again.metrics) == (first.accuracy, first.loss, first.metrics)


def test_a_folder_of_another_recipe_is_refused(tmp_path):
    train(replace(SMALL, epochs=1), out=tmp_path, data=few(40))
    with pytest.raises(ValueError, match=r"a run of another recipe \(lr 0.1 there, 0.5 asked\)"):
        train(replace(SMALL, epochs=1, lr=0.5), out=tmp_path, data=few(40))


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    with pytest.raises(ValueError, match=r"the loss is (nan|inf) at step \d+, epoch \d+"):
        train(replace(SMALL, lr=1e6, warmup=0.0, epochs=30, schedule="constant"), out=tmp_path, data=few())
    with pytest.raises(ValueError, match=r"not finite|the loss is"):  # one step an epoch: a save comes before the next loss
        train(replace(SMALL, lr=1e6, batch=200, warmup=0.0, epochs=50, schedule="constant"), out=tmp_path / "b", data=few())
    found = checkpoint.load(tmp_path / "b")
    assert found is not None
    assert all(tensor.isfinite().all() for tensor in found[0].values())


def test_validation_is_in_no_statistic(tmp_path):
    data = few()
    train(replace(SMALL, epochs=1, validation=50), out=tmp_path, data=data)
    kept, _ = hold_out(data.train, 50, 0)
    assert checkpoint.load(tmp_path)[1]["data"]["mean"] == pytest.approx([float(kept.images.double().mean() / 255)])


def test_changed_data_is_refused(tmp_path):
    train(replace(SMALL, epochs=1), out=tmp_path, data=few(40))
    with pytest.raises(ValueError, match="the data has changed since"):
        train(replace(SMALL, epochs=1), out=tmp_path, data=few(60))


def test_another_number_of_threads_is_warned_of(tmp_path):
    train(replace(SMALL, epochs=1), out=tmp_path, data=few(40))
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        with pytest.warns(UserWarning, match="it will not end to the bit the same"):
            train(replace(SMALL, epochs=1), out=tmp_path, data=few(40))
    finally:
        torch.set_num_threads(before)


def test_schedules_by_hand():
    recipe = Recipe(lr=1.0, warmup=0.1, schedule="cosine")
    assert lr_at(recipe, 0, 100) == pytest.approx(1 / 11)
    assert lr_at(recipe, 10, 100) == 1.0
    assert lr_at(recipe, 55, 100) == pytest.approx(0.5)
    steps = replace(recipe, schedule="multistep", warmup=0.0)
    assert [lr_at(steps, step, 100) for step in (0, 29, 30, 60, 80)] == pytest.approx([1, 1, 0.1, 0.01, 0.001])
    assert lr_at(replace(recipe, schedule="constant"), 70, 100) == 1.0


def test_what_is_held_out_is_not_trained_on():
    split = Split(torch.arange(50, dtype=torch.uint8).view(50, 1, 1, 1), torch.arange(50))
    kept, held = hold_out(split, 10, 3)
    assert sorted([*kept.labels.tolist(), *held.labels.tolist()]) == list(range(50))
    assert len(held) == 10
    with pytest.raises(ValueError, match="validation must be below the 50 train images, got 50"):
        hold_out(split, 50, 0)


def test_weights_decay_and_biases_do_not():
    from outspan.train.loop import _start

    state = _start(replace(SMALL, model="convnet", weight_decay=0.3), few(40), torch.device("cpu"))
    decay = {id(p): group["weight_decay"] for group in state.optimizer.param_groups for p in group["params"]}
    for name, parameter in state.model.named_parameters():
        assert decay[id(parameter)] == (0.3 if parameter.ndim > 1 else 0.0), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "uncertian"}, "unknown policy 'uncertian', did you mean 'uncertain'"),
        ({"model": "mpl"}, "unknown model 'mpl', did you mean 'mlp'"),
        ({"data": "digit"}, "unknown data set 'digit', did you mean 'digits'"),
        ({"policy": "random", "transforms": "rotat"}, "did you mean 'rotate'"),
        ({"defaults": "mnist"}, "defaults must be a proposal or one of"),
    ],
)
def test_unknown_names_are_refused(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(replace(SMALL, **change), out=tmp_path)
