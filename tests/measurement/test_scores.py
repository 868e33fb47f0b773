"""Scores, compared with hand-made tables, a simple slow implementation, and identities."""

import statistics
from collections import Counter
from dataclasses import astuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from outspan import rng
from outspan.measurement.intervals import compute_intervals, difference_intervals
from outspan.measurement.predictions import Predictions
from outspan.measurement.scores import (
    average_accuracy,
    compute_scores,
    corrected_and_broken,
    count_ties,
    find_majority,
    scores_by_class,
)


def table(classes: list[list[int]], labels: list[int]) -> Predictions:
    return Predictions(torch.tensor(classes), torch.tensor(labels))


# Three models on four samples: all right; 2 of 3 right; 2 of 3 wrong with the same class; all wrong with the same class.
HAND = table([[0, 1, 2, 3], [0, 1, 2, 3], [0, 2, 1, 3]], [0, 1, 1, 1])


@st.composite
def predictions(draw, models=None, samples=None):
    shape = (models or draw(st.integers(2, 9)), samples or draw(st.integers(1, 12)))
    values = st.integers(0, draw(st.integers(0, 4)))
    classes = draw(arrays.arrays(np.int64, shape, elements=values))
    return Predictions(torch.from_numpy(classes), torch.from_numpy(draw(arrays.arrays(np.int64, shape[1], elements=values))))


def test_scores_of_a_hand_made_table():
    assert find_majority(HAND).classes.tolist() == [0, 1, 2, 3]
    mean, std = average_accuracy(HAND)
    assert mean == 6 / 12
    assert std == 0.0
    assert compute_scores(HAND).error == 2 / 4
    assert compute_scores(HAND).instability == 2 / 12
    assert astuple(compute_scores(HAND)) == (4, 0.5, 0.0, 0.5, 2 / 12, 0)
    by_class = scores_by_class(HAND)
    assert list(by_class) == [0, 1]
    assert by_class[0].accuracy == 1
    assert by_class[1].samples == 3
    assert by_class[1].error == 2 / 3
    assert by_class[1].instability == 2 / 9


def test_the_standard_deviation_is_over_models():
    mean, std = average_accuracy(table([[0, 0], [0, 1], [1, 1]], [0, 0]))
    assert mean == 0.5
    assert std == 0.5  # the standard deviation of 1, 0.5 and 0


@given(predictions())
def test_scores_match_a_simple_implementation(ensemble):
    voted = find_majority(ensemble)
    columns = ensemble.classes.T.tolist()
    wrong = departs = 0
    for column, label, got, tied in zip(
        columns, ensemble.labels.tolist(), voted.classes.tolist(), voted.tied.tolist(), strict=True
    ):
        counted = Counter(column)
        leaders = [value for value, count in counted.items() if count == max(counted.values())]
        assert got in leaders
        assert tied == (len(leaders) > 1)
        wrong += got != label
        departs += sum(value != got for value in column)
    result = compute_scores(ensemble)
    assert result.error == wrong / len(columns)
    assert result.instability == departs / ensemble.classes.numel()
    right = [statistics.fmean(row) for row in (ensemble.classes == ensemble.labels).double().tolist()]
    assert result.accuracy == pytest.approx(statistics.fmean(right))
    assert result.std == pytest.approx(statistics.stdev(right))
    assert result.ties == int(voted.tied.sum())


@given(predictions())
def test_scores_per_class_average_to_the_total(ensemble):
    whole, parts = compute_scores(ensemble), scores_by_class(ensemble).values()
    assert sum(part.samples for part in parts) == whole.samples
    assert sum(part.ties for part in parts) == whole.ties
    for name in ("accuracy", "error", "instability"):
        weighed = sum(part.samples * getattr(part, name) for part in parts)
        assert weighed == pytest.approx(whole.samples * getattr(whole, name))


