"""Weights of samples: the weighted loss, also of mixed samples, where they are read, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import outspan
from outspan import Plan
from outspan.config import Recipe
from outspan.data.sets import load_for
from outspan.data.splits import InMemory
from outspan.policies.batch import Batch
from outspan.policies.objectives import MULTI_LABEL, SINGLE_LABEL
from outspan.policies.targets import make_targets
from outspan.policies.weighting import weigh
from outspan.training import Stopped
from outspan.training.step import Learner
from outspan.training.train import train
from trained_runs import SMALL, equal, few, final

pytestmark = pytest.mark.usefixtures("one_thread")

DRAW = torch.Generator().manual_seed(0)
IMAGES = torch.randint(0, 256, (4, 1, 2, 2), dtype=torch.uint8, generator=DRAW)
WEIGHTS = torch.tensor([0.5, 2.0, 0.0, 1.5])
# Outputs: samples 0 and 1 mixed, sample 2 mixed with 1, sample 3 alone, and sample 2, whose weight is 0.
PLAN = Plan.of(
    [["mixup"], ["identity"], ["mixup"], ["identity"]], levels=[[0.25], [0.0], [0.5], [0.0]], partners=[[1], [-1], [1], [-1]]
)
SHARES = torch.tensor([[0.75, 0.25, 0, 0], [0, 1, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1]])


def single(logits, targets):
    return -(targets * logits.log_softmax(1)).sum(1)


def several(logits, targets):
    return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(1)


@pytest.mark.parametrize(
    ("labels", "objective", "loss", "class_weights"),
    [
        (torch.tensor([0, 1, 2, 1]), SINGLE_LABEL, single, None),
        (torch.tensor([0, 1, 2, 1]), SINGLE_LABEL, single, torch.tensor([1.0, 3.0, 0.5])),
        (torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]]).bool(), MULTI_LABEL, several, None),
    ],
)
def test_the_loss_of_a_mixed_sample_is_that_of_its_parts(labels, objective, loss, class_weights):
    model = nn.Linear(4, 3)
    targets = make_targets(IMAGES, labels, PLAN, 3)
    batch = Batch(IMAGES.float(), targets, PLAN)
    weighted = weigh(batch, IMAGES, labels, WEIGHTS)
    inputs = IMAGES.flatten(1).float() / 255
    learner = Learner(model, 0.0, graphs=False, parts=2, objective=objective, class_weights=class_weights)
    losses = learner(inputs, targets, *weighted)
    each = labels.float() if labels.ndim == 2 else functional.one_hot(labels, 3).float()
    logits = model(inputs)
    assert torch.allclose(losses, loss(logits, targets))  # policies learn from losses without weights
    expected = torch.zeros(())
    for i in range(4):
        for j in range(4):
            of_class = each[j] if class_weights is None else each[j] * class_weights
            expected = expected + SHARES[i, j] * WEIGHTS[j] * loss(logits[i : i + 1], of_class[None]).sum() / 4
    gradients = torch.autograd.grad(expected * objective.scale(3), list(model.parameters()))
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-6)


def weighted_digits(weights, labels=None):
    data = few()
    train_labels = data.train.labels if labels is None else labels
    return replace(data, train=InMemory(data.train.images, train_labels, weights))


@pytest.mark.parametrize(
    ("policy", "transforms"), [("random", "mixup,cutmix,rotate"), pytest.param("uncertain", "paper16", marks=pytest.mark.slow)]
)
def test_labels_of_samples_without_weight_do_not_matter(policy, transforms, tmp_path):
    weights = torch.ones(200).index_fill_(0, torch.arange(0, 200, 3), 0.0)
    labels = few().train.labels
    wrong = torch.where(weights == 0, (labels + 1) % 10, labels)
    # Scores have no weights, and with one candidate nothing is scored.
    recipe = replace(SMALL, policy=policy, transforms=transforms, candidates=1, ema=0.5)
    train(recipe, splits=weighted_digits(weights), out=tmp_path / "right")
    train(recipe, splits=weighted_digits(weights * 8, wrong), out=tmp_path / "wrong")
    train(recipe, splits=few(), out=tmp_path / "without")
    right, wrongly, without = (final(tmp_path / name)[0] for name in ("right", "wrong", "without"))
    assert all(torch.equal(right[name], wrongly[name]) for name in right)
    assert any(not torch.equal(right[name], without[name]) for name in right)


@pytest.mark.parametrize("policy", ["auto", pytest.param("uncertain", marks=pytest.mark.slow)])
def test_a_stopped_run_with_weights_resumes_to_the_same_bits(policy, tmp_path):
    weights = torch.rand(200, generator=torch.Generator().manual_seed(1))
    recipe = replace(SMALL, policy=policy, transforms="paper16", class_weights="balanced", validation=20, keep=1)
    train(recipe, splits=weighted_digits(weights), out=tmp_path / "whole")
    with pytest.raises(Stopped):
        train(recipe, splits=weighted_digits(weights), out=tmp_path / "stopped", on_step=lambda progress: progress.step == 11)
    with pytest.raises(ValueError, match="the data has changed since"):
        train(recipe, splits=weighted_digits(weights + 1), out=tmp_path / "stopped")
    train(recipe, splits=weighted_digits(weights), out=tmp_path / "stopped")
    assert equal(final(tmp_path / "whole"), final(tmp_path / "stopped"))


def test_weights_are_read_from_tables_and_npz_files(tmp_path):
    rows = [{"text": f"text {i}", "label": "ab"[i % 2], "sure": i / 2} for i in range(20)]
    (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = load_for(Recipe(data=str(tmp_path / "texts.jsonl"), weight_column="sure"))
    assert data.train.weights.tolist() == [int(text.split()[1]) / 2 for text in data.train.texts]
    assert data.test.weights is None
    assert data.train.take(torch.tensor([1])).weights.tolist() == data.train.weights[1:2].tolist()
    for i in range(20):
        (tmp_path / f"{i}.png").touch()
    (tmp_path / "images.csv").write_text("file,label,w\n" + "".join(f"{i}.png,{'ab'[i % 2]},{i}\n" for i in range(20)))
    images = load_for(Recipe(data=str(tmp_path / "images.csv"), weight_column="w", channels="3"))
    assert images.train.weights.tolist() == [int(path.stem) for path in images.train.paths]
    pixels = np.zeros((4, 8, 8), np.uint8)
    arrays = {"train_images": pixels, "test_images": pixels, "train_labels": [0, 1, 0, 1], "test_labels": [0, 1, 0, 1]}
    np.savez(tmp_path / "a.npz", train_weights=np.array([1, 2, 3, 4]), **arrays)
    assert load_for(Recipe(data=str(tmp_path / "a.npz"))).train.weights.tolist() == [1, 2, 3, 4]
    for weights, problem in (
        ([1.0, 2.0], r"train_weights must be one number per training image, \[4\], got float64 \[2\]"),
        ([1.0, -2.0, 1.0, 1.0], "finite and at least 0, got -2 for sample 1"),
        ([1.0, 1.0, 1.0, np.nan], "finite and at least 0, got nan for sample 3"),
        (["a"] * 4, r"train_weights must be one number per training image, \[4\], got <U1"),
    ):
        np.savez(tmp_path / "b.npz", train_weights=np.array(weights), **arrays)
        with pytest.raises(ValueError, match=problem):
            load_for(Recipe(data=str(tmp_path / "b.npz")))


@pytest.mark.parametrize(
    ("weight", "problem"),
    [("-1", "must be a number of at least 0, got '-1'"), ("nan", "got 'nan'"), ("", "got ''"), ("x", "line 3: the weight in")],
)
def test_wrong_weights_in_tables_are_refused(weight, problem, tmp_path):
    (tmp_path / "train.csv").write_text(f"text,label,w\na,x,1\nb,y,{weight}\n")
    (tmp_path / "test.csv").write_text("text,label\na,x\nb,y\n")
    with pytest.raises(ValueError, match=problem):
        load_for(Recipe(data=str(tmp_path), weight_column="w"))
    with pytest.raises(ValueError, match=r"no column 'v' .it has text, label, w.; set weight_column to another"):
        load_for(Recipe(data=str(tmp_path), weight_column="v"))
    (tmp_path / "train.csv").unlink()
    (tmp_path / "train.jsonl").write_text("".join(f'{{"text": "a", "label": "{name}", "w": null}}\n' for name in "xy"))
    with pytest.raises(ValueError, match="line 1: no weight in the column 'w'; set weight_column to another column"):
        load_for(Recipe(data=str(tmp_path), weight_column="w"))


def test_weights_that_cannot_be_used_are_refused(tmp_path):
    with pytest.raises(ValueError, match="sample weights must not all be 0"):
        train(SMALL, splits=weighted_digits(torch.zeros(200)), out=tmp_path)
    with pytest.raises(ValueError, match=r"one number per sample, \[200\], got \[3\]"):
        weighted_digits(torch.ones(3))
    with pytest.raises(ValueError, match="weight_column is for tables, got 'w' with data 'digits'"):
        outspan.train(data="digits", weight_column="w", out=tmp_path)
    arrays = {"train_images": few().train.images.numpy(), "train_labels": few().train.labels.numpy()}
    arrays |= {"test_images": few().test.images.numpy(), "test_labels": few().test.labels.numpy()}
    np.savez(tmp_path / "a.npz", train_weights=np.ones(200), **arrays)
    with pytest.raises(ValueError, match="has sample weights, which an ensemble of perceptrons cannot use"):
        outspan.measure(data=str(tmp_path / "a.npz"), transforms=["rotate"], seeds=2, out=tmp_path / "m", epochs=1)


@pytest.mark.slow
def test_a_run_with_weights_is_evaluated_on_tables_without_them(tmp_path):
    for name, weight in (("mine", ",1"), ("other", "")):
        folder = tmp_path / name
        folder.mkdir()
        for split, column in (("train", weight), ("test", "")):
            header = "file,label" + (",w" if column else "")
            lines = [f"{i}.png,{'ab'[i % 2]}{column}" for i in range(12)]
            (folder / f"{split}.csv").write_text("\n".join([header, *lines]))
        for i in range(12):
            outspan.write_image(torch.full((1, 3, 8, 8), 20 * i, dtype=torch.uint8), folder / f"{i}.png")
    keys = {"model": "mlp", "policy": "none", "size": 8, "epochs": 1, "batch": 6, "weight_column": "w", "channels": "3"}
    outspan.train(data=str(tmp_path / "mine"), out=tmp_path / "run", **keys)
    for name in (None, tmp_path / "mine", tmp_path / "other"):
        assert int(outspan.evaluate(tmp_path / "run", name).confusion.sum()) == 12
