"""Samples with several labels: metrics, mixing, training, evaluation and prediction."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as peer

import outspan
from outspan.config import Recipe
from outspan.data.sets import Data
from outspan.data.splits import InMemory
from outspan.policies.fits import MultiLabelFits
from outspan.training import Stopped
from outspan.training.label_metrics import compute_label_intervals, compute_label_metrics, scores_by_label
from outspan.training.train import train
from trained_runs import SMALL, final, make_pairs

MULTI = replace(SMALL, batch=32, epochs=4)


@pytest.mark.parametrize("seed", range(200))
def test_metrics_are_those_of_scikit_learn(seed):
    draw = np.random.Generator(np.random.Philox(seed))
    size, classes = int(draw.integers(1, 60)), int(draw.integers(2, 8))
    labels = draw.random((size, classes)) < draw.random()
    probabilities = np.round(draw.random((size, classes)), int(draw.integers(1, 4)))  # with ties
    ours = compute_label_metrics(torch.from_numpy(probabilities), torch.from_numpy(labels))
    predicted, occurs = probabilities > 0.5, np.flatnonzero(labels.any(0))
    present = np.flatnonzero(labels.any(0) | predicted.any(0))
    assert ours.accuracy == pytest.approx(peer.accuracy_score(labels, predicted), abs=1e-9)
    assert ours.label_accuracy == pytest.approx(1 - peer.hamming_loss(labels, predicted), abs=1e-9)
    micro = peer.f1_score(labels, predicted, average="micro", zero_division=0)
    assert ours.micro_f1 == pytest.approx(micro, abs=1e-9)
    if len(present):
        macro = peer.f1_score(labels, predicted, average="macro", labels=present, zero_division=0)
        assert ours.macro_f1 == pytest.approx(macro, abs=1e-9)
    areas = {i: peer.average_precision_score(labels[:, i], probabilities[:, i]) for i in occurs.tolist()}
    assert ours.map == (pytest.approx(np.mean(list(areas.values())), abs=1e-9) if areas else None)
    for i, scores in enumerate(scores_by_label(torch.from_numpy(probabilities), torch.from_numpy(labels))):
        assert scores.average_precision == (pytest.approx(areas[i], abs=1e-9) if i in areas else None)
        assert scores.support == labels[:, i].sum()


def test_an_interval_holds_the_metric():
    torch.manual_seed(0)
    labels = torch.rand(300, 4) < 0.3
    probabilities = (0.5 * torch.rand(300, 4) + 0.4 * labels).double()
    values, intervals = compute_label_metrics(probabilities, labels), compute_label_intervals(probabilities, labels, draws=100)
    for name, (low, high) in intervals.items():
        assert low < getattr(values, name) < high


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_labels_are_mixed_as_pixels_are(seed):
    """The images have the labels as pixels, so mixup must do the same with both, up to rounding of bytes."""
    torch.manual_seed(seed)
    labels = torch.rand(6, 4) < 0.5
    images = (labels.to(torch.uint8) * 255).view(6, 1, 1, 4).expand(6, 1, 4, 4).contiguous()
    policy = outspan.Plain(outspan.mixup(), classes=4, seed=seed % 1000)
    batch = policy(images, labels, step=0)
    torch.testing.assert_close(batch.inputs[:, 0, 0], batch.targets, atol=0.02, rtol=0)


def test_multi_hot_labels_of_another_type_are_refused():
    images = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
    message = r"soft labels must be probabilities .* got row 0 with the sum 2: for several labels per sample pass multi-hot"
    with pytest.raises(ValueError, match=message):
        outspan.Plain(outspan.mixup(), classes=3)(images, torch.tensor([[1, 1, 0], [0, 0, 1]]), step=0)


def test_multi_hot_labels_and_a_loss_for_one_label_are_refused():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
    images, labels = torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=re.escape("the labels are multi-hot: pass loss=torch.nn.BCEWithLogitsLoss()")):
        outspan.Uncertain(model, outspan.uniform())(images, labels, step=0)
    outspan.Uncertain(model, outspan.uniform(), loss=torch.nn.BCEWithLogitsLoss(), score="excess")(images, labels, step=0)
    auto = {"epochs": 2, "steps": 10, "classes": 3}
    with pytest.raises(ValueError, match=r"multi_label must be True for labels of torch\.bool: pass it to Auto"):
        outspan.Auto(outspan.natural(), **auto)(images, labels, step=0)
    with pytest.raises(ValueError, match=r"multi_label must be False for labels of torch\.int64"):
        outspan.Auto(outspan.natural(), multi_label=True, **auto)(images, torch.tensor([0, 1]), step=0)


def test_the_fit_of_predicting_frequencies_is_chance():
    """A model that predicts the frequency of each label has learned nothing, and one that is right everything."""
    torch.manual_seed(0)
    frequency = torch.tensor([0.5, 0.1, 0.02, 0.3])
    for perfect in (False, True):
        fits = MultiLabelFits(4, 0.0)
        for _ in range(20):
            targets = (torch.rand(500, 4) < frequency).float()
            prediction = targets if perfect else frequency.expand_as(targets)
            losses = torch.nn.functional.binary_cross_entropy(prediction, targets, reduction="none").sum(1)
            fits.add(np.ones((500, 1)), losses, targets)
        estimate = fits.estimate()
        assert estimate.learned == pytest.approx(float(perfect), abs=0.01)
        assert estimate.evenness == pytest.approx(1.0, abs=0.05) or not perfect


@pytest.mark.parametrize("policy", ["none", "random", "auto", "uncertain", "mixup"])
def test_a_run_with_several_labels_learns_resumes_and_predicts(policy, tmp_path):
    data, recipe = make_pairs(), replace(MULTI, policy=policy, transforms="geometric", class_weights="balanced")
    done = train(recipe, out=tmp_path / "whole", splits=data)
    assert done.metrics[-1]["train_loss"] < done.metrics[0]["train_loss"]
    with pytest.raises(Stopped):
        train(recipe, out=tmp_path / "parts", splits=data, on_step=lambda progress: progress.step >= 9)
    train(recipe, out=tmp_path / "parts", splits=data)
    (whole, before), (parts, after) = final(tmp_path / "whole"), final(tmp_path / "parts")
    assert all(torch.equal(tensor, parts[name]) for name, tensor in whole.items())
    assert before["metrics"] == after["metrics"]
    evaluation = outspan.evaluate(tmp_path / "whole", splits=data)
    assert evaluation.accuracy == pytest.approx(done.accuracy)
    assert evaluation.metrics.map > data.test.labels.double().mean()  # that of random scores
    predicted = outspan.predict(tmp_path / "whole", data.test.images[:5])
    assert predicted.probabilities.sum(1).tolist() != pytest.approx([1.0] * 5, abs=1e-3)
    for labels, row in zip(predicted.labels(0.3), predicted.probabilities, strict=True):
        assert set(labels) == {str(i) for i in (row > 0.3).nonzero().flatten().tolist()}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sampling": "balanced"}, "sampling must be 'shuffle' for data with several labels per sample"),
        ({"same_class": 0.5}, "same_class is for data with one label per sample, got same_class=0.5"),
    ],
)
def test_keys_for_one_label_are_refused(keys, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(replace(MULTI, policy="none", **keys), out=tmp_path, splits=make_pairs(40, 10))


def test_data_of_the_other_kind_is_refused(tmp_path):
    data = make_pairs(40, 10)
    train(replace(MULTI, policy="none", epochs=1), out=tmp_path, splits=data)
    single = InMemory(data.test.images, torch.zeros(10, dtype=torch.int64))
    with pytest.raises(ValueError, match="must have several labels per sample, as the data of the run, got one label"):
        outspan.evaluate(tmp_path, splits=Data("pairs", single, single, data.classes))
    with pytest.raises(ValueError, match="train and test must both have one label per sample, or both several"):
        Data("pairs", data.train, single, data.classes)
    with pytest.raises(ValueError, match="multi-hot train labels must have one column per class, 3, got 10"):
        Data("pairs", data.train, data.test, ("a", "b", "c"))


def test_a_study_needs_one_label_per_sample(tmp_path):
    data = make_pairs(40, 10)
    arrays = {f"x_{name}": split.images.numpy() for name, split in (("train", data.train), ("test", data.test))}
    arrays |= {f"y_{name}": split.labels.numpy() for name, split in (("train", data.train), ("test", data.test))}
    np.savez(tmp_path / "pairs.npz", **arrays)
    with pytest.raises(ValueError, match="a study needs data with one label per sample"):
        outspan.measure(Recipe(data=str(tmp_path / "pairs.npz"), model="mlp", epochs=1), seeds=2, out=tmp_path / "study")