@given(predictions(models=2), st.integers(2, 9))
def test_copies_of_a_model_are_stable_and_have_its_error(ensemble, models):
    equal = Predictions(ensemble.classes[:1].repeat(models, 1), ensemble.labels)
    result = compute_scores(equal)
    assert result.instability == result.std == result.ties == 0
    assert result.error == pytest.approx(1 - result.accuracy)


@given(predictions())
def test_the_error_is_within_the_bounds_of_the_other_scores(ensemble):
    result = compute_scores(ensemble)  # a model is wrong only if the majority is wrong or it differs from the majority
    assert 1 - result.accuracy <= result.error + result.instability + 1e-12
    assert result.error <= 1 - result.accuracy + result.instability + 1e-12


@given(predictions(), st.randoms(use_true_random=False))
def test_the_order_of_models_does_not_matter(ensemble, random):
    order = random.sample(range(len(ensemble.classes)), len(ensemble.classes))
    shuffled = Predictions(ensemble.classes[order], ensemble.labels)
    assert torch.equal(find_majority(shuffled).classes, find_majority(ensemble).classes)


def test_ties_are_decided_evenly_and_reproducibly():
    tied = table([[0] * 3000, [1] * 3000, [2] * 3000, [0] * 3000, [2] * 3000, [1] * 3000], [0] * 3000)
    voted = find_majority(tied)
    assert bool(voted.tied.all())
    assert all(900 < count < 1100 for count in voted.classes.bincount().tolist())
    assert torch.equal(voted.classes, find_majority(tied).classes)
    assert not torch.equal(voted.classes, find_majority(tied, seed=1).classes)
    fewer = Predictions(tied.classes.clone(), tied.labels)
    fewer.classes[:, ::2] = 1  # the decision for a sample does not depend on ties of other samples
    assert torch.equal(find_majority(fewer).classes[1::2], voted.classes[1::2])
    assert compute_scores(tied).ties == 3000


def test_corrected_and_broken_by_hand():
    # Sample 0 both right, 1 corrected, 2 broken, 3 both wrong.
    baseline = table([[0, 1, 0, 1], [0, 1, 0, 1], [1, 0, 0, 1]], [0, 0, 0, 0])
    augmented = table([[0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 0, 2]], [0, 0, 0, 0])
    changes = corrected_and_broken(augmented, baseline)
    assert changes.corrected.tolist() == [1]
    assert changes.broken.tolist() == [2]
    assert changes.baseline_accuracy_on_corrected == 1 / 3
    assert changes.accuracy_on_broken == 1 / 3
    none = corrected_and_broken(augmented, augmented)
    assert none.corrected.numel() == none.broken.numel() == 0
    assert none.baseline_accuracy_on_corrected is none.accuracy_on_broken is None


@given(predictions(samples=10), predictions(samples=10))
def test_the_error_changes_by_broken_minus_corrected(one, other):
    other = Predictions(other.classes, one.labels)
    changes = corrected_and_broken(one, other)
    assert len(changes.broken) - len(changes.corrected) == round(10 * (compute_scores(one).error - compute_scores(other).error))


def test_intervals_contain_the_score_and_narrow_with_samples():
    draw = np.random.Generator(np.random.Philox(1))
    right = torch.from_numpy((draw.random((3, 4000)) < 0.1).astype(np.int64))
    large = Predictions(right, torch.zeros(4000, dtype=torch.int64))
    small = Predictions(right[:, :250], large.labels[:250])
    wide, narrow = (compute_intervals({"it": ensemble})["it"] for ensemble in (small, large))
    for name in ("accuracy", "error", "instability"):
        low, high = getattr(narrow, name)
        assert low < getattr(compute_scores(large), name) < high
        assert 3 < np.diff(getattr(wide, name))[0] / (high - low) < 5.5  # about the square root of 16
    low, high = narrow.accuracy  # close to the interval for independent samples, as here
    values = (large.classes == 0).double().mean(0)
    assert high - low == pytest.approx(2 * 1.96 * float(values.std()) / 4000**0.5, rel=0.1)
    assert compute_intervals({"it": large}) == compute_intervals({"it": large})
    assert compute_intervals({"it": large}) != compute_intervals({"it": large}, seed=1)
    assert compute_intervals({"it": large}, level=0.5)["it"].error.low > narrow.error.low


