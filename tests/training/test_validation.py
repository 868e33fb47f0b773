"""The best epoch by validation, and early stopping."""

from dataclasses import replace

import pytest
import torch
from sklearn import metrics as peer

import outspan
from outspan.comparison.grid import build_grid
from outspan.config import Recipe
from outspan.data.dataset import Data
from outspan.data.splits import InMemory
from outspan.data.stratify import hold_out
from outspan.training import Stopped, checkpoint
from outspan.training.ensemble import is_batchable
from outspan.training.train import train
from outspan.training.trained import load
from outspan.training.validation import has_stopped
from trained_runs import SMALL, equal, few, final, make_pairs

PATIENT = replace(SMALL, validation=40, patience=2, epochs=30, policy="uncertain", ema=0.9)


def rows(folder) -> list[float]:
    """Return the validation accuracy of each epoch."""
    return [row["validation_accuracy"] for row in final(folder)[1]["metrics"]]


def test_a_run_ends_when_the_best_epoch_is_patience_epochs_ago(tmp_path):
    summary = train(PATIENT, out=tmp_path, splits=few())
    values = rows(tmp_path)
    assert summary.stopped_early
    assert len(values) == len(summary.metrics) < 30
    best = values.index(max(values))
    assert len(values) == best + 1 + 2
    assert (summary.best.epoch, summary.best.validation_accuracy) == (best, max(values))
    assert summary.best.accuracy == summary.metrics[best]["test_accuracy"]
    assert (summary.steps, summary.epochs) == (8 * len(values), len(values))
    steps = []
    assert train(PATIENT, out=tmp_path, splits=few(), on_step=steps.append) == summary
    assert not steps
    assert load(tmp_path).is_finished


def test_the_best_weights_are_those_after_the_best_epoch(tmp_path):
    """The reference is the ordinary checkpoint after each epoch, and the accuracy of the loaded weights, computed anew."""
    after = {}

    def keep(progress):
        if progress.step % 8 == 0:
            after[progress.step // 8 - 1] = checkpoint.load(tmp_path).tensors

    recipe = replace(PATIENT, patience=0, epochs=5)
    summary = train(recipe, out=tmp_path, splits=(data := few()), save_every=0, on_step=keep)
    best, last = load(tmp_path, best=True), load(tmp_path)
    stored = checkpoint.read(tmp_path / checkpoint.BEST_FILE).tensors
    assert stored.keys() == after[summary.best.epoch].keys()
    assert all(torch.equal(tensor, after[summary.best.epoch][name]) for name, tensor in stored.items())
    assert best.is_best
    assert not last.is_best
    assert best.step == 8 * (summary.best.epoch + 1)
    assert outspan.evaluate(best, splits=data).accuracy == pytest.approx(summary.best.accuracy)
    assert outspan.evaluate(last, splits=data).accuracy == pytest.approx(summary.accuracy)


def test_a_run_stopped_after_every_step_stops_early_with_the_same_bits(tmp_path):
    train(PATIENT, out=tmp_path / "whole", splits=few())
    stop = True
    while stop:
        try:
            train(PATIENT, out=tmp_path / "parts", splits=few(), on_step=lambda progress: progress.step % 3 == 0)
            stop = False
        except Stopped:
            continue
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))
    best = [checkpoint.read(tmp_path / name / checkpoint.BEST_FILE) for name in ("whole", "parts")]
    assert all(torch.equal(best[0].tensors[name], best[1].tensors[name]) for name in best[0].tensors)
    assert best[0].metadata["metrics"] == best[1].metadata["metrics"]


