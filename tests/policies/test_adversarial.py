"""Adversarial AutoAugment: probabilities and gradient by enumeration, the learned policies, and the drawn plans."""

import itertools
from collections import Counter

import pytest
import torch
from torch import nn

import outspan
from outspan import Adversarial, rng, soft_cross_entropy
from outspan.policies.adversarial import OPERATIONS, Controller, reinforce, standardize
from outspan.policies.protocols import LearningPolicy


def small(operations: int = 3, magnitudes: int = 2) -> tuple[Controller, torch.Tensor]:
    """Return a controller in double precision and all its policies: there are 36, each of one pair."""
    torch.manual_seed(0)
    made = Controller(operations, magnitudes, 1, embedding=4, hidden=5)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter *= 10  # far from uniform
    ways = [range(operations), range(magnitudes)] * 2
    return made, torch.tensor(list(itertools.product(*ways)))


def test_probabilities_of_all_policies_add_up_to_one():
    controller, every = small()
    assert controller.log_probabilities(every)[0].double().exp().sum().item() == pytest.approx(1, abs=1e-5)


def test_draws_follow_the_probabilities():
    controller, every = small()
    noise = torch.from_numpy(rng.generator(0).gumbel(size=(40_000, 4, 3)).astype("float32"))
    counts = Counter(map(tuple, controller.decide(noise).tolist()))
    for policy, probability in zip(every.tolist(), controller.log_probabilities(every)[0].exp().tolist(), strict=True):
        assert counts[tuple(policy)] / 40_000 == pytest.approx(
            probability, abs=5 * (probability * (1 - probability) / 40_000) ** 0.5 + 1e-4
        )


def test_the_gradient_matches_the_expected_reward():
    """Over all policies, weighted by probability, REINFORCE is minus the derivative of the sum of p(a) R(a)."""
    controller, every = small()
    rewards = torch.from_numpy(rng.generator(1).normal(size=len(every)).astype("float32"))
    probability = controller.log_probabilities(every)[0].exp().detach()
    parameters = list(controller.parameters())
    logs, entropies = controller.log_probabilities(every)
    # The expected mean over drawn policies is the sum over all policies, weighted by probability.
    surrogate = reinforce(logs, entropies, len(every) * probability * rewards, 0.0)
    ours = torch.autograd.grad(surrogate, parameters)
    exact = torch.autograd.grad((controller.log_probabilities(every)[0].exp() * rewards).sum(), parameters)
    for one, other in zip(ours, exact, strict=True):
        assert torch.allclose(one, -other, atol=1e-5)
    # The same by finite differences along a random direction.
    direction = [torch.randn_like(parameter) for parameter in parameters]

    def value(by: float) -> float:
        with torch.no_grad():
            for parameter, part in zip(parameters, direction, strict=True):
                parameter += by * part
            result = (controller.log_probabilities(every)[0].double().exp() * rewards).sum().item()
            for parameter, part in zip(parameters, direction, strict=True):
                parameter -= by * part
        return result

    slope = (value(1e-3) - value(-1e-3)) / 2e-3
    assert sum(float((g * d).sum()) for g, d in zip(ours, direction, strict=True)) == pytest.approx(-slope, rel=0.02, abs=2e-3)


def test_the_entropy_of_the_choices_is_rewarded():
    controller, every = small()
    logs, entropies = controller.log_probabilities(every)
    probability = logs.exp()
    assert (probability * entropies).sum().item() == pytest.approx(
        -(probability * logs).sum().item(), abs=1e-4
    )  # the chain rule
    zeros = torch.zeros(len(every))
    assert torch.allclose(reinforce(logs, entropies, zeros, 0.5), -0.5 * entropies.mean())


def test_rewards_are_standardised_over_the_policies():
    result = standardize(torch.tensor([1.0, 2.0, 3.0, 6.0]))
    assert result.mean().item() == pytest.approx(0, abs=1e-6)
    assert result.square().mean().item() == pytest.approx(1, abs=1e-4)
    assert torch.equal(standardize(torch.full((4,), 2.0)), torch.zeros(4))


def tell_light_from_dark(images: torch.Tensor) -> torch.Tensor:
    light = 8 * (images.mean(dim=(1, 2, 3)) - 0.5)
    return torch.stack([-light, light], dim=1)


def test_the_adversary_learns_the_harmful_transform():
    """A model that separates light and dark images is wrong after one inversion of the pair, and right after two."""
    labels = torch.arange(16) % 2
    images = (labels * 200 + 20).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous()
    operations = ("invert", "posterize", "rotate")
    policy = Adversarial(
        classes=2, update_every=1, policies=8, subpolicies=1, lr=0.03, operations=operations, magnitudes=2, hidden=16
    )

    def harmful() -> float:
        noise = torch.from_numpy(rng.generator(9).gumbel(size=(2000, 4, 3)).astype("float32"))
        return float(((policy.controller.decide(noise)[:, ::2] == 0).sum(1) == 1).double().mean())

    assert harmful() == pytest.approx(4 / 9, abs=0.1)
    for step in range(40):
        batch = policy(images, labels, step=step)
        losses = soft_cross_entropy(tell_light_from_dark(batch.inputs), batch.targets, reduction="none")
        policy.learn(losses, step=step)
    assert harmful() > 0.95


