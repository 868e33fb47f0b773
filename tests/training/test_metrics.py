"""Metrics of predictions: they are those of scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn import metrics as peer
from sklearn.calibration import calibration_curve

from outspan import rng
from outspan.training.metrics import (
    METRIC_NAMES,
    calibration_bins,
    compute_intervals,
    compute_metrics,
    confusion_matrix,
    scores_by_class,
)

CASES = range(200)


def draw_case(case: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random probabilities and labels: few or many classes, ties, classes that do not occur, a single class."""
    draw = rng.generator(0, "metrics", case)
    count, classes = int(draw.integers(1, 80)), int(draw.integers(2, 13))
    if case % 4 == 0:  # ties inside rows and between rows
        weights = draw.integers(0, 4, (count, classes)) + (np.arange(classes) == draw.integers(classes))
        probabilities = weights / weights.sum(1, keepdims=True)
    elif case % 4 == 1:  # certain predictions
        probabilities = np.eye(classes)[draw.integers(0, classes, count)]
    elif case % 4 == 2:  # confidences at the edges of the bins
        first = draw.integers(0, 16, count) / 15
        probabilities = np.eye(classes)[0] * first[:, None] + np.eye(classes)[-1] * (1 - first)[:, None]
    else:
        probabilities = draw.dirichlet(np.ones(classes), count)
    present = draw.permutation(classes)[: draw.integers(1, classes + 1)]
    return probabilities, draw.choice(present, count)


def tensors(case: int) -> tuple[torch.Tensor, torch.Tensor]:
    probabilities, labels = draw_case(case)
    return torch.from_numpy(probabilities), torch.from_numpy(labels)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true", "ignore:A single label was found")