@pytest.mark.parametrize("metric", ["macro_f1", "balanced_accuracy"])
def test_another_metric_chooses_the_best_epoch(metric, tmp_path):
    """The reference is scikit-learn's score of the loaded weights; a run that was stopped decides in the same way."""
    recipe, data = replace(PATIENT, best_metric=metric, epochs=6, lr=1.0), few()
    summary = train(recipe, out=tmp_path / "whole", splits=data)
    values = [row[f"validation_{metric}"] for row in summary.metrics]
    assert (summary.best.epoch, summary.best.metric, summary.best.score) == (values.index(max(values)), metric, max(values))
    assert summary.best.validation_accuracy == summary.metrics[summary.best.epoch]["validation_accuracy"]
    held_out = hold_out(data.train, recipe.validation, recipe.seed)[1]
    predicted = outspan.load(tmp_path / "whole", best=True).predict(held_out.images).probabilities.argmax(1)
    scores = {
        "macro_f1": peer.f1_score(held_out.labels, predicted, average="macro"),
        "balanced_accuracy": peer.balanced_accuracy_score(held_out.labels, predicted),
    }
    assert max(values) == pytest.approx(scores[metric], abs=1e-9)
    with pytest.raises(Stopped):
        train(recipe, out=tmp_path / "parts", splits=data, on_step=lambda progress: progress.step == 13)
    assert train(recipe, out=tmp_path / "parts", splits=data).best == summary.best


def test_a_metric_of_the_best_epoch_that_cannot_be_used_is_refused(tmp_path):
    with pytest.raises(ValueError, match="best_metric must be 'accuracy' for data without validation samples, got 'macro_f1'"):
        train(replace(SMALL, best_metric="macro_f1"), out=tmp_path, splits=few())
    with pytest.raises(ValueError, match="best_metric is for data with one label per sample, got 'macro_f1': leave it out"):
        train(replace(PATIENT, best_metric="macro_f1", policy="none"), out=tmp_path, splits=make_pairs())
    with pytest.raises(ValueError, match="best_metric must be the same for all points"):
        build_grid(Recipe(validation=5), {"best_metric": ["accuracy", "macro_f1"]})


def test_equal_accuracies_do_not_count_as_better():
    metrics = [{"validation_accuracy": value, "test_accuracy": 1.0} for value in (0.5, 0.6, 0.6)]
    assert not has_stopped(metrics[:2], 1)
    assert has_stopped(metrics, 1)
    assert not has_stopped(metrics, 2)
    assert not has_stopped(metrics, 0)
    assert not has_stopped([{"test_accuracy": 1.0}] * 9, 1)


def test_a_validation_split_of_the_data_is_used(tmp_path):
    data = few()
    split = InMemory(data.train.images[150:], data.train.labels[150:])
    splits = Data("digits", data.train.take(torch.arange(150)), data.test, data.classes, split)
    assert train(replace(PATIENT, validation=0, epochs=2), out=tmp_path, splits=splits).best is not None


def test_patience_and_best_weights_need_validation_samples(tmp_path):
    with pytest.raises(ValueError, match="patience must be 0 for data without validation samples, got 3: hold out samples"):
        train(replace(SMALL, patience=3), out=tmp_path / "none", splits=few())
    assert not (tmp_path / "none").exists()
    train(replace(SMALL, epochs=1), out=tmp_path / "run", splits=few())
    with pytest.raises(ValueError, match=r"has no weights of a best epoch \(best.safetensors\); they are kept if the run has"):
        load(tmp_path / "run", best=True)
    with pytest.raises(ValueError, match="no such folder"):
        load(tmp_path / "missing", best=True)


def test_a_damaged_file_of_the_best_weights_is_refused(tmp_path):
    train(replace(PATIENT, epochs=1), out=tmp_path, splits=few())
    path = tmp_path / checkpoint.BEST_FILE
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"best.safetensors: not a complete checkpoint"):
        load(tmp_path, best=True)


def test_comparisons_and_ensembles_do_not_stop_early(tmp_path):
    with pytest.raises(ValueError, match="patience must be 0 in a comparison, got 2"):
        outspan.compare(data="digits", model="mlp", policies="none", validation=100, patience=2, out=tmp_path)
    assert is_batchable(Recipe(model="mlp", policy="none"))
    assert not is_batchable(Recipe(model="mlp", policy="none", patience=1))