def test_every_image_of_a_round_has_the_same_weight(monkeypatch):
    """Losses 1 and 5 over six images, then 4 and 2 over a final batch of two: the means are 1.75 and 4.25."""
    policy, updates = Adversarial(classes=2, update_every=2, policies=2), []
    monkeypatch.setattr(policy, "_update", lambda turn, means: updates.append((turn, means.tolist())))
    for turn in range(2):
        policy.learn(torch.tensor([1.0, 5.0] * 6), step=2 * turn)
        policy.learn(torch.tensor([4.0, 2.0] * 2), step=2 * turn + 1)
    assert updates == [(0, [1.75, 4.25]), (1, [1.75, 4.25])]


def test_each_candidate_has_its_own_policy_for_a_whole_round():
    policy = Adversarial(classes=10, update_every=5, policies=3, subpolicies=2, seed=4)
    images, labels = torch.zeros(50, 1, 8, 8, dtype=torch.uint8), torch.zeros(50, dtype=torch.int64)

    def draw_names(step: int) -> list[set[tuple[str, ...]]]:
        plan = policy(images, labels, step=step).plan
        names = [tuple(plan.names[op] for op in row) for row in plan.ops.tolist()]
        return [set(names[m::3]) for m in range(3)]

    first = draw_names(0)
    decided = policy._policies_of(0)[0].view(3, 2, 2, 2)[..., 0].tolist()
    assert first == [{tuple(OPERATIONS[op] for op in pair) for pair in pairs} for pairs in decided]
    assert draw_names(4) == first
    assert draw_names(5) != first


def test_a_restored_state_gives_identical_bits():
    def rounds(policy: Adversarial, steps: range) -> None:
        for step in steps:
            rows = 1 if step % 3 == 2 else 2  # the final batch of a round is smaller
            policy(torch.zeros(rows, 1, 8, 8, dtype=torch.uint8), torch.zeros(rows, dtype=torch.int64), step=step)
            policy.learn(torch.from_numpy(rng.generator(7, step).random(4 * rows).astype("float32")), step=step)

    whole, parts = (Adversarial(classes=2, update_every=3, policies=4, lr=0.05) for _ in range(2))
    assert isinstance(whole, LearningPolicy)
    rounds(whole, range(11))
    rounds(parts, range(7))
    resumed = Adversarial(classes=2, update_every=3, policies=4, lr=0.05)
    resumed.load_state_dict({name: tensor.clone() for name, tensor in parts.state_dict().items()})
    rounds(resumed, range(7, 11))
    expected, result = whole.state_dict(), resumed.state_dict()
    assert expected.keys() == result.keys()
    assert all(torch.equal(expected[name], result[name]) for name in expected)
    assert not torch.equal(expected["sums"], torch.zeros(4))
    assert not torch.equal(expected["controller.lstm.weight_hh"], parts.state_dict()["controller.lstm.weight_hh"])


def test_a_loss_that_is_not_finite_does_not_reach_the_controller():
    policy = Adversarial(classes=2, update_every=2, policies=2)
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    policy.learn(torch.tensor([1.0, float("nan")]), step=0)
    with pytest.raises(ValueError, match="a loss of the 2 steps up to step 1 is not finite"):
        policy.learn(torch.tensor([1.0, 2.0]), step=1)
    after = policy.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_building_a_policy_does_not_change_the_generators():
    before = torch.get_rng_state()
    one, two = Adversarial(classes=10, update_every=5), Adversarial(classes=10, update_every=5)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.controller.lstm.weight_ih, two.controller.lstm.weight_ih)
    assert not torch.equal(
        one.controller.lstm.weight_ih, Adversarial(classes=10, update_every=5, seed=1).controller.lstm.weight_ih
    )


def test_the_default_settings_are_the_published_ones():
    made = Adversarial(classes=10, update_every=100)
    assert (made.policies, made.subpolicies, made.magnitudes, made.embedding, made.hidden) == (8, 5, 10, 32, 100)
    assert (made.lr, made.entropy) == (0.00035, 1e-5)
    assert set(OPERATIONS) == set(outspan.PAPER_16) - {"mixup"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"policies": 1}, "policies must be at least 2, got 1"),
        ({"magnitudes": 1}, "magnitudes must be at least 2, got 1"),
        ({"operations": ()}, "operations must name at least one operation"),
        ({"operations": ("rotate", "turn")}, "unknown operation 'turn'"),
        ({"operations": ("random_crop",)}, "unknown operation 'random_crop'"),
        ({"update_every": 0}, "update_every must be at least 1, got 0"),
        ({"defaults": "nothing"}, "defaults must be a proposal or one of"),
        ({"preprocess": nn.Identity()}, "preprocess must be an outspan.Normalize, .*, got torch.nn.modules.linear.Identity"),
    ],
)
def test_wrong_arguments_are_refused(values, message, unchecked):
    with pytest.raises(ValueError, match=message):
        Adversarial(**{"classes": 10, "update_every": 5, **values})
