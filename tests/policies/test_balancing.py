"""Weights of classes, and epochs with equally many samples of each class."""

import re

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from outspan import HardSamples
from outspan.policies.balancing import balanced_order, find_class_weights
from outspan.policies.objectives import MULTI_LABEL, SINGLE_LABEL
from outspan.rng import generator


def test_balanced_weights_are_those_of_scikit_learn():
    labels = torch.tensor([0] * 70 + [1] * 25 + [2] * 5)
    weights = find_class_weights("balanced", labels.bincount(), 100, SINGLE_LABEL)
    peer = compute_class_weight("balanced", classes=np.arange(3), y=labels.numpy())
    torch.testing.assert_close(weights, torch.from_numpy(peer).float())
    # Several labels: each class is a decision between two, with the label and without it.
    of_classes = find_class_weights("balanced", labels.bincount(), 100, MULTI_LABEL)
    for i in range(3):
        peer = compute_class_weight("balanced", classes=np.array([False, True]), y=(labels == i).numpy())
        torch.testing.assert_close(of_classes[:, i], torch.from_numpy(peer[::-1].copy()).float())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2", "class_weights must have one number per class, 3, got 2"),
        ("1,x,2", "class_weights must be 'balanced' or one number per class, e.g. '1,2.5', got '1,x,2'"),
        ("1,-1,2", "each of class_weights must lie in [0, 1e+06], got -1"),
        ("1,nan,2", "each of class_weights must lie in [0, 1e+06], got nan"),
        ("0,0,0", "class_weights must not all be 0"),
    ],
)
def test_wrong_class_weights_are_refused(text, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        find_class_weights(text, torch.tensor([5, 5, 5]), 15, SINGLE_LABEL)


def test_balanced_weights_need_all_classes():
    with pytest.raises(ValueError, match="needs training samples of every class, got none of class 1"):
        find_class_weights("balanced", torch.tensor([5, 0]), 5, SINGLE_LABEL)


def test_a_balanced_epoch_has_equally_many_samples_of_each_class():
    labels = torch.tensor([0] * 90 + [1] * 9 + [4] * 2)
    order = balanced_order(labels, generator(0, "order", 0))
    assert len(order) == 101
    assert sorted(labels[order].bincount()[[0, 1, 4]].tolist()) == [33, 34, 34]
    for label in (1, 4):  # each row of a rare class comes about equally often
        counts = order.bincount(minlength=101)[labels == label]
        assert int(counts.max() - counts.min()) <= 1
    assert int(order.bincount()[:90].max()) == 1
    assert not torch.equal(order, balanced_order(labels, generator(0, "order", 1)))


def test_hard_samples_balance_classes_or_leave_samples_out():
    labels = torch.tensor([0] * 8 + [1] * 2)
    assert labels[HardSamples(10, epochs=5, classes=2, skip=0, balance=labels).order()].bincount().tolist() == [5, 5]
    with pytest.raises(ValueError, match=re.escape("balance needs skip 0, got 0.5")):
        HardSamples(10, epochs=5, classes=2, balance=labels)
    with pytest.raises(ValueError, match=re.escape("balance needs one label per sample, [10], got torch.int64 [3]")):
        HardSamples(10, epochs=5, classes=2, skip=0, balance=labels[:3])
