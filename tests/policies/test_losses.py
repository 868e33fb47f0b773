"""Losses that users have, one value per sample: computed here by hand from the formulas of PyTorch's documentation."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import make_images
from outspan import Uncertain, apply, mix_labels, soft_cross_entropy, uniform
from outspan.policies.losses import check_loss, sample_losses

LOGITS = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
TARGETS = torch.rand(7, 5, generator=torch.Generator().manual_seed(1)).softmax(1)
WEIGHT = torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0])


class Focal(nn.Module):
    """A focal loss as many projects write it: the reduction is an attribute."""

    def __init__(self, gamma: float = 2.0, reduction: str = "mean") -> None:
        super().__init__()
        self.gamma, self.reduction = gamma, reduction

    def forward(self, logits, targets):
        losses = -(targets * (1 - logits.softmax(1)) ** self.gamma * logits.log_softmax(1)).sum(1)
        return losses.mean() if self.reduction == "mean" else losses.sum() if self.reduction == "sum" else losses


class Twice(nn.Module):
    """A loss made of another one, which has the reduction."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.CrossEntropyLoss()

    def forward(self, logits, targets):
        return 2 * self.inner(logits, targets)


class Averaged(nn.Module):
    def forward(self, logits, targets):
        return soft_cross_entropy(logits, targets)


def cross_entropy(targets, weight=None):
    log = LOGITS.log_softmax(1)
    return -(targets * log * (1 if weight is None else weight)).sum(1)


SMOOTH = 0.9 * TARGETS + 0.1 / 5
SIGMOID = LOGITS.sigmoid()
LOSSES = {
    "cross entropy": (nn.CrossEntropyLoss(), cross_entropy(TARGETS)),
    "weights": (nn.CrossEntropyLoss(weight=WEIGHT, reduction="sum"), cross_entropy(TARGETS, WEIGHT)),
    "label smoothing": (nn.CrossEntropyLoss(label_smoothing=0.1), cross_entropy(SMOOTH)),
    "binary": (nn.BCEWithLogitsLoss(), -(TARGETS * SIGMOID.log() + (1 - TARGETS) * (1 - SIGMOID).log()).mean(1)),
    "focal": (Focal(), -(TARGETS * (1 - LOGITS.softmax(1)) ** 2 * LOGITS.log_softmax(1)).sum(1)),
    "nested": (Twice(), 2 * cross_entropy(TARGETS)),
    "function": (soft_cross_entropy, cross_entropy(TARGETS)),
    "partial": (partial(F.cross_entropy, label_smoothing=0.1), cross_entropy(SMOOTH)),
    "per sample": (lambda logits, targets: -(targets * logits.log_softmax(1)).sum(1), cross_entropy(TARGETS)),
    "elementwise function": (F.mse_loss, ((LOGITS - TARGETS) ** 2).mean(1)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_gives_one_value_per_sample_and_keeps_its_reduction(name):
    loss, expected = LOSSES[name]
    check_loss(loss)
    before = [getattr(module, "reduction", None) for module in loss.modules()] if isinstance(loss, nn.Module) else []
    losses = sample_losses(loss, LOGITS, TARGETS)
    assert losses.shape == (7,)
    assert torch.allclose(losses, expected, atol=1e-6)
    if before:
        assert [getattr(module, "reduction", None) for module in loss.modules()] == before
        assert loss(LOGITS, TARGETS).ndim == 0


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(weight=WEIGHT), nn.BCEWithLogitsLoss(), Focal()], ids=str)
def test_uncertain_scores_with_the_loss(loss):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5))
    images, labels = make_images(0, 6, 3, 8, 8), torch.arange(6) % 5
    batch = Uncertain(model, uniform(2), candidates=4, loss=loss)(images, labels, step=0)
    with torch.no_grad():
        logits = model(apply(images, batch.drawn).float() / 255)
    targets = mix_labels(labels, batch.drawn, 5, (8, 8))
    by_hand = torch.stack([loss(logits[i : i + 1], targets[i : i + 1]) for i in range(24)]).view(6, 4)
    if not isinstance(loss, nn.CrossEntropyLoss):  # its mean over one sample divides by the weight of the class
        assert torch.allclose(batch.losses, by_hand, atol=1e-5)
    assert torch.equal(batch.losses.flatten()[batch.chosen], batch.losses.amax(1))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.CrossEntropyLoss, r"got the class CrossEntropyLoss: pass CrossEntropyLoss\(\)"),
        (3, r'loss must be a function of \(logits, targets, reduction="none"\) or a module, got 3'),
    ],
)
def test_what_is_not_a_loss_is_refused(loss, message, unchecked):
    with pytest.raises(ValueError, match=message):
        Uncertain(nn.Linear(1, 1), uniform(2), loss=loss)


@pytest.mark.parametrize("result", [lambda logits: logits.mean(), lambda logits: float(logits.mean()), None])
def test_losses_that_always_return_a_mean_are_refused(result, unchecked):
    loss = Averaged() if result is None else lambda logits, targets: result(logits)
    message = (
        r"loss (Averaged|<lambda>) must return one loss per sample, \[7\] or \[7, classes\], got .*: return them without a mean"
    )
    with pytest.raises(ValueError, match=message):
        sample_losses(loss, LOGITS, TARGETS)


def test_losses_that_do_not_fit_are_refused_and_keep_their_reduction():
    def faulty(logits, targets):
        return logits @ targets

    for loss in (nn.NLLLoss(), nn.MultiMarginLoss()):
        with pytest.raises(
            ValueError, match=r"Loss fails .* soft targets of shape \[7, 5\] \(.*\): it takes class indices only"
        ):
            sample_losses(loss, LOGITS, TARGETS)
        assert loss.reduction == "mean"
    for loss, message in ((nn.CrossEntropyLoss(torch.ones(4)), "weight tensor"), (faulty, "shapes")):
        with pytest.raises(ValueError, match=rf"loss \w+ fails for logits and soft targets .*{message}") as error:
            sample_losses(loss, LOGITS, TARGETS)
        assert "indices" not in str(error.value)
        assert isinstance(error.value.__cause__, RuntimeError)
