"""`Fits`: the regression against least squares, and chance against its definition."""

import numpy as np
import pytest
import torch

import outspan
from outspan.policies.fits import NAMES, Fits, indicators
from outspan.policies.losses import smooth


def draw(rows, seed=0) -> outspan.Plan:
    return outspan.uniform(depth=2)(rows, rng=outspan.rng.generator(seed, "fits"))


def add(fits, plan, fit) -> None:
    """Add a batch of samples of class 0 with these fits."""
    targets = torch.nn.functional.one_hot(torch.zeros(len(fit), dtype=torch.int64), fits.classes).float()
    fits.add(indicators(plan), -torch.as_tensor(fit).float().log(), targets)


def test_indicators_are_the_transforms_of_each_row():
    plan = outspan.Plan.of([["rotate", "invert"], ["invert"], []], levels=[[0.5, 0.0], [0.0], []])
    rows = indicators(plan)
    assert rows[:, 0].tolist() == [1, 1, 1]
    assert [[NAMES[i] for i in np.flatnonzero(row[1:])] for row in rows] == [["invert", "rotate"], ["invert"], []]


def test_estimates_are_those_of_least_squares():
    rng, fits, plan = np.random.default_rng(0), Fits(10, 0.0), draw(5000)
    x = indicators(plan)
    y = (0.8 - 0.3 * x[:, 1 + NAMES.index("invert")] + 0.05 * rng.normal(size=len(x))).clip(0.01, 1)
    add(fits, plan, y)
    used = np.flatnonzero(x.any(0))
    expected = np.linalg.lstsq(x[:, used], y, rcond=None)[0]
    estimate = fits.estimate()
    assert estimate.fit == pytest.approx(expected[0], abs=2e-3)
    assert -estimate.drops[used[1:] - 1] == pytest.approx(expected[1:], abs=5e-3)  # a ridge draws them to 0 a little
    assert estimate.errors[used[1:] - 1] == pytest.approx(0.35 / np.sqrt(x[:, used[1:]].sum(0)))
    assert [NAMES[i] for i in np.flatnonzero(fits.drawn())] == sorted(plan.names, key=NAMES.index)


def test_recent_rounds_weigh_more():
    fits = Fits(10, 0.0)
    plan = outspan.Plan.of([[]] * 100, levels=[[]] * 100)
    for fit in (0.2, 0.6):
        add(fits, plan, np.full(100, fit))
        fits.end_round()
    assert fits.estimate().fit == pytest.approx((0.8 * 0.2 + 0.6) / 1.8, abs=1e-4)


def test_learned_is_relative_to_chance():
    fits = Fits(2, 0.0)
    rows, targets = np.ones((200, 1)), torch.eye(2).repeat(100, 1)
    fits.add(rows, -torch.full((200,), 0.75).log(), targets)
    assert fits.estimate().chance == pytest.approx(0.5)
    assert fits.estimate().learned == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_chance_is_the_fit_of_the_best_constant_prediction(smoothing):
    fits = Fits(4, smoothing)
    labels = torch.tensor([0] * 100 + [1] * 50 + [2] * 40 + [3] * 10)
    one_hot = torch.nn.functional.one_hot(labels, 4)
    fits.add(np.ones((200, 1)), torch.ones(200), one_hot.float())
    targets = smooth(one_hot.double(), smoothing)
    divergence = torch.nn.functional.kl_div(targets.mean(0).log().expand_as(targets), targets, reduction="none").sum(1)
    assert fits.estimate().chance == pytest.approx(float(torch.exp(-divergence).mean()), abs=1e-6)


@pytest.mark.parametrize(("counts", "by_class", "evenness"), [
    ((50, 50, 0), (0.9, 0.7, 0.5), 1.0),  # balanced, and a class that does not occur
    ((90, 10, 0), (0.9, 0.9, 0.5), 1.0),  # the rare class is learned better than chance expects
    ((90, 10, 0), (1.0, 0.5, 0.5), 0.5 / ((0.95 - 0.82) / (1 - 0.82))),
    ((90, 10, 0), (1.0, 0.1, 0.5), 0.1 / ((0.91 - 0.82) / (1 - 0.82))),
])  # fmt: skip
def test_evenness_compares_what_was_learned_of_classes_and_of_samples(counts, by_class, evenness):
    fits, labels = Fits(3, 0.0), torch.arange(3).repeat_interleave(torch.tensor(counts))
    fits.add(np.ones((100, 1)), -torch.tensor(by_class)[labels].log(), torch.nn.functional.one_hot(labels, 3).float())
    assert fits.estimate().evenness == pytest.approx(evenness, abs=1e-3)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_perfect_prediction_of_a_mixed_or_smoothed_label_fits_perfectly(smoothing):
    fits, targets = Fits(10, smoothing), torch.softmax(3 * torch.randn(50, 10, generator=torch.Generator().manual_seed(0)), 1)
    losses = torch.distributions.Categorical(probs=smooth(targets, smoothing)).entropy()
    fits.add(np.ones((50, 1)), losses, targets)
    assert fits.estimate().fit == pytest.approx(1, abs=1e-3)
