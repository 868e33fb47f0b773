"""The training loop: it learns, and a run that is stopped at any step resumes to bit-identical weights."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from made import make_folder
from outspan.data.sets import Data
from outspan.policies.table import POLICIES
from outspan.training import Stopped
from outspan.training import run as run_module
from outspan.training.logits import accuracy
from outspan.training.train import train
from trained_runs import SMALL, equal, few, final, load_run, published


def test_the_loop_learns_digits(tmp_path):
    summary = train(replace(SMALL, epochs=4, batch=64), out=tmp_path)
    assert summary.accuracy > 0.85
    assert len(summary.metrics) == 4
    assert summary.accuracy == summary.metrics[-1]["test_accuracy"]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 4
    run, tested = load_run(tmp_path)
    assert accuracy(run.model, tested.split, run.preprocess, "cpu") == summary.accuracy
    assert run.recipe.epochs == 4


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_trains(policy, tmp_path):
    recipe = replace(SMALL, **published(tmp_path, policy), epochs=1, defaults="cifar")
    summary = train(recipe, out=tmp_path / "run", splits=few(40))
    assert math.isfinite(summary.loss)


def test_a_run_stopped_after_every_step_has_the_same_result(tmp_path):
    """29 stops in a run of 30 steps, with batch normalization, selection and mixing."""
    recipe = replace(SMALL, policy="uncertain", select="proportional", defaults="cifar", model="convnet", validation=20)
    data = few(220)
    train(recipe, out=tmp_path / "whole", splits=data)
    stops = 0
    while True:
        try:
            train(recipe, out=tmp_path / "parts", splits=data, on_step=lambda progress: True)
            break
        except Stopped:
            stops += 1
    assert stops == 29
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))
    for file in ("compositions.jsonl", "metrics.jsonl"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "parts" / file).read_bytes()


@pytest.mark.parametrize("model", ["shake_shake-26-2x4d", "pyramidnet-11-8"])
def test_random_numbers_of_a_model_are_the_same_after_a_stop(model, tmp_path):
    recipe = replace(SMALL, model=model, epochs=1)
    train(recipe, out=tmp_path / "whole", splits=few(60))
    with pytest.raises(Stopped):
        train(recipe, out=tmp_path / "parts", splits=few(60), on_step=lambda progress: progress.step == 1)
    train(recipe, out=tmp_path / "parts", splits=few(60))
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))


def test_the_adversary_is_the_same_after_every_stop(tmp_path):
    """12 steps, which are three rounds of the controller, stopped after each step."""
    recipe = replace(SMALL, policy="adversarial", adversaries=3, controller_lr=0.05, model="convnet", defaults="cifar")
    train(recipe, out=tmp_path / "whole", splits=few(80))
    while True:
        try:
            train(recipe, out=tmp_path / "parts", splits=few(80), on_step=lambda progress: True)
            break
        except Stopped:
            continue
    whole = final(tmp_path / "whole")
    assert equal(whole, final(tmp_path / "parts"))
    assert int(whole[0]["policy.adam.step.lstm.weight_hh"]) == 3


def test_auto_is_the_same_after_every_stop(tmp_path):
    """110 steps of 55 epochs, so that it starts at full strength; stopped within and between its rounds of two steps."""
    recipe = replace(SMALL, policy="auto", steps=110, finish=0.2, ema=0.9, model="convnet", transforms="paper16")
    train(recipe, out=tmp_path / "whole", splits=few(40))
    while True:
        try:
            train(recipe, out=tmp_path / "parts", splits=few(40), on_step=lambda progress: progress.step % 7 == 0)
            break
        except Stopped:
            continue
    whole = final(tmp_path / "whole")
    assert equal(whole, final(tmp_path / "parts"))
    assert (tmp_path / "whole" / "metrics.jsonl").read_bytes() == (tmp_path / "parts" / "metrics.jsonl").read_bytes()
    assert float(whole[0]["policy.adapted"][0]) > 0


def test_a_run_of_a_number_of_steps_may_end_within_an_epoch(tmp_path):
    data = few(60)  # 3 steps per epoch
    summary = train(replace(SMALL, steps=7), out=tmp_path / "whole", splits=data)
    assert (summary.steps, summary.epochs) == (7, pytest.approx(7 / 3))
    assert [row["step"] for row in summary.metrics] == [3, 6, 7]
    with pytest.raises(Stopped, match="stopped at step 4 of 7"):
        train(replace(SMALL, steps=7), out=tmp_path / "parts", splits=data, on_step=lambda progress: progress.step == 4)
    again = train(replace(SMALL, steps=7), out=tmp_path / "parts", splits=data)
    assert again.metrics == summary.metrics
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))
    by_epochs = train(replace(SMALL, epochs=2), out=tmp_path / "epochs", splits=data)
    by_steps = train(replace(SMALL, epochs=9, steps=6), out=tmp_path / "steps", splits=data)
    assert by_steps.metrics == by_epochs.metrics
    one, other = (final(tmp_path / name)[0] for name in ("epochs", "steps"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_evaluation_does_not_count_as_training_time(tmp_path, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(run_module, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def evaluate(*arguments) -> float:
        clock.now += 100.0
        return 0.5

    def on_step(progress) -> None:
        clock.now += 1.0

    monkeypatch.setattr(run_module, "accuracy", evaluate)
    summary = train(replace(SMALL, epochs=2), out=tmp_path, splits=few(60), on_step=on_step)
    assert summary.seconds == 5  # the checkpoint is written before the last call of on_step


def test_a_folder_of_images_trains_like_the_same_images_in_memory(tmp_path):
    data = few(60)
    listed = {}
    for name, split in (("train", data.train), ("val", data.test)):
        for i, (image, label) in enumerate(zip(split.images, split.labels.tolist(), strict=True)):
            path = tmp_path / "set" / name / str(label) / f"{i:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[0].numpy()).save(path)
        listed[name] = torch.cat([(split.labels == label).nonzero() for label in range(10)]).squeeze(1)
    memory = Data("set", data.train.take(listed["train"]), data.test.take(listed["val"]), data.classes)
    recipe = replace(SMALL, policy="uncertain", data=str(tmp_path / "set"), size=28, validation=10)
    train(recipe, out=tmp_path / "folder")
    train(recipe, out=tmp_path / "memory", splits=memory)
    checkpoints = [final(tmp_path / name) for name in ("folder", "memory")]
    for _, meta in checkpoints:
        del meta["data"]["train_digest"], meta["data"]["test_digest"]  # digests of names, and of pixels
        meta["data"].pop("decoding", None)  # of files
    assert equal(*checkpoints)


def test_a_folder_cropped_by_workers_resumes_to_identical_bits(tmp_path):
    make_folder(tmp_path / "set", train=6)
    recipe = replace(SMALL, data=str(tmp_path / "set"), size=16, batch=4, epochs=2, crop="resized", policy="baseline")
    train(recipe, out=tmp_path / "whole")
    with pytest.raises(Stopped):
        train(recipe, out=tmp_path / "parts", on_step=lambda progress: progress.step == 4)
    train(recipe, out=tmp_path / "parts")
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))
    centred = train(replace(recipe, crop="centre"), out=tmp_path / "centred")
    assert centred.loss != train(recipe, out=tmp_path / "whole").loss
    with pytest.raises(ValueError, match="crop 'resized' is for an image folder"):
        train(replace(SMALL, crop="resized"), out=tmp_path / "digits")


def test_a_number_of_unreadable_images_is_allowed(tmp_path):
    make_folder(tmp_path / "set", train=6)
    bad = tmp_path / "set" / "train" / "n01440764" / "n01440764_2.JPEG"
    bad.write_bytes(bad.read_bytes()[:100])
    recipe = replace(SMALL, data=str(tmp_path / "set"), size=16, batch=4, epochs=1)
    with pytest.raises(ValueError, match=r"n01440764_2\.JPEG: cannot be read as an image"):
        train(recipe, out=tmp_path / "none")
    with pytest.warns(UserWarning, match=r"n01440764_2\.JPEG: cannot be read"):
        summary = train(recipe, out=tmp_path / "run", skip_bad=1)
    assert math.isfinite(summary.loss)
    for path in (tmp_path / "set" / "val" / "n01440764").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match="n01440764: an empty or missing class folder"):
        train(recipe, out=tmp_path / "none")
