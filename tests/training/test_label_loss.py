"""The loss for several labels per sample: its scale and its weights."""

import pytest
import torch
from sklearn.utils.class_weight import compute_sample_weight

import outspan
from outspan.config import Recipe
from outspan.policies.balancing import find_class_weights
from outspan.policies.objectives import MULTI_LABEL, SINGLE_LABEL
from outspan.training.step import Learner
from outspan.training.train import train
from trained_runs import make_pairs


@pytest.mark.parametrize("classes", [2, 3, 10, 80])
def test_the_first_gradient_is_as_large_as_that_of_the_cross_entropy(classes):
    """So the default learning rates, which are those for the cross entropy, are right for any number of classes."""
    gradients = []
    for objective in (SINGLE_LABEL, MULTI_LABEL):
        model = torch.nn.Linear(5, classes)
        torch.nn.init.zeros_(model.bias)
        torch.nn.init.zeros_(model.weight)
        targets = torch.nn.functional.one_hot(torch.tensor([1]), classes).float()
        Learner(model, 0.0, graphs=False, objective=objective)(torch.ones(1, 5), targets)
        gradients.append(float(model.bias.grad.norm()))
    assert gradients[1] == pytest.approx(gradients[0], rel=1e-5)


@pytest.mark.parametrize("class_weights", ["", "balanced"])
def test_a_run_learns_at_the_default_learning_rate(class_weights, tmp_path):
    data = make_pairs(800, 200)
    recipe = Recipe(data="digits", model="mlp", policy="none", epochs=8, class_weights=class_weights)
    summary = train(recipe, out=tmp_path, splits=data)
    losses = [row["train_loss"] for row in summary.metrics]
    assert losses[-1] < 0.3 * losses[0]
    assert max(losses) == losses[0]
    assert outspan.evaluate(tmp_path, splits=data).metrics.map > 2 * data.test.labels.double().mean()


def test_balanced_weights_are_those_of_scikit_learn():
    """Each class is a decision between two, whose weights are those that scikit-learn calls balanced."""
    labels = torch.rand(50, 3, generator=torch.Generator().manual_seed(1)) < torch.tensor([0.1, 0.5, 0.8])
    weights = find_class_weights("balanced", labels.sum(0), 50, MULTI_LABEL)
    logits, targets = torch.randn(50, 3, generator=torch.Generator().manual_seed(2)), labels.float()
    expected = 0.0
    for i in range(3):
        of_sample = torch.from_numpy(compute_sample_weight("balanced", labels[:, i].numpy())).float()
        losses = torch.nn.functional.binary_cross_entropy_with_logits(logits[:, i], targets[:, i], reduction="none")
        expected += of_sample * losses
    torch.testing.assert_close(MULTI_LABEL.weighted(logits, targets, weights), expected)


def test_given_weights_multiply_the_loss_of_samples_with_the_class():
    logits, targets = torch.randn(20, 2), (torch.rand(20, 2) < 0.5).float()
    weights = find_class_weights("3,0.5", torch.tensor([5, 5]), 20, MULTI_LABEL)
    loss = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0, 0.5]), reduction="none")
    torch.testing.assert_close(MULTI_LABEL.weighted(logits, targets, weights), loss(logits, targets).sum(1))
