"""Parts of the data with the class shares of the whole: hold-out and folds."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

import outspan
from outspan.data.splits import InMemory
from outspan.data.stratify import hold_out, pick_fold, share, warn_missing_classes
from trained_runs import few


def make_split(labels):
    images = torch.arange(len(labels)).remainder(256).to(torch.uint8).view(-1, 1, 1, 1)
    return InMemory(images, torch.as_tensor(labels))


@pytest.mark.parametrize("count", [10, 33, 100])
def test_a_hold_out_has_the_class_counts_of_scikit_learn(count):
    labels = np.repeat([0, 1, 2], [130, 50, 20])
    np.random.Generator(np.random.Philox(1)).shuffle(labels)
    train, held_out = hold_out(make_split(labels), count, 0)
    peer = next(StratifiedShuffleSplit(1, test_size=count, random_state=0).split(labels, labels))[1]
    ours = held_out.labels.bincount(minlength=3)
    assert len(held_out) == count
    assert len(train) == len(labels) - count
    # Both round the same quotas; equal remainders may be rounded in another order.
    assert (ours - torch.from_numpy(np.bincount(labels[peer]))).abs().max() <= 1


def test_another_seed_holds_out_other_samples():
    split = make_split(np.arange(200) % 4)
    first, again, other = (hold_out(split, 40, seed)[1].images.flatten().tolist() for seed in (0, 0, 1))
    assert first == again
    assert first != other


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.floats(0.01, 0.99))
def test_shares_are_within_one_of_the_proportion(sizes, fraction):
    sizes = np.array(sizes)
    count = int(fraction * sizes.sum())
    counts = share(sizes, count)
    assert counts.sum() == count
    assert (counts >= 0).all()
    assert (counts <= sizes).all()
    if (sizes > 2).all():
        assert (abs(counts - sizes * count / sizes.sum()) < 2).all()
    if count <= (sizes - 1).sum():
        assert (counts < sizes).all()  # every class is trained on


def test_folds_are_disjoint_and_stratified_as_in_scikit_learn():
    labels = torch.tensor([0] * 53 + [1] * 17 + [2] * 5)
    folds = torch.stack([pick_fold(labels, 5, i) for i in range(5)])
    assert bool((folds.sum(0) == 1).all())
    peer = StratifiedKFold(5, shuffle=True, random_state=0).split(np.zeros(75), labels.numpy())
    counts = torch.stack([labels[fold].bincount(minlength=3) for fold in folds])
    others = torch.stack([labels[torch.from_numpy(rows)].bincount(minlength=3) for _, rows in peer])
    assert torch.equal(counts.sort(0).values, others.sort(0).values)


def test_a_part_without_a_class_draws_a_warning():
    with pytest.warns(UserWarning, match="the validation split has no sample of class 'b', 'c': .*; raise validation, now 1"):
        warn_missing_classes(torch.tensor([0]), ("a", "b", "c"), "the validation split", "raise validation, now 1")


def test_a_class_without_test_samples_draws_a_warning_in_training_and_evaluation(tmp_path):
    data = few(60)
    test = data.test.take((data.test.labels != 3).nonzero().squeeze(1))
    keys = {"data": "mine", "splits": replace(data, test=test), "model": "mlp", "policy": "none", "epochs": 1, "batch": 20}
    message = "has no sample of class '3': its scores say nothing about it; add samples, or use cross-validation"
    with pytest.warns(UserWarning, match=f"the test split {message}"):
        outspan.train(out=tmp_path, **keys)
    with pytest.warns(UserWarning, match=f"the test split of .*, {len(test)} images {message}"):
        outspan.evaluate(tmp_path, splits=keys["splits"])


def test_samples_with_several_labels_are_divided_at_random():
    rows = torch.rand(60, 4, generator=torch.Generator().manual_seed(0)) < 0.4
    assert [int(pick_fold(rows, 3, i).sum()) for i in range(3)] == [20, 20, 20]
