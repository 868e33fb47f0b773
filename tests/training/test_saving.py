"""Saving: how often checkpoints are saved, and that their weights are finite."""

from dataclasses import replace

import pytest

from outspan.training import checkpoint, saving
from outspan.training.train import train
from trained_runs import SMALL, few


def test_slow_saves_are_less_frequent(tmp_path, monkeypatch):
    """With a mock clock: a step takes one second, and so does a save."""
    clock, saves = [0.0], []
    monkeypatch.setattr(saving.time, "perf_counter", lambda: clock[0])

    def tick(progress: dict) -> None:
        clock[0] += 1.0

    def slowly(folder, tensors, metadata) -> None:
        saves.append(metadata["step"])
        clock[0] += 1.0

    monkeypatch.setattr(checkpoint, "save", slowly)
    train(replace(SMALL, epochs=1, batch=5), out=tmp_path, splits=few(), save_every=0.001, on_step=tick)
    assert saves == [2, 22, 40]  # the first; after at least 20 times the duration of a save; the end


def test_checkpoints_are_saved_at_the_requested_interval(tmp_path, monkeypatch):
    clock, steps = [0.0], []
    monkeypatch.setattr(saving.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(checkpoint, "save", lambda folder, tensors, metadata: steps.append(metadata["step"]))

    def tick(progress: dict) -> None:
        clock[0] += 1.0  # an epoch has ten steps and takes ten seconds

    train(replace(SMALL, epochs=7), out=tmp_path, splits=few(), save_every=25.0, on_step=tick)
    assert steps == [26, 51, 70]


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    with pytest.raises(ValueError, match=r"the loss is (nan|inf) at step \d+, epoch \d+"):
        train(replace(SMALL, lr=1e6, warmup=0.0, epochs=30, schedule="constant"), out=tmp_path, splits=few())
    recipe = replace(SMALL, lr=1e6, batch=200, warmup=0.0, epochs=50, schedule="constant")
    with pytest.raises(ValueError, match=r"not finite|the loss is"):  # one step per epoch: a save comes before the next loss
        train(recipe, out=tmp_path / "b", splits=few(), save_every=0.0)
    stored = checkpoint.load(tmp_path / "b")
    assert stored is not None
    assert all(tensor.isfinite().all() for tensor in stored[0].values())
