"""`HardSamples`: how often easy and hard samples come, what stops it, and how it continues from its state."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import outspan
from outspan import HardSamples, rng
from outspan.data.sets import load_for
from outspan.policies.losses import excess_loss
from outspan.training.run import Run
from outspan.training.setup import Options, build_setup

SIZE = 1000
HARD = torch.arange(SIZE) < 300


def make(**settings) -> HardSamples:
    return HardSamples(SIZE, **{"epochs": 20, "classes": 10, **settings})


def teach(sampler, epochs, losses=None, batch=64) -> None:
    """Run epochs in which each sample has a fixed loss: 1.5 if it is hard and 0.01 if it is easy."""
    losses = torch.where(HARD, 1.5, 0.01) if losses is None else losses
    for epoch in epochs:
        sampler.set_epoch(epoch)
        for rows in sampler.order().split(batch):
            sampler.learn(rows, losses[rows])


def counts(sampler, epochs) -> torch.Tensor:
    """Return how often each sample comes in some epochs."""
    total = torch.zeros(SIZE)
    for epoch in epochs:
        sampler.set_epoch(epoch)
        total += torch.bincount(sampler.order(), minlength=SIZE)
    return total


def test_an_epoch_without_losses_is_a_random_order_of_all_samples():
    sampler = make(seed=3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        order = rng.generator(3, "order", epoch).permutation(SIZE)
        assert list(sampler) == order.tolist()
    assert len(sampler) == SIZE
    assert sampler.metrics() == {"skipped": 0.0}


@pytest.mark.parametrize("skip", [0.25, 0.5, 0.9])
def test_easy_samples_come_less_often_by_the_fraction_that_is_skipped(skip):
    sampler = make(skip=skip, epochs=1000)
    teach(sampler, range(2))
    total = counts(sampler, range(2, 202))
    assert total.sum() == 200 * SIZE  # an epoch is as long as before
    assert float(total[~HARD].mean() / total[HARD].mean()) == pytest.approx(1 - skip, abs=0.02)
    assert sampler.metrics()["skipped"] == pytest.approx(0.7 * skip, abs=1e-6)
    assert float(total.min()) > 0


def test_skip_0_is_a_random_order_and_stores_nothing():
    sampler = make(skip=0.0, store=False)
    teach(sampler, range(4))
    assert sorted(sampler) == list(range(SIZE))
    assert sampler.state_dict() == sampler.metrics() == {}


@pytest.mark.parametrize(("epochs", "stores"), [(3, False), (4, True)])
def test_runs_too_short_to_leave_out_samples_store_nothing(epochs, stores):
    assert HardSamples(100, epochs=epochs, classes=10, store=False).store == stores
    assert HardSamples(100, epochs=epochs, classes=10, store=True).store


@pytest.mark.parametrize(("epochs", "last"), [(16, 14), (6, 5), (3.5, 3), (20, 17)])
def test_the_epochs_of_the_last_eighth_train_on_all_samples(epochs, last):
    sampler = make(epochs=epochs)
    teach(sampler, range(last))
    assert sampler.metrics()["skipped"] > 0.3
    sampler.set_epoch(last)
    assert sampler.metrics()["skipped"] == 0
    assert sorted(sampler) == list(range(SIZE))


@pytest.mark.parametrize(("wrong", "skipped"), [(0.0, 0.5), (0.03, 0.5), (0.06, 0.25), (0.1, 0.0), (0.2, 0.0)])
def test_nothing_is_skipped_while_many_samples_are_predicted_worse_than_by_chance(wrong, skipped):
    losses = torch.where(torch.arange(SIZE) < wrong * SIZE, 1.01 * math.log(10), torch.where(HARD, 0.99 * math.log(10), 0.01))
    sampler = make()
    teach(sampler, range(2), losses)
    sampler.set_epoch(2)
    assert sampler._fraction() == pytest.approx(skipped, abs=1e-6)


def test_samples_that_are_only_now_and_then_predicted_badly_are_skipped_all_the_same():
    bad, good = torch.full((SIZE,), 5.0), torch.where(HARD, 1.5, 0.01)
    sampler = make()
    for epoch in range(4):
        teach(sampler, [epoch], bad if epoch % 2 == 0 else good)
    sampler.set_epoch(4)
    assert sampler._fraction() == 0.5


@given(st.integers(1, 40), st.integers(1, 17), st.integers(0, 5), st.integers(0, 40))
def test_a_sampler_that_continues_from_its_state_gives_the_same_orders(size, batch, stopped_epoch, stopped_batch):
    def run(stop):
        sampler, orders = HardSamples(size, epochs=8, classes=4, seed=1), []
        for epoch in range(8):
            sampler.set_epoch(epoch)
            for number, rows in enumerate(sampler.order().split(batch)):
                if stop == (epoch, number):
                    state = {name: tensor.clone() for name, tensor in sampler.state_dict().items()}
                    sampler = HardSamples(size, epochs=8, classes=4, seed=1)
                    sampler.load_state_dict(state)
                    assert torch.equal(sampler.order().split(batch)[number], rows)
                orders.append(rows)
                sampler.learn(rows, (rows.float() % 7) / 3 + epoch / 10)
        return torch.cat(orders)

    assert torch.equal(run(None), run((stopped_epoch, stopped_batch)))


def test_losses_that_are_not_finite_skip_nothing():
    sampler = make()
    teach(sampler, range(3), torch.full((SIZE,), math.nan))
    sampler.set_epoch(3)
    assert sorted(sampler) == list(range(SIZE))


def test_wrong_arguments_are_refused(unchecked):
    for arguments, message in (
        ({"size": 0}, "size must be at least 1, got 0"),
        ({"epochs": 0}, "epochs must be a positive number, got 0"),
        ({"classes": 1}, "classes must be at least 2, got 1"),
        ({"skip": 0.95}, r"skip must lie in \[0, 0.9\], got 0.95"),
        ({"skip": -1}, r"skip must lie in \[0, 0.9\], got -1"),
        ({"skip": "half"}, "skip must be a number, got 'half'"),
    ):
        with pytest.raises(ValueError, match=message):
            HardSamples(**{"size": 10, "epochs": 2, "classes": 2, **arguments})
    sampler = HardSamples(4, epochs=2, classes=2)
    with pytest.raises(
        ValueError, match=r'losses must be one per sample, got torch.float32 \[\] .*: compute .*reduction="none"'
    ):
        sampler.learn(torch.arange(2), torch.tensor(1.0))
    for rows in ([0, 1], torch.tensor([0.0, 1.0])):
        with pytest.raises(ValueError, match=r"rows must be a tensor of whole numbers \[B\], got"):
            sampler.learn(rows, torch.ones(2))
    with pytest.raises(ValueError, match=r"rows must lie in \[0, 3\], got 2 to 4"):
        sampler.learn(torch.tensor([2, 4]), torch.ones(2))
    sampler.learn(torch.arange(4), torch.ones(4))
    with pytest.raises(ValueError, match="epoch 0 has 4 samples and got the losses of more: call set_epoch"):
        sampler.learn(torch.arange(1), torch.ones(1))
    with pytest.raises(ValueError, match=r"the checkpoint has no tensor 'samples.epoch'"):
        sampler.load_state_dict({})
    with pytest.raises(ValueError, match=r"are not those of a run"):
        sampler.load_state_dict(sampler.state_dict() | {"rows": torch.full((4,), 9)})
    with pytest.raises(ValueError, match=r"are not those of a run"):
        sampler.load_state_dict(sampler.state_dict() | {"last": torch.full((4,), math.inf)})


def test_training_leaves_out_easy_samples_and_writes_how_many(tmp_path):
    summary = outspan.train(data="digits", model="mlp", policy="none", skip=0.5, epochs=8, fraction=0.3, out=tmp_path / "run")
    skipped = [row["skipped"] for row in summary.metrics]
    assert skipped[:2] == [0, 0]
    assert skipped[7] == 0
    assert 0.2 < np.mean(skipped[3:7]) < 0.5


def test_auto_skips_by_default_and_other_policies_do_not():
    for policy, skip, expected in (("auto", -1.0, 0.5), ("auto", 0.0, 0.0), ("random", -1.0, 0.0), ("random", 0.25, 0.25)):
        recipe = outspan.Recipe(policy=policy, skip=skip, model="mlp")
        setup = build_setup(recipe, outspan.load_data("digits"), Options(torch.device("cpu")))
        assert setup.samples.skip == expected


@pytest.mark.parametrize(("epochs", "skip"), [(100, 0.5), (150, 0.25), (200, 0.0), (500, 0.0)])
def test_auto_skips_less_in_long_runs(epochs, skip):
    recipe = outspan.Recipe(policy="auto", epochs=epochs, model="mlp")
    assert build_setup(recipe, outspan.load_data("digits"), Options(torch.device("cpu"))).samples.skip == pytest.approx(skip)


def test_the_excess_loss_is_the_divergence_of_the_prediction_from_the_target():
    logits, targets = torch.randn(5, 4), torch.softmax(torch.randn(5, 4), 1)
    losses = outspan.soft_cross_entropy(logits, targets, reduction="none")
    expected = torch.nn.functional.kl_div(logits.log_softmax(1), targets, reduction="none").sum(1)
    assert torch.allclose(excess_loss(losses, targets), expected, atol=1e-6)


def test_a_mixed_label_that_is_predicted_perfectly_is_easy_and_a_guess_is_worse_than_chance():
    targets = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    sampler = HardSamples(2, epochs=9, classes=3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        sampler.learn(torch.arange(2), torch.tensor([math.log(2), 1.2]), targets)
    sampler.set_epoch(2)
    assert sampler.confidence(torch.arange(2)).tolist() == pytest.approx([1.0, math.exp(-1.2)])
    assert sampler._wrong.tolist() == [0, 2]  # log(3) is 1.0986


def test_several_augmentations_of_a_sample_count_by_their_mean():
    sampler = HardSamples(2, epochs=9, classes=3)
    sampler.learn(torch.tensor([1, 0]), torch.tensor([1.0, 3.0, 0.0, 1.0]))
    sampler.set_epoch(1)
    assert sampler.confidence(torch.arange(2)).tolist() == pytest.approx([math.exp(-0.5), math.exp(-2)])


@pytest.mark.parametrize("policy", ["none", "uncertain"])
def test_training_stores_the_loss_of_each_sample_in_its_row(policy, tmp_path):
    recipe = outspan.Recipe(model="mlp", policy=policy, strength=0.0, keep=2, skip=0.5, lr=1e-12, epochs=4, fraction=0.1)
    data, device = load_for(recipe), torch.device("cpu")
    run = Run(build_setup(recipe, data, Options(device)), tmp_path, device)
    for epoch in range(2):  # the next epoch leaves out samples
        for inputs, labels in run.batches(epoch, 0):
            run.learn(run.augment(inputs, labels))
    logits = run.state.model(run.setup.splits.preprocess(data.train.images))
    expected = torch.nn.functional.cross_entropy(logits, data.train.labels, reduction="none")
    assert torch.allclose(torch.from_numpy(run.setup.samples._last), expected, atol=1e-5)


def test_equal_losses_are_not_easy():
    for loss in (0.1, 1.1, 2.2):
        sampler = make()
        teach(sampler, range(3), torch.full((SIZE,), loss))
        sampler.set_epoch(3)
        assert not sampler._easy().any()


def test_the_confidence_is_the_probability_of_the_label_in_the_last_epoch():
    sampler = HardSamples(3, epochs=4, classes=10, skip=0.0)
    sampler.learn(torch.tensor([0, 2]), -torch.tensor([0.25, 1.0]).log())
    assert sampler.confidence(torch.arange(3)).tolist() == [0, 0, 0]
    sampler.set_epoch(1)
    assert sampler.confidence(torch.tensor([2, 0, 1])).tolist() == pytest.approx([1.0, 0.25, 0.0])


@pytest.mark.parametrize("policy", ["random", "auto", "uncertain", "adversarial"])
def test_samples_without_confidence_are_not_augmented_by_any_policy(policy, unchecked):
    seen = []
    digits = outspan.load_data("digits")
    recipe = outspan.Recipe(policy=policy, by_confidence=1.0, model="mlp", epochs=100, adversaries=2)
    policy = build_setup(recipe, digits, Options(torch.device("cpu"))).policy
    for confidence in (torch.zeros(64), torch.ones(64), torch.arange(64) % 2 * 1.0):
        batch = policy(digits.train.images[:64], digits.train.labels[:64], step=1, confidence=confidence)
        plan = batch.plan
        seen.append([bool((plan.ops[plan.out][i] >= 0).any()) for i in range(len(plan.out))])
    copies = len(seen[0]) // 64
    assert not any(seen[0])
    assert sum(seen[1]) > 20
    assert not any(seen[2][i] for i in range(len(seen[2])) if i // copies % 2 == 0)
    for wrong in (torch.ones(3), torch.full((64,), 1.5), torch.full((64,), math.nan)):
        with pytest.raises(ValueError, match="confidence must"):
            policy(digits.train.images[:64], digits.train.labels[:64], step=1, confidence=wrong)


def test_half_of_the_confidence_is_half_of_the_levels_and_probabilities():
    images, labels = torch.zeros(2000, 1, 8, 8, dtype=torch.uint8), torch.zeros(2000, dtype=torch.int64)
    policy = outspan.Plain(outspan.sequence(outspan.Step("rotate", 1, 1)), classes=2)
    plan = policy(images, labels, step=0, confidence=torch.full((2000,), 0.5)).plan
    assert plan.levels.unique().tolist() == [0.5]
    assert float((plan.ops >= 0).float().mean()) == pytest.approx(0.5, abs=0.05)


def test_training_with_confidence_augments_new_samples_less(tmp_path):
    keys = {"data": "digits", "model": "mlp", "policy": "random", "fraction": 0.1, "epochs": 4}
    plain = outspan.train(**keys, out=tmp_path / "plain")
    careful = outspan.train(**keys, by_confidence=1.0, out=tmp_path / "careful")
    none = outspan.train(**{**keys, "policy": "none"}, out=tmp_path / "none")
    assert careful.metrics[0]["train_loss"] == none.metrics[0]["train_loss"]  # no sample was seen before
    assert careful.metrics[3]["train_loss"] < plain.metrics[3]["train_loss"]
