"""The folder of a run: what is read, written and removed."""

import errno
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from outspan import files
from outspan.training import Stopped, compositions, lock
from outspan.training.train import train
from outspan.training.trained import load as load_model
from trained_runs import SMALL, few


def test_a_trained_model_says_what_the_run_did(tmp_path):
    """Batch normalisation tells: a model that still trains would go by the batch.

    Images one by one are summed in another order than in a batch, so a prediction on the border may change: one of 100 may.
    """
    done = train(replace(SMALL, model="convnet"), out=tmp_path, splits=(data := few(100)))
    trained = load_model(tmp_path)
    with torch.no_grad():
        alone = torch.cat([trained.model(trained.preprocess(data.test.images[i : i + 1])) for i in range(len(data.test))])
    assert (alone.argmax(1) == data.test.labels).double().mean() == pytest.approx(done.accuracy, abs=0.011)


def test_every_chosen_image_is_counted(tmp_path):
    train(replace(SMALL, policy="uncertain", keep=2, epochs=2), out=tmp_path, splits=few())
    for epoch, line in enumerate(compositions.read(tmp_path)):
        assert line["epoch"] == epoch
        assert sum(entry["count"] for entry in line["compositions"].values()) == 2 * 200
        assert all(entry["loss"] >= 0 for entry in line["compositions"].values())


def test_a_finished_run_is_not_run_again(tmp_path):
    first = train(SMALL, out=tmp_path, splits=few())
    steps = []
    again = train(SMALL, out=tmp_path, splits=few(), on_step=steps.append)
    assert not steps
    (tmp_path / "metrics.jsonl").unlink()  # as a kill after the last checkpoint would
    train(SMALL, out=tmp_path, splits=few())
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 3
    assert (again.accuracy, again.loss, again.metrics) == (first.accuracy, first.loss, first.metrics)


def test_a_finished_run_can_be_read_where_nothing_can_be_written(tmp_path, monkeypatch):
    finished = train(replace(SMALL, epochs=1), out=tmp_path, splits=few())
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}

    def refuse(path, *_, **__):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    read_only = SimpleNamespace(**{**vars(os), "open": refuse, "replace": refuse, "access": lambda *_: False})
    monkeypatch.setattr(lock, "os", read_only)
    monkeypatch.setattr(files, "os", read_only)
    assert train(replace(SMALL, epochs=1), out=tmp_path, splits=few(), tensorboard=True) == finished
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_a_process_that_is_refused_leaves_the_files_of_the_run_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_PATIENCE", 0.0)
    with pytest.raises(Stopped):
        train(SMALL, out=tmp_path, splits=few(), on_step=lambda progress: progress.step == 15)
    (tmp_path / "metrics.jsonl").write_text("what the run that is under way wrote since\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for recipe in (SMALL, replace(SMALL, lr=0.7)):
        with lock.locked(tmp_path), pytest.raises(ValueError, match="another process is training there"):
            train(recipe, out=tmp_path, splits=few())
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "new").mkdir()
    with lock.locked(tmp_path / "new"), pytest.raises(ValueError, match="another process is training there"):
        train(SMALL, out=tmp_path / "new", splits=few())
    assert [path.name for path in (tmp_path / "new").iterdir()] == [".lock"]


def test_what_a_run_left_that_was_killed_before_it_saved_is_void(tmp_path):
    chosen = replace(SMALL, policy="uncertain")
    with pytest.raises(KeyboardInterrupt):
        train(chosen, out=tmp_path, splits=few(), on_step=interrupt_at(25))
    assert (tmp_path / compositions.FILE).exists()
    left = []
    train(replace(SMALL, epochs=1), out=tmp_path, splits=few(), on_begin=lambda _: left.extend(tmp_path.glob("*.jsonl")))
    assert not left
    assert not (tmp_path / compositions.FILE).exists()
    assert 'policy = "none"' in (tmp_path / "recipe.toml").read_text()
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 1


def interrupt_at(step: int):
    def on_step(progress):
        if progress.step == step:
            raise KeyboardInterrupt  # as a kill: nothing is saved

    return on_step
