"""Training with class weights and balanced sampling."""

from dataclasses import replace

import pytest
import torch

from outspan.data.sets import Data, load
from outspan.data.splits import InMemory
from outspan.policies.objectives import MULTI_LABEL
from outspan.training import Stopped
from outspan.training.step import Learner
from outspan.training.train import train
from trained_runs import SMALL, final


def make_imbalanced() -> Data:
    """Return digits 0 and 1 only, nine times as many 0 as 1."""
    digits = load("digits").train

    def part(first, second):
        rows = torch.cat([(digits.labels == i).nonzero().squeeze(1)[:count] for i, count in ((0, first), (1, second))])
        return InMemory(digits.images[rows], digits.labels[rows])

    return Data("imbalanced", part(90, 10), part(20, 20), ("zero", "one"))


def test_gradients_with_class_weights_are_those_of_torch():
    torch.manual_seed(0)
    model, inputs, labels = torch.nn.Linear(5, 3), torch.randn(8, 5), torch.tensor([0, 1, 2, 0, 0, 1, 0, 0])
    weights, targets = torch.tensor([1.0, 2.5, 0.5]), torch.nn.functional.one_hot(labels, 3).float()
    learner = Learner(model, 0.1, graphs=False, parts=3, class_weights=weights)
    losses = learner(inputs, targets)
    ours = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    smooth = torch.nn.functional.cross_entropy(model(inputs), 0.9 * targets + 0.1 / 3, weight=weights)
    smooth.backward()
    torch.testing.assert_close(ours, [p.grad for p in model.parameters()])
    plain = torch.nn.functional.cross_entropy(model(inputs), labels, label_smoothing=0.1, reduction="none")
    torch.testing.assert_close(losses, plain.detach())  # policies learn from losses without weights


def test_gradients_with_several_labels_are_those_of_torch():
    torch.manual_seed(0)
    model, inputs, targets = torch.nn.Linear(5, 3), torch.randn(8, 5), (torch.rand(8, 3) < 0.4).float()
    weights, of_samples = torch.tensor([1.0, 2.5, 0.5]), torch.rand(8)
    learner = Learner(
        model, 0.0, graphs=False, parts=2, objective=MULTI_LABEL, class_weights=torch.stack([weights, torch.ones(3)])
    )
    learner(inputs, targets, of_samples)
    ours = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    loss = torch.nn.BCEWithLogitsLoss(pos_weight=weights, reduction="none")(model(inputs), targets)
    (MULTI_LABEL.scale(3) * loss.sum(1) * of_samples).mean().backward()
    torch.testing.assert_close(ours, [p.grad for p in model.parameters()])


@pytest.mark.parametrize("keys", [{"class_weights": "balanced"}, {"sampling": "balanced"}])
def test_rare_classes_are_found_more_often(keys, tmp_path):
    data, recipe = make_imbalanced(), replace(SMALL, policy="none", epochs=2, lr=0.01)
    plain = train(recipe, out=tmp_path / "plain", splits=data)
    balanced = train(replace(recipe, **keys), out=tmp_path / "balanced", splits=data)
    assert balanced.accuracy > plain.accuracy + 0.05


@pytest.mark.parametrize("policy", ["auto", "uncertain"])
def test_a_balanced_run_that_was_stopped_resumes_to_the_same_bits(policy, tmp_path):
    data = make_imbalanced()
    recipe = replace(SMALL, policy=policy, sampling="balanced", class_weights="1,2", epochs=4, batch=30, by_confidence=0.5)
    train(recipe, out=tmp_path / "whole", splits=data)
    for stop in (3, 9):
        with pytest.raises(Stopped):
            train(recipe, out=tmp_path / "parts", splits=data, on_step=lambda progress, stop=stop: progress.step >= stop)
    train(recipe, out=tmp_path / "parts", splits=data)
    (whole, before), (parts, after) = final(tmp_path / "whole"), final(tmp_path / "parts")
    assert all(torch.equal(tensor, parts[name]) for name, tensor in whole.items())
    assert before["metrics"] == after["metrics"]


def test_what_cannot_be_combined_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"skip must be 0 with sampling 'balanced', got 0.5: leave one of them out"):
        train(replace(SMALL, sampling="balanced", skip=0.5), out=tmp_path, splits=make_imbalanced())
    with pytest.raises(ValueError, match="class_weights must have one number per class, 2, got 3"):
        train(replace(SMALL, class_weights="1,2,3"), out=tmp_path, splits=make_imbalanced())


def test_a_validation_split_without_a_class_draws_a_warning(tmp_path):
    with pytest.warns(UserWarning, match="the validation split has no sample of class 'one'.*raise validation, now 2"):
        train(replace(SMALL, validation=2, epochs=1), out=tmp_path, splits=make_imbalanced())
