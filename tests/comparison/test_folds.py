"""Cross-validation: the folds of the training samples, the runs on them, and what is said about their differences."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import outspan
from outspan.comparison.statistics import compute_differences
from outspan.comparison.stored import load_comparison
from outspan.config import Recipe
from outspan.data.stratify import with_fold
from outspan.training import Stopped
from trained_runs import equal, few, final

KEYS = {"data": "digits", "model": "mlp", "fraction": 0.02, "batch": 20, "epochs": 1, "folds": 3}

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_folds_of_a_recipe_cover_all_training_samples_once():
    data = few(100)
    splits = [with_fold(data, Recipe(folds=3, fold=fold)) for fold in range(3)]
    keys = [set(split.test.keys()) for split in splits]
    assert sum(map(len, keys)) == len(set.union(*keys)) == len(set(data.train.keys()))
    for split, tested in zip(splits, keys, strict=True):
        assert tested.isdisjoint(split.train.keys())
        assert len(split.train) == 66  # of 100 samples: the folds have 34, 33 and 33
        assert len(split.test) in (33, 34)


def test_the_margin_is_that_of_nadeau_and_bengio():
    values = np.random.Generator(np.random.Philox(0)).normal(0.8, 0.02, (2, 5))
    (difference,) = compute_differences({"a": values[0].tolist(), "b": values[1].tolist()}, unit="fold")
    by_fold = values[0] - values[1]
    error = by_fold.std(ddof=1) * np.sqrt(1 / 5 + 1 / 4)
    assert difference.margin == pytest.approx(stats.t.ppf(0.975, 4) * error)
    assert difference.p == pytest.approx(2 * stats.t.sf(abs(by_fold.mean()) / error, 4))


@pytest.mark.slow
def test_a_run_on_a_fold_is_a_run_like_any_other(tmp_path, run):
    out = tmp_path / "compared"
    result = outspan.compare(policies=["none", "random"], out=out, metric="macro_f1", **KEYS)
    recipe = Recipe(data="digits", model="mlp", policy="random", fraction=0.02, batch=20, epochs=1, folds=3, fold=1, seed=1)
    outspan.train(recipe, out=tmp_path / "alone")
    assert equal(final(tmp_path / "alone"), final(out / "random-1"))
    whole = outspan.data.sets.load_for(replace(recipe, folds=0, fold=0))
    for fold, accuracy in enumerate(result.policies["random"].accuracies):
        evaluation = outspan.evaluate(out / f"random-{fold}")
        assert evaluation.metrics.accuracy == accuracy
        assert evaluation.metrics == outspan.evaluate(out / f"random-{fold}", splits=whole).metrics
        assert evaluation.metrics.macro_f1 == result.policies["random"].values[fold]
    assert "that the run held out of digits" in run("evaluate", out / "random-1")
    assert load_comparison(out).differences == result.differences
    assert result.unit == "fold"
    page = outspan.report(out).read_text()
    assert "paired by fold" in page
    assert "3 seeds" not in page


def test_a_stopped_run_on_a_fold_resumes_to_the_same_bits(tmp_path):
    keys = {**KEYS, "policy": "random", "fold": 2}
    outspan.train(out=tmp_path / "whole", **keys)
    with pytest.raises(Stopped):
        outspan.train(out=tmp_path / "stopped", on_step=lambda progress: progress.step == 2, **keys)
    outspan.train(out=tmp_path / "stopped", **keys)
    assert equal(final(tmp_path / "whole"), final(tmp_path / "stopped"))
    with pytest.raises(ValueError, match=r"contains a run of another recipe \(fold 2 there, 1 requested\)"):
        outspan.train(out=tmp_path / "stopped", **{**keys, "fold": 1})


def test_folds_at_equal_time_get_the_same_number_of_steps(tmp_path):
    # 66 samples are 4 batches per epoch.
    times = {"none": 1.0, "random": 2.0}
    result = outspan.compare(policies="none,random", out=tmp_path, equal="time", step_seconds=times, **{**KEYS, "epochs": 4})
    assert [(one.steps, len(one.values)) for one in result.policies.values()] == [(16, 3), (8, 3)]


def test_tensors_are_divided_into_folds(tmp_path):
    data = few(60)
    keys = {"data": "digits", "model": "mlp", "policy": "none", "epochs": 1, "batch": 20, "folds": 3, "fold": 1}
    summary = outspan.train(splits=data, out=tmp_path, **keys)
    assert summary.steps == 2
    assert outspan.evaluate(tmp_path, splits=data).metrics.accuracy == summary.accuracy
    assert int(outspan.evaluate(tmp_path, splits=data).confusion.sum()) == 20


def test_wrong_folds_are_refused(tmp_path):
    for keys, problem in (
        ({"folds": 3, "fold": 3}, "fold must be below folds, 3, got 3"),
        ({"folds": 1}, r"folds is out of range, got 1 \(allowed: 2 to 1,000, or 0\)"),
        ({"fold": 1}, "fold must be below folds"),
        ({"folds": 500, "fraction": 0.05}, "folds must be at most the number of training samples, 256, got 500"),
    ):
        with pytest.raises(ValueError, match=problem):
            outspan.train(data="digits", model="mlp", out=tmp_path, **keys)
    with pytest.raises(ValueError, match="seeds must be left out with folds, got seeds=3 and folds=3: run i of a policy"):
        outspan.compare(seeds=3, out=tmp_path, **KEYS)
    with pytest.raises(ValueError, match="compare sets fold itself"):
        outspan.compare(out=tmp_path, fold=1, **KEYS)
    labels = replace(few(20), train=few(20).train.take(torch.arange(20)))
    with pytest.warns(UserWarning, match=r"fewer samples than folds, 15, in the classes '0', '1', '2', '3', '4', …: use fewer"):
        with_fold(labels, Recipe(folds=15))


def test_a_class_with_as_many_samples_as_folds_draws_no_warning(tmp_path):
    """Not even when the run is evaluated or reported: its training split has fewer samples of the class."""
    images = few(33).train.images
    np.savez(tmp_path / "a.npz", x_train=images, y_train=[0] * 20 + [1] * 13, x_test=images, y_test=[0, 1, 0] * 11)
    outspan.train(**{**KEYS, "data": str(tmp_path / "a.npz"), "fraction": 1, "folds": 13}, policy="none", out=tmp_path / "run")
    assert "Accuracy by class" in outspan.report(tmp_path / "run").read_text()
    with pytest.warns(UserWarning, match="fewer samples than folds, 14, in the class '1': use fewer folds"):
        outspan.data.sets.load_for(Recipe(data=str(tmp_path / "a.npz"), folds=14))


@pytest.mark.slow
def test_folds_in_several_processes_are_those_of_one(tmp_path):
    one = outspan.compare(policies="none,random", out=tmp_path / "one", **KEYS)
    two = outspan.compare(policies="none,random", out=tmp_path / "two", jobs=2, **KEYS)
    assert [policy.accuracies for policy in one.policies.values()] == [policy.accuracies for policy in two.policies.values()]
