"""The folder of a run: the files that are read, written and removed."""

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


def test_a_trained_model_has_the_accuracy_of_its_run(tmp_path):
    """A model in training mode would give other results, because of its batch normalization.

    Single images are summed in another order than a batch, so one prediction of 100 may change.
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


def test_a_finished_run_is_not_trained_again(tmp_path):
    first = train(SMALL, out=tmp_path, splits=few())
    steps = []
    again = train(SMALL, out=tmp_path, splits=few(), on_step=steps.append)
    assert not steps
    (tmp_path / "metrics.jsonl").unlink()  # as after a kill just after the final checkpoint
    train(SMALL, out=tmp_path, splits=few())
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 3
    assert (again.accuracy, again.loss, again.metrics) == (first.accuracy, first.loss, first.metrics)


def test_a_finished_run_can_be_read_from_a_read_only_folder(tmp_path, monkeypatch):
    finished = train(replace(SMALL, epochs=1), out=tmp_path, splits=few())
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}

    def refuse(path, *_, **__):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    read_only = SimpleNamespace(**{**vars(os), "open": refuse, "replace": refuse, "access": lambda *_: False})
    monkeypatch.setattr(lock, "os", read_only)
    monkeypatch.setattr(files, "os", read_only)
    assert train(replace(SMALL, epochs=1), out=tmp_path, splits=few(), track="tensorboard") == finished
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_a_refused_process_does_not_change_the_files_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "patience", 0.0)
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


def test_files_of_a_run_killed_before_its_first_checkpoint_are_removed(tmp_path):
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
            raise KeyboardInterrupt  # like a kill: nothing is saved

    return on_step