def test_intervals_match_a_simple_implementation(monkeypatch):
    monkeypatch.setattr("outspan.measurement.intervals._AT_ONCE", 9)  # also in several parts
    draw = rng.generator(0, "bootstrap")
    result = []
    for _ in range(25):
        rows = torch.from_numpy(draw.integers(0, 4, 4))
        result.append(astuple(compute_scores(Predictions(HAND.classes[:, rows], HAND.labels[rows])))[1:5])
    expected = np.quantile(np.array(result)[:, [0, 2, 3]], [0.05, 0.95], axis=0)
    got = compute_intervals({"it": HAND}, draws=25, level=0.9)["it"]
    assert np.allclose(np.array([got.accuracy, got.error, got.instability]).T, expected)


def test_differences_are_paired_by_sample():
    other = table([[0, 1, 1, 3], [0, 1, 1, 3], [0, 1, 1, 3]], [0, 1, 1, 1])
    result = difference_intervals({"baseline": HAND, "same": HAND, "other": other}, "baseline", draws=200)
    assert list(result) == ["same", "other"]
    assert result["same"].error == result["same"].accuracy == result["same"].instability == (0, 0)
    assert result["other"].error.low < 0
    assert result["other"].error.high == 0  # it is never worse on any resampling


def test_the_predictions_of_the_first_models():
    assert torch.equal(HAND.first(2).classes, HAND.classes[:2])
    with pytest.raises(ValueError, match="at least 2 models"):
        HAND.first(1)


@pytest.mark.usefixtures("unchecked")
def test_wrong_arguments_are_refused():
    zeros = torch.zeros(3, dtype=torch.int64)
    for classes, labels, message in [
        (zeros[None], zeros, r"at least 2 models \(seeds\), got 1"),
        (zeros.repeat(2, 1), zeros[:2], "the same samples, got 3 and 2"),
        (zeros.repeat(2, 1)[:, :0], zeros[:0], "got 0 and 0"),
        (zeros.repeat(2, 1).float(), zeros, "classes must be torch.int64 with 2 axes"),
        (zeros.repeat(2, 1), zeros.float(), "labels must be torch.int64"),
        (zeros, zeros, "with 2 axes"),
        (zeros.repeat(2, 1) - 1, zeros, "must be 0 or more"),
    ]:
        with pytest.raises(ValueError, match=message):
            Predictions(classes, labels)
    other = Predictions(HAND.classes, HAND.labels + 1)
    with pytest.raises(ValueError, match="'the baseline' and 'the predictions' must have the same samples"):
        corrected_and_broken(HAND, other)
    with pytest.raises(ValueError, match="'b' and 'a' must have the same samples"):
        compute_intervals({"a": HAND, "b": other})
    with pytest.raises(ValueError, match="level must lie in"):
        compute_intervals({"a": HAND}, level=1.0)
    with pytest.raises(ValueError, match="draws must be at least 1"):
        compute_intervals({"a": HAND}, draws=0)
    with pytest.raises(ValueError, match="no samples to score"):
        average_accuracy(HAND, where=HAND.labels == 7)


def test_ties_are_counted_over_all_transforms():
    labels = torch.tensor([0, 1, 2])
    split, agreed = torch.tensor([[0, 1, 2], [1, 1, 0]]), torch.tensor([[0, 1, 2], [0, 1, 2]])
    ensemble = [Predictions(classes, labels) for classes in (split, agreed, split)]
    assert count_ties(ensemble) == (4, 9)
