"""`Auto`: what it does with losses that are made by hand, and on data in which the color is the class."""

import math
import pickle

import numpy as np
import pytest
import torch

import outspan
from outspan.policies.auto import NAMES

IMAGES = torch.randint(0, 256, (200, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(200) % 10
STEPS = 200


def make(epochs=20.0, propose=None, **settings) -> outspan.Auto:
    propose = outspan.uniform(depth=2) if propose is None else propose
    return outspan.Auto(propose, epochs=epochs, **{"classes": 10, "steps": STEPS, **settings})


def has(batch, name) -> torch.Tensor:
    """Return which samples of a batch got a transform."""
    if name not in batch.plan.names:
        return torch.zeros(len(batch.targets), dtype=torch.bool)
    return (batch.plan.ops == batch.plan.names.index(name)).any(1)


def entropy(targets) -> torch.Tensor:
    return torch.distributions.Categorical(probs=targets).entropy()


def teach(policy, fit, steps=range(STEPS)):
    """Let the policy learn from losses with the fit that a function of the batch returns, one per sample."""
    for step in steps:
        batch = policy(IMAGES, LABELS, step=step)
        policy.learn(entropy(batch.targets) - fit(batch).log(), step=step)


def weight(policy, name) -> float:
    return policy.weights[NAMES.index(name)]


@pytest.mark.parametrize(
    ("epochs", "strength"),
    [(1, 0), (2.8, 0), (2.8 * 50**0.5 / 2.8**0.5, 0.5), (50, 1), (200, 1), (200 * 2**0.5, 1.5), (400, 2), (1000, 2)],
)
def test_strength_starts_from_the_number_of_epochs(epochs, strength):
    assert make(epochs).adapted == pytest.approx(strength)


@pytest.mark.parametrize(("epochs", "limit"), [(1, 1), (50, 1), (100, 1.5), (200, 2), (1000, 2)])
def test_strength_rises_to_its_limit_while_the_model_fits_well(epochs, limit):
    policy = make(epochs)
    teach(policy, lambda batch: torch.full((200,), 0.98))
    assert policy.adapted == pytest.approx(limit)
    assert bool((policy.weights == 1).all())


@pytest.mark.parametrize("fit", [0.3, 0.5, 0.75])
def test_strength_stays_at_a_moderate_fit(fit):
    policy = make(20)
    start = policy.adapted
    teach(policy, lambda batch: torch.full((200,), fit))
    assert policy.adapted == pytest.approx(start)


def test_strength_does_not_rise_late_in_the_run_when_the_fit_rises_because_the_learning_rate_falls():
    policy = make(20)
    start = policy.adapted
    teach(policy, lambda batch: torch.full((200,), 0.7), range(STEPS * 6 // 10))
    teach(policy, lambda batch: torch.full((200,), 0.99), range(STEPS * 6 // 10, STEPS))
    assert policy.adapted == pytest.approx(start)


def test_beyond_1_the_strength_rises_only_if_the_model_fits_very_well():
    for epochs, strength in ((50, 1.0), (200, 1.0)):
        policy = make(epochs)
        teach(policy, lambda batch: torch.full((200,), 0.94))
        assert policy.adapted == pytest.approx(strength)


@pytest.mark.parametrize(
    ("epochs", "fit", "lowest"), [(12, 0.4, 0.5049), (50, 0.1, 0.0), (50, 0.4, 1.0), (400, 0.1, 0.0), (400, 0.4, 1.0)]
)
def test_strength_falls_if_the_model_learns_too_little_but_not_early(epochs, fit, lowest):
    policy = make(epochs)
    start = policy.adapted
    teach(policy, lambda batch: torch.full((200,), fit), range(STEPS // 5))
    assert policy.adapted == pytest.approx(start)
    teach(policy, lambda batch: torch.full((200,), fit), range(STEPS // 5, STEPS))
    assert policy.adapted == pytest.approx(lowest, abs=1e-4)


def test_strength_returns_to_its_start_when_the_model_learns_again():
    policy = make(50)
    teach(policy, lambda batch: torch.full((200,), 0.1), range(STEPS // 2))
    assert policy.adapted == 0
    teach(policy, lambda batch: torch.full((200,), 0.6), range(STEPS // 2, STEPS))
    assert policy.adapted == pytest.approx(1)
    policy = make(20, steps=20)  # a round is a twentieth of the run, so that one step would go too far
    start, policy.adapted = policy.adapted, 0.0
    teach(policy, lambda batch: torch.full((200,), 0.6), range(20))
    assert policy.adapted == pytest.approx(start)


def test_labels_of_one_class_alone_teach_nothing():
    policy = make(20)
    start = policy.adapted
    for step in range(20):
        policy(IMAGES, torch.zeros(200, dtype=torch.int64), step=step)
        policy.learn(torch.full((200,), 0.01), step=step)
    assert policy.adapted == pytest.approx(start)


def test_strength_does_not_rise_where_the_model_only_knows_the_largest_class():
    policy, labels = make(2), (torch.arange(200) % 20 == 0).long()  # 95 % are of class 0
    for step in range(STEPS):
        batch = policy(IMAGES, labels, step=step)
        policy.learn(-torch.where(labels == 0, 0.95, 0.05).log(), step=step)
        assert len(batch.plan.ops) == 200
    assert policy.adapted == 0


def test_strength_is_lower_while_the_model_has_learned_less_of_a_rare_class():
    policy, again = make(100, outspan.natural(), classes=2), make(100, outspan.natural(), classes=2)
    labels = (torch.arange(200) % 4 == 0).long()

    def learn(rare, frequent, steps):
        for step in steps:
            batch = policy(IMAGES, labels, step=step)
            policy.learn(entropy(batch.targets) - torch.where(labels == 1, rare, frequent).log(), step=step)

    learn(0.5, 0.95, range(STEPS // 2))
    samples = (0.25 * 0.5 + 0.75 * 0.95 - 0.625) / (1 - 0.625)  # learned beyond chance: 0.75² + 0.25² = 0.625
    classes = (0.5 * 0.5 + 0.5 * 0.95 - 0.5) / (1 - 0.5)
    assert policy.metrics()["strength"] == pytest.approx(classes / samples, abs=1e-3)
    again.load_state_dict(policy.state_dict())
    assert again.metrics() == policy.metrics()
    learn(0.8, 0.8, range(STEPS // 2, STEPS))
    assert policy.metrics()["strength"] == pytest.approx(1)


@pytest.mark.parametrize(("steps", "every"), [(399, 1), (400, 4)])
def test_longer_runs_read_every_4th_step_and_leave_samples_without_transforms_only_there(steps, every):
    policy = make(200, outspan.natural(), steps=steps)
    fits = [0.98 if step % every == 0 else 0.1 for step in range(steps)]
    for step, fit in enumerate(fits):
        batch = policy(IMAGES, LABELS, step=step)
        assert bool((batch.plan.ops < 0).all(1).any()) == (fit == 0.98)
        policy.learn(torch.full((200,), -math.log(fit)), step=step)
    assert policy.adapted == pytest.approx(2)


def test_one_in_16_samples_has_no_transforms_so_that_their_fit_is_known():
    policy = make(200, outspan.natural())
    untouched = torch.stack([(policy(IMAGES, LABELS, step=step).plan.ops < 0).all(1) for step in range(16)])
    assert untouched.sum(0).tolist() == [1] * 200

    def fit(batch):  # without transforms the model fits well, with two it does not
        return torch.where((batch.plan.ops < 0).all(1), 0.98, 0.6)

    teach(policy, fit)
    assert policy.adapted == pytest.approx(2)


@pytest.mark.parametrize(("epochs", "mixed"), [(200, 0.0), (200 * 2**0.5, 0.25), (400, 0.5), (1000, 0.5)])
def test_long_runs_also_mix_samples(epochs, mixed):
    policy = make(epochs, mix=outspan.cutmix())
    policy.adapted = 1.0
    assert not has(policy(IMAGES, LABELS, step=0), "cutmix").any()
    teach(policy, lambda batch: torch.full((200,), 0.98))
    assert policy.metrics()["strength"] == pytest.approx(2)
    assert policy.metrics()["mixed"] == pytest.approx(mixed, abs=1e-6)
    batches = [policy(IMAGES, LABELS, step=step) for step in range(20)]
    fraction = np.mean([float(has(batch, "cutmix").double().mean()) for batch in batches])
    assert fraction == pytest.approx(mixed * 15 / 16, abs=0.03)
    assert policy.describe() == "strength 2.00" + (f", {100 * mixed:.0f} % mixed" if mixed else "")


def test_a_transform_that_hides_the_label_becomes_rare_and_returns_when_it_is_learned():
    def hidden(batch):
        return torch.where(has(batch, "invert"), 0.15, 0.7) * torch.where(has(batch, "rotate"), 0.8, 1.0)

    policy = make(100)
    teach(policy, hidden, range(STEPS // 2))
    assert 0.05 <= weight(policy, "invert") < 0.3
    assert weight(policy, "rotate") == 1
    assert policy.describe() == "strength 1.00, rarely invert"
    assert policy.metrics() == {"strength": 1.0} | {f"weight_{name}": weight(policy, name) for name in outspan.PAPER_16}
    fractions = [float(has(policy(IMAGES, LABELS, step=step), "invert").double().mean()) for step in range(20)]
    assert np.mean(fractions) < 0.4 / 16  # 1/16 before: two of 16 transforms, each applied with probability 0.5
    teach(policy, lambda batch: torch.full((200,), 0.7), range(STEPS // 2, STEPS))
    assert weight(policy, "invert") == 1


def test_weak_transforms_are_used_if_a_trial_shows_that_they_keep_the_label():
    def fit(batch):  # a crop hides a part of what the model has to see, as for digits
        return torch.where(has(batch, "random_crop"), 0.5, 0.7)

    policy = make(100, outspan.natural(), weak=outspan.crop_and_flip())
    trial = [policy(IMAGES, LABELS, step=step) for step in range(20)]
    for name, fraction in (("random_crop", 0.15), ("horizontal_flip", 0.075)):  # a flip has probability 0.5
        assert np.mean([float(has(batch, name).double().mean()) for batch in trial]) == pytest.approx(fraction, abs=0.02)
    teach(policy, fit, range(19))
    metrics = policy.metrics()
    assert metrics["strength"] == 0.5  # what is applied in the trial
    assert not {"weight_random_crop", "weight_horizontal_flip"} & metrics.keys()
    teach(policy, fit, range(19, 20))
    assert policy.safe == {"random_crop": 0.0, "horizontal_flip": 1.0}
    assert policy.metrics()["strength"] == 1
    assert policy.describe() == "strength 1.00, with horizontal_flip"
    assert policy.metrics()["weight_random_crop"] == 0
    batches = [policy(IMAGES, LABELS, step=step) for step in range(20, 44)]
    assert not any(has(batch, "random_crop").any() for batch in batches)
    flipped = np.mean([float(has(batch, "horizontal_flip").double().mean()) for batch in batches])
    assert flipped == pytest.approx(0.5 * 15 / 16, abs=0.03)
    teach(policy, lambda batch: torch.full((200,), 0.7), range(20, STEPS))
    assert policy.safe == {"random_crop": 0.0, "horizontal_flip": 1.0}  # the trial is not repeated


@pytest.mark.parametrize(("epochs", "factor"), [(12, 0.4), (50, 0.4), (100, 0.7), (200, 1), (1000, 1)])
def test_with_crops_the_other_transforms_are_weaker_except_in_long_runs(epochs, factor):
    policy = make(epochs, weak=outspan.crop_and_flip())
    teach(policy, lambda batch: torch.full((200,), 0.7))
    assert policy.safe == {"random_crop": 1.0, "horizontal_flip": 1.0}
    assert policy.metrics()["strength"] == pytest.approx(factor * policy.adapted)
    policy.safe["random_crop"] = 0.0
    assert policy.metrics()["strength"] == policy.adapted  # a flip changes nothing


def test_a_flip_must_lower_the_fit_less_than_a_crop_to_be_used():
    def fit(batch):  # each lowers it by 18 %
        return 0.7 * torch.where(has(batch, "random_crop"), 0.82, 1.0) * torch.where(has(batch, "horizontal_flip"), 0.82, 1.0)

    policy = make(100, outspan.natural(), weak=outspan.crop_and_flip())
    teach(policy, fit, range(20))
    assert policy.safe["random_crop"] > 0
    assert policy.safe["horizontal_flip"] == 0


@pytest.mark.parametrize("loss", [math.log(10), math.nan])
def test_weak_transforms_are_not_used_if_the_model_has_learned_nothing_in_the_trial(loss):
    policy = make(100, weak=outspan.crop_and_flip())
    for step in range(STEPS // 4 + 2):  # the first end of a round
        assert set(policy.safe.values()) == {-1.0}  # a model that learns slowly gets more time
        policy(IMAGES, LABELS, step=step)
        policy.learn(torch.full((200,), loss), step=step)
    assert policy.safe == {"random_crop": 0.0, "horizontal_flip": 0.0}


@pytest.mark.parametrize(("classes", "used"), [(4, 0.0), (10, 1.0)])
def test_the_harm_of_a_weak_transform_is_relative_to_what_was_learned(classes, used):
    policy, labels = make(100, weak=outspan.crop_and_flip(), classes=classes), LABELS % classes
    for step in range(20):
        batch = policy(IMAGES, labels, step=step)
        policy.learn(-torch.where(has(batch, "random_crop"), 0.5, 0.6).log(), step=step)  # 0.1 of 0.35, or of 0.5
    assert policy.safe["random_crop"] == used


def test_a_weak_transform_that_hides_all_that_was_learned_is_not_used_with_two_classes():
    policy, labels = make(100, weak=outspan.crop_and_flip(), classes=2), LABELS % 2
    for step in range(24):
        batch = policy(IMAGES, labels, step=step)
        policy.learn(-torch.where(has(batch, "horizontal_flip"), 0.5, 0.6).log(), step=step)  # 0.5 is chance
    assert policy.safe["horizontal_flip"] == 0


def test_without_a_decision_weak_transforms_are_not_used():
    policy = make(100, weak=outspan.crop_and_flip())
    assert policy.describe() == "strength 0.50"  # the trial's
    assert not any(
        has(policy(IMAGES, LABELS, step=step), "random_crop").any() for step in range(STEPS // 4 + 2, STEPS // 4 + 18)
    )


def test_the_confidence_in_samples_does_not_decide_the_trial():
    policy = make(100, weak=outspan.crop_and_flip())
    batch = policy(IMAGES, LABELS, step=0, confidence=torch.zeros(200))
    assert float(has(batch, "random_crop").double().mean()) == pytest.approx(0.6 * 15 / 16, abs=0.1)


def test_in_the_trial_the_other_transforms_are_weaker():
    policies = [make(100, outspan.natural(), weak=weak) for weak in (None, outspan.crop_and_flip())]
    levels = [float(policy(IMAGES, LABELS, step=0).plan.levels[:, :2].abs().mean()) for policy in policies]
    assert levels[1] == pytest.approx(levels[0] / 2)


def test_weak_transforms_are_not_used_if_the_trial_has_too_few_samples_to_tell():
    policy = make(100, steps=50, weak=outspan.crop_and_flip())
    for step in range(7):
        policy(IMAGES[:4], LABELS[:4], step=step)
        policy.learn(torch.full((4,), 0.3), step=step)
    assert policy.safe == {"random_crop": 0.0, "horizontal_flip": 0.0}


def test_long_runs_end_the_trial_before_the_samples_are_memorized():
    policy = make(1000, weak=outspan.crop_and_flip())
    teach(policy, lambda batch: torch.full((200,), 0.7), range(12))  # 3 rounds, the fewest
    assert policy.safe == {"random_crop": 1.0, "horizontal_flip": 1.0}


@pytest.mark.parametrize(("defaults", "tried"), [("flip", ["random_crop"]), ("cifar-cutout", [])])
def test_default_transforms_need_no_trial(defaults, tried):
    policy = make(100, defaults=defaults, weak=outspan.crop_and_flip())
    assert list(policy.safe) == tried
    plan = policy(IMAGES, LABELS, step=0).plan
    assert plan.names.count("horizontal_flip") == 1


def test_the_regression_tells_transforms_apart_that_often_occur_together():
    steps = [outspan.Step("invert"), outspan.Step("rotate", -1, 1, 0.5)]
    policy = make(50, outspan.any_of(steps, 2, replacement=True))
    teach(policy, lambda batch: torch.where(has(batch, "invert"), 0.15, 0.7), range(100))
    assert weight(policy, "invert") < 0.3
    assert weight(policy, "rotate") == 1


def test_the_default_transforms_are_not_judged():
    policy = make(50, defaults="flip")
    teach(policy, lambda batch: torch.where(has(batch, "horizontal_flip"), 0.1, 0.9), range(100))
    assert bool((policy.weights == 1).all())


def test_losses_that_are_not_finite_do_no_harm():
    policy = make(20)
    for step in range(STEPS):
        policy(IMAGES, LABELS, step=step)
        policy.learn(torch.full((200,), math.nan if step % 2 else math.inf), step=step)
    assert np.isfinite(policy.weights).all()
    assert 0 <= policy.adapted <= 1


def test_in_the_finish_there_are_only_defaults_and_nothing_adapts():
    policy = make(50, finish=0.5, defaults="flip")
    teach(policy, lambda batch: torch.where(has(batch, "invert"), 0.1, 0.7))
    assert policy(IMAGES, LABELS, step=STEPS // 2).plan.names == ("horizontal_flip",)
    assert weight(policy, "invert") < 0.3  # as it was before the finish


def test_strength_multiplies_what_the_policy_chooses():
    policy = make(100, strength=0.0)
    assert policy(IMAGES, LABELS, step=0).plan.names == ()
    assert make(400, strength=0.5, mix=outspan.cutmix()).metrics()["mixed"] == 0.25
    assert make(100, strength=0.5).metrics() == {"strength": 0.5}


def test_a_policy_that_continues_from_its_state_makes_the_same_batches():
    def fit(batch):
        return torch.where(has(batch, "invert"), 0.2, 0.9)

    policy = make(20, seed=4, weak=outspan.crop_and_flip())
    teach(policy, fit, range(30))
    state = policy.state_dict()
    stored = {name: tensor.clone() for name, tensor in state.items()}
    again = make(20, seed=4, weak=outspan.crop_and_flip())
    again.load_state_dict(state)
    for one in (policy, again, pickle.loads(pickle.dumps(again))):  # noqa: S301
        teach(one, fit, range(30, 90))
    assert all(torch.equal(state[name], tensor) for name, tensor in stored.items())  # `learn` does not change a state
    assert again.adapted == policy.adapted
    assert again.safe == policy.safe == {"random_crop": 1.0, "horizontal_flip": 1.0}
    assert np.array_equal(again.weights, policy.weights)
    assert torch.equal(again(IMAGES, LABELS, step=90).inputs, policy(IMAGES, LABELS, step=90).inputs)
    with pytest.raises(ValueError, match=r"the checkpoint has no tensor 'policy.sums'"):
        again.load_state_dict({name: tensor for name, tensor in state.items() if name != "sums"})
    with pytest.raises(ValueError, match=r"the checkpoint's tensor 'policy.weights' must be .* got"):
        again.load_state_dict(state | {"weights": torch.ones(3)})


def test_a_state_from_before_transforms_were_added_continues():
    policy, again = make(20, seed=4), make(20, seed=4)
    teach(policy, lambda batch: torch.where(has(batch, "invert"), 0.2, 0.9), range(30))
    state, names = policy.state_dict(), len(NAMES) - 4  # the last ones are of texts
    old = {
        "counts": state["counts"][: 1 + names, : 1 + names],
        "sums": state["sums"][: 1 + names],
        "weights": state["weights"][:names],
    }
    again.load_state_dict(state | old)
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in state.items())


def test_wrong_arguments_are_refused(unchecked):
    for arguments, message in (
        ({"steps": None}, "steps is missing: pass the total number of steps of the run"),
        ({"epochs": 0}, "epochs must be a positive number, got 0"),
        ({"epochs": math.inf}, "epochs must be a positive number, got inf"),
        ({"epochs": "20"}, "epochs must be a number, got '20'"),
        ({"label_smoothing": 1.5}, "label_smoothing is out of range, got 1.5"),
        ({"mix": "cutmix"}, "mix must be a proposal such as"),
        ({"weak": outspan.crop_and_flip}, "weak must be a proposal such as"),
        ({"weak": outspan.augmix()}, "weak must be a proposal with one row per sample, got one that mixes versions"),
        ({"mix": outspan.Schedule((outspan.cutmix(),), ())}, "mix must be a proposal with one row per sample, got a schedule"),
        ({"propose": "random"}, "propose must be a proposal such as"),
        ({"preprocess": torch.nn.Identity()}, "preprocess must be an outspan.Normalize"),
        ({"strength": -1}, "strength is out of range"),
    ):
        with pytest.raises(ValueError, match=message):
            make(**arguments)
    policy = make()
    with pytest.raises(ValueError, match=r'reduction="none": got \[200\] for no batch'):
        policy.learn(torch.ones(200), step=0)
    policy(IMAGES, LABELS, step=0)
    with pytest.raises(ValueError, match=r'reduction="none": got \[\] for a batch of 200'):
        policy.learn(torch.tensor(1.0), step=0)


def test_colors_are_left_alone_where_they_are_the_class():
    """The class of a patch is its hue. auto_contrast changes it, invert turns it into the hue of another class."""
    generator = torch.Generator().manual_seed(0)
    hues = torch.tensor([[1, 0.4, 0.4], [1, 1, 0.4], [0.4, 1, 0.4], [0.4, 1, 1], [0.4, 0.4, 1], [1, 0.4, 1]])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 64), torch.nn.ReLU(), torch.nn.Linear(64, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    policy = make(30, classes=6, steps=360, preprocess=outspan.Normalize((0.5,) * 3, (0.25,) * 3))
    for step in range(360):
        labels = torch.randint(0, 6, (100,), generator=generator)
        grey = 60 + 190 * torch.rand(100, 1, 8, 8, generator=generator)  # new in every step: nothing can be memorized
        images = (grey * hues[labels].view(-1, 3, 1, 1)).to(torch.uint8)
        batch = policy(images, labels, step=step)
        losses = outspan.soft_cross_entropy(model(batch.inputs), batch.targets, reduction="none")
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        policy.learn(losses.detach(), step=step)
        if step == 180:  # later the model learns to tell inverted colors apart
            assert weight(policy, "invert") < 0.5
    assert weight(policy, "auto_contrast") < 0.3
    assert min(weight(policy, name) for name in ("rotate", "shear_x", "translate_y", "cutout", "posterize")) == 1