def test_metrics_are_those_of_scikit_learn(case):
    (probabilities, labels), result = draw_case(case), compute_metrics(*tensors(case))
    predicted, classes = probabilities.argmax(1), probabilities.shape[1]
    assert result.accuracy == pytest.approx(peer.accuracy_score(labels, predicted), abs=1e-9)
    assert result.balanced_accuracy == pytest.approx(peer.balanced_accuracy_score(labels, predicted), abs=1e-9)
    for average in ("macro", "weighted"):
        value = getattr(result, f"{average}_f1")
        assert value == pytest.approx(peer.f1_score(labels, predicted, average=average), abs=1e-9)
    if classes > 5:
        top = peer.top_k_accuracy_score(labels, probabilities, k=5, labels=np.arange(classes))
        assert result.top5 == pytest.approx(top, abs=1e-9)
    else:
        assert result.top5 is None
    present = np.unique(labels)
    if len(present) == 1:
        assert result.auroc is None
        return
    areas = [peer.roc_auc_score(labels == label, probabilities[:, label]) for label in present]
    assert result.auroc == pytest.approx(np.mean(areas), abs=1e-9)
    if len(present) == classes > 2:
        area = peer.roc_auc_score(labels, probabilities, multi_class="ovr", average="macro")
        assert result.auroc == pytest.approx(area, abs=1e-9)
    elif classes == 2:
        assert result.auroc == pytest.approx(peer.roc_auc_score(labels, probabilities[:, 1]), abs=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_calibration_is_that_of_scikit_learn(case):
    probabilities, labels = draw_case(case)
    right, confidence = probabilities.argmax(1) == labels, probabilities.max(1)
    accuracies, confidences = calibration_curve(right.astype(int), confidence, n_bins=15, pos_label=1)
    counts = np.bincount(np.digitize(confidence, np.linspace(0, 1, 16)[1:-1], right=True), minlength=15)
    bins = calibration_bins(*tensors(case))
    assert [one.samples for one in bins] == counts.tolist()
    assert [one.accuracy for one in bins if one.samples] == pytest.approx(accuracies.tolist(), abs=1e-9)
    assert [one.confidence for one in bins if one.samples] == pytest.approx(confidences.tolist(), abs=1e-9)
    assert all(one.accuracy is None and one.confidence is None for one in bins if not one.samples)
    ece = (counts[counts > 0] * abs(accuracies - confidences)).sum() / len(labels)
    assert compute_metrics(*tensors(case)).ece == pytest.approx(ece, abs=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_scores_by_class_are_those_of_scikit_learn(case):
    probabilities, labels = draw_case(case)
    names, predicted = np.arange(probabilities.shape[1]), probabilities.argmax(1)
    confusion = confusion_matrix(*tensors(case))
    assert np.array_equal(confusion, peer.confusion_matrix(labels, predicted, labels=names))
    expected = peer.precision_recall_fscore_support(labels, predicted, labels=names, zero_division=np.nan)
    result = np.array(scores_by_class(confusion), dtype=np.float64).T  # None becomes NaN
    np.testing.assert_allclose(result, np.array(expected), rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", [1, 3, 11, 26])
def test_intervals_are_quantiles_over_resampled_rows(case):
    probabilities, labels = tensors(case)
    draw, size = rng.generator(7, "bootstrap"), len(labels)
    rows = [torch.from_numpy(draw.integers(0, size, size)) for _ in range(40)]
    resampled = [compute_metrics(probabilities[row], labels[row]) for row in rows]
    intervals = compute_intervals(probabilities, labels, draws=40, seed=7)
    for name in METRIC_NAMES:
        values = [value for one in resampled if (value := getattr(one, name)) is not None]
        assert (name in intervals) == bool(values)
        if values:
            assert intervals[name] == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=1e-12)
    assert compute_intervals(probabilities, labels, draws=40, seed=7) == intervals
    assert compute_intervals(probabilities, labels, draws=40, seed=8) != intervals


def test_the_interval_of_the_accuracy_is_that_of_a_binomial_distribution():
    labels = torch.zeros(400, dtype=torch.int64)
    probabilities = torch.eye(2)[(torch.arange(400) % 5 == 0).long()]  # 80 % are right, std 0.02
    low, high = compute_intervals(probabilities, labels, draws=2000)["accuracy"]
    assert (low, high) == pytest.approx((0.8 - 1.96 * 0.02, 0.8 + 1.96 * 0.02), abs=0.005)


def test_an_auroc_that_would_take_minutes_has_no_interval(monkeypatch):
    from outspan.training import metrics

    case = tensors(11)
    assert "auroc" in compute_intervals(*case, draws=3)
    monkeypatch.setattr(metrics, "_MAX_RANKED", 3 * case[0].numel() - 1)
    assert "auroc" not in compute_intervals(*case, draws=3)
    assert compute_metrics(*case).auroc is not None


@pytest.mark.parametrize(
    ("probabilities", "labels", "problem"),
    [
        (torch.ones(3), torch.zeros(3), "at least one sample and two classes, got torch.float32"),
        (torch.ones(2, 1), torch.zeros(2), "at least one sample and two classes"),
        (torch.zeros(0, 3), torch.zeros(0), "at least one sample and two classes"),
        (torch.full((2, 2), 0.5), torch.zeros(3), r"labels must be one class per sample, \[2\], got"),
        (torch.full((2, 2), 0.5), torch.tensor([0, 2]), r"labels must lie in \[0, 1\], got 0 to 2"),
        (
            torch.tensor([[0.5, 0.5], [3.0, -2.0]]),
            torch.zeros(2),
            "row 1 with the sum 1 and the smallest value -2: use softmax",
        ),
        (torch.tensor([[0.5, 0.4], [0.5, 0.5]]), torch.zeros(2), "sum to 1, got row 0 with the sum 0.9"),
        (torch.tensor([[float("nan"), 0.4]]), torch.zeros(1), "sum to 1, got row 0 with the sum nan"),
    ],
)
def test_values_that_are_no_probabilities_are_refused(probabilities, labels, problem):
    with pytest.raises(ValueError, match=problem):
        compute_metrics.__wrapped__(probabilities, labels.long())


def test_a_wrong_level_or_number_of_draws_is_refused():
    with pytest.raises(ValueError, match=r"level must lie in \(0, 1\), got 1"):
        compute_intervals(*tensors(0), level=1.0)
    with pytest.raises(ValueError, match="draws must be at least 1, got 0"):
        compute_intervals(*tensors(0), draws=0)
