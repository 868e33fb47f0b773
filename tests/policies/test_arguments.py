"""Wrong arguments of proposals and policies are refused by name when they are passed."""

import pytest
import torch

from outspan import Adversarial, Plain, Uncertain, uniform
from outspan.policies.proposals import any_of, sequence
from outspan.policies.published import augmix, cutmix, mixup, trivialaugment
from outspan.policies.steps import Schedule, Step

MODEL = torch.nn.Linear(1, 1)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: any_of(["rotate", "invert"], 2),
            r"any_of takes steps, got 'rotate': write any_of\(\[Step\(name\), ...\], depth\)",
        ),
        (lambda: any_of([[Step("rotate")]], 1), "any_of takes steps, got .Step"),
        (lambda: any_of(["rotat"], 1), "unknown transform 'rotat', did you mean 'rotate'"),
        (lambda: uniform(depth=2.0), "depth must be a whole number, got 2.0"),
        (lambda: uniform(depth=-1), "depth must be at least 0, got -1"),
        (lambda: uniform(2, transforms=("rotate",)), r"depth must lie in \[0, 1\], .*, got 2: set depth=1, or add transforms"),
        (lambda: Step("rotate", 0, 1, "0.5"), "probability of step 'rotate' must be a number, got '0.5'"),
        (lambda: Step("rotate", "0"), "low of step 'rotate' must be a number, got '0'"),
        (lambda: Step("rotate", bins=2.5), "bins of step 'rotate' must be a whole number, got 2.5"),
        (lambda: mixup(0), "alpha must be a positive number, got 0"),
        (lambda: cutmix(float("inf")), "alpha must be a positive number, got inf"),
        (lambda: cutmix("1"), "alpha must be a number, got '1'"),
        (lambda: augmix(alpha=-1), "alpha must be a positive number, got -1"),
        (lambda: augmix(depth=0), "depth must be at least 1, got 0"),
        (lambda: augmix(width=0), "width must be at least 1, got 0"),
        (lambda: trivialaugment(side=0), "side must be at least 1, got 0"),
        (lambda: Schedule((uniform(), uniform()), (1, 2, 3)), "ends must be 1 steps in ascending order, .*, got .1, 2, 3"),
        (lambda: Schedule((uniform(), uniform(), uniform()), (2, 1)), "ends must be 2 steps in ascending order"),
        (lambda: Plain(uniform(), classes="10"), "classes must be a whole number, got '10'"),
        (lambda: Plain(uniform(), classes=10.0), "classes must be a whole number, got 10.0"),
        (lambda: Uncertain(MODEL, uniform(), classes=0), "classes must be at least 1, got 0"),
        (lambda: Uncertain(MODEL, uniform(), defaults=["flip"]), r"defaults must be a proposal or one of .*, got \['flip'\]"),
        (lambda: Adversarial(update_every="1", classes=2), "update_every must be a whole number, got '1'"),
    ],
)
def test_a_wrong_argument_is_refused_when_it_is_passed(build, message, unchecked):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("step", [0.5, -1, "3", None])
def test_a_wrong_step_is_refused(step, unchecked):
    images, labels = torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    for policy in (
        Plain(sequence(), classes=2),
        Uncertain(model, uniform(), classes=2),
        Adversarial(update_every=2, policies=2, classes=2),
    ):
        with pytest.raises(ValueError, match="step must be"):
            policy(images, labels, step=step)


@pytest.mark.parametrize("losses", [torch.tensor(0.5), torch.zeros(3), torch.zeros(2, 2), [0.5, 0.5]])
def test_adversarial_needs_the_loss_of_every_sample(losses, unchecked):
    policy = Adversarial(update_every=2, policies=2, classes=2)
    with pytest.raises(ValueError, match=r'losses must be a tensor \[B \* 2\], .*: use reduction="none"'):
        policy.learn(losses, step=0)
