"""Wrong arguments of proposals and policies are refused by name when they are passed."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import make_images
from fuzz.contract import attempt
from outspan import PAPER_16, Adversarial, Auto, Plain, Proposal, Uncertain, apply, natural, randaugment, rng, uniform
from outspan.policies.proposals import any_of, sequence
from outspan.policies.published import augmix, cutmix, mixup, trivialaugment
from outspan.policies.sampler import draw_together, merge
from outspan.policies.steps import Schedule, Step
from outspan.text.executor import PadTokens

MODEL = torch.nn.Linear(1, 1)
TEXT, FLIP = uniform(1, transforms=("switchout",)), sequence(Step("horizontal_flip"))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: any_of(["rotate", "invert"], 2),
            r"any_of takes steps, got 'rotate': write any_of\(\[Step\(name\), ...\], depth\)",
        ),
        (lambda: any_of([[Step("rotate")]], 1), "any_of takes steps, got .Step"),
        (
            lambda: any_of("rotate", 1),
            r"any_of takes a list of steps, got 'rotate': write any_of\(\[Step\(name\), ...\], depth\)",
        ),
        (lambda: any_of(Step("rotate"), 1), "any_of takes a list of steps, got Step"),
        (lambda: any_of(None, 1), "any_of takes a list of steps, got None"),
        (lambda: any_of(iter([Step("rotate")]), 1), "any_of takes a list of steps, got <list_iterator"),
        (lambda: any_of([Step("rotate")], 101), r"depth is out of range, got 101 \(allowed: 0 to 100\)"),
        (lambda: randaugment(depth=10**400), r"depth is out of range, got a whole number of 1329 bits"),
        (lambda: any_of(["rotat"], 1), "unknown transform 'rotat', did you mean 'rotate'"),
        (lambda: uniform(depth=2.0), "depth must be a whole number, got 2.0"),
        (lambda: uniform(depth=-1), "depth must be at least 0, got -1"),
        (lambda: uniform(2, transforms=("rotate",)), r"depth must lie in \[0, 1\], .*, got 2: set depth=1, or add transforms"),
        (lambda: uniform(transforms="geometric"), r"transforms must be a tuple of names such as \(.*\), got 'geometric'"),
        (lambda: uniform(transforms={"rotate", "invert"}), "transforms must be a tuple of names such as .*, got {'"),
        (lambda: uniform(transforms=None), "transforms must be a tuple of names such as .*, got None"),
        (lambda: uniform(transforms=(["rotate"], "invert")), r"transforms must be a tuple of names such as .*, got \(\["),
        (lambda: natural(transforms="rotate"), r"transforms must be a tuple of names such as \(.*\), got 'rotate'"),
        (lambda: natural(transforms=7), "transforms must be a tuple of names such as .*, got 7"),
        (lambda: natural(transforms=("rotat", "invert")), "unknown transform 'rotat', did you mean 'rotate'"),
        (lambda: natural(transforms=()), r"depth must lie in \[0, 0\], the number of transforms to draw from \(none\), got 2"),
        (lambda: natural(-1), "depth must be at least 0, got -1"),
        (lambda: natural(99.5), "depth must be a whole number, got 99.5"),
        (lambda: natural(None), "depth must be a whole number, got None"),
        (lambda: natural(15), r"depth must lie in \[0, 14\], .*, got 15: set depth=14, or add transforms"),
        (lambda: natural(2, transforms=("rotate", "invert")), r"depth must lie in \[0, 1\], .* from \(rotate\), got 2"),
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
        (lambda: Plain(uniform(), classes=1), "classes must be at least 2, got 1"),
        (lambda: Auto(natural(), epochs=1, steps=1, classes=1), "classes must be at least 2, got 1"),
        (lambda: Adversarial(update_every=1, classes=True), "classes must be a whole number, got True"),
        (lambda: Uncertain(MODEL, uniform(), classes=0), "classes must be at least 2, got 0"),
        (lambda: Plain(mixup(), classes=2, same_class="0.5"), "same_class must be a number, got '0.5'"),
        (lambda: Plain(mixup(), classes=2, same_class=True), "same_class must be a number, got True"),
        (lambda: Uncertain(MODEL, uniform(), defaults=["flip"]), r"defaults must be a proposal or one of .*, got \['flip'\]"),
        (
            lambda: Plain(natural(), classes=2, preprocess=PadTokens()),
            "transform 'auto_contrast' is not for texts, and preprocess is PadTokens: use those of texts",
        ),
        (lambda: Auto(natural(), epochs=6, steps=9, classes=2, preprocess=PadTokens()), "transform 'auto_contrast' is not for"),
        (
            lambda: Auto(TEXT, epochs=6, steps=9, weak=FLIP, classes=2, preprocess=PadTokens()),
            "'horizontal_flip' is not for texts",
        ),
        (
            lambda: Uncertain(MODEL, Schedule((TEXT, mixup()), (3,)), preprocess=PadTokens()),
            "transform 'mixup' is not for texts",
        ),
        (lambda: Adversarial(update_every="1", classes=2), "update_every must be a whole number, got '1'"),
    ],
)
def test_a_wrong_argument_is_refused_when_it_is_passed(build, message, unchecked):
    with pytest.raises(ValueError, match=message):
        build()


CALL_IT = r"which does not take \(size, \*, rng, candidates\): if it returns a proposal, call it, as in outspan.natural\(\)"


@pytest.mark.parametrize("function", [natural, uniform, randaugment, any_of, sequence, Step, Plain(uniform(), classes=2)])
@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda function: Plain(function, classes=2), "propose"),
        (lambda function: Auto(function, epochs=1, steps=1, classes=2), "propose"),
        (lambda function: Uncertain(MODEL, function), "propose"),
        (lambda function: Plain(Schedule((uniform(), function), (3,)), classes=2), "propose"),
        (lambda function: Plain(uniform(), classes=2, defaults=function), "defaults"),
    ],
)
def test_a_function_is_refused_where_its_result_is_a_proposal(build, name, function, unchecked):
    with pytest.raises(ValueError, match=rf"^{name} must be a proposal such as .*, got .*, {CALL_IT}$"):
        build(function)


class Own:
    def __call__(self, size, rng, candidates=1):
        return uniform()(size, rng=rng, candidates=candidates)


def own(size, *, rng, candidates=1):
    return uniform()(size, rng=rng, candidates=candidates)


@pytest.mark.parametrize(
    "propose",
    [
        Own(),
        Own().__call__,
        own,
        partial(own),
        lambda *args, **options: own(*args, **options),
        Schedule((own, uniform()), (3,)),
    ],
)
def test_proposals_of_users_are_accepted(propose, unchecked):
    images, labels = make_images(0, 4, 3, 8, 8), torch.tensor([0, 1, 1, 0])
    expected = Plain(uniform(), classes=2)(images, labels, step=0)
    assert torch.equal(Plain(propose, classes=2)(images, labels, step=0).inputs, expected.inputs)
    Plain(uniform(), classes=2, defaults="none" if isinstance(propose, Schedule) else propose)


def test_a_callable_without_a_signature_is_accepted(unchecked):
    class NoSignature(Own):
        @property
        def __signature__(self):
            raise ValueError("no signature")  # as `inspect.signature` does for some compiled functions

    Plain(NoSignature(), classes=2)


def test_numbers_of_numpy_and_torch_are_whole_numbers(unchecked):
    images, labels = make_images(0, 4, 3, 8, 8), torch.tensor([0, 1, 1, 0])
    expected = Plain(uniform(2), classes=3)(images, labels, step=0)
    for convert in (np.int64, np.uint8, torch.tensor):
        batch = Plain(uniform(convert(2)), classes=convert(3))(images, labels, step=0)
        assert torch.equal(batch.inputs, expected.inputs)
        assert torch.equal(batch.targets, expected.targets)


def test_a_list_of_steps_may_be_changed_later():
    steps = [Step("rotate"), Step("invert")]
    propose = any_of(steps, 1)
    steps.clear()
    plan = draw_together(merge([propose, propose], [1, 1]), 50, [rng.generator(0), rng.generator(1)])
    assert plan.ops.unique().tolist() == [0, 1]


NUMBERS = st.one_of(st.integers(), st.floats(), st.booleans(), st.integers(-1, 20).map(np.int64), st.just(10**400))
NAMES = st.sampled_from([*PAPER_16, "rotat", "", "back_translation"])
STEPS = st.sampled_from([Step("rotate"), Step("cutout", 0, 1, 0.5), Step("mixup"), Step])
ATOMS = st.one_of(st.none(), NUMBERS, NAMES, STEPS, st.text(max_size=5), st.binary(max_size=3), st.just(uniform()))
SMALL = st.integers(-1, 20)
ODD = st.one_of(
    ATOMS, st.lists(ATOMS), st.lists(STEPS), st.lists(NAMES).map(tuple), st.sets(NAMES), st.dictionaries(NAMES, ATOMS)
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=ODD, depth=ODD | SMALL, transforms=ODD, probability=ODD, profile=ODD)
def test_odd_arguments_give_a_proposal_or_one_clear_line(first, depth, transforms, probability, profile, unchecked):
    calls: list[Callable[[], Proposal]] = [
        partial(natural, depth),
        partial(natural, transforms=transforms),
        partial(natural, depth, transforms=transforms),
        partial(uniform, depth, transforms=transforms, probability=probability, profile=profile),
        partial(uniform, depth, replacement=True),
        partial(uniform, 1, transforms=transforms),
        partial(any_of, first, depth),
        partial(any_of, first, 1),
        partial(sequence, first),
        partial(randaugment, depth),
    ]
    for call in calls:
        propose = attempt(call)
        if propose is not None and "back_translation" not in propose.names:  # a transform of texts
            apply(make_images(0, 3, 3, 8, 8), propose(3, rng=rng.generator(0), candidates=2))


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
