"""Algorithm 1 of the paper, and plain policies with the same call."""

import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import outspan
from conftest import make_images, seeds
from outspan import (
    Adversarial,
    Normalize,
    Plain,
    Plan,
    Step,
    Uncertain,
    apply,
    augmix,
    autoaugment,
    cutmix,
    mix_labels,
    mixup,
    rng,
    sequence,
    soft_cross_entropy,
    uniform,
)
from outspan.policies.files import fast_autoaugment, pba
from outspan.policies.proposals import blend
from outspan.policies.published import DEFAULTS
from outspan.policies.uncertain import choose
from outspan.text.executor import PadTokens

NORMALIZE = Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.25))
FILL = [128, 102, 76]


def network(seed: int = 0) -> nn.Module:
    """Return a small classifier with all layers that scoring could change."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 5))


def batch(seed: int = 0, size: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    return make_images(seed, size, 3, 8, 8), torch.arange(size) % 5


def losses_by_hand(model, images, labels, plan) -> torch.Tensor:
    frozen = network()
    frozen.load_state_dict(model.state_dict())
    frozen.eval()
    pixels = NORMALIZE(apply(images, plan, fill=FILL))
    targets = mix_labels(labels, plan, 5, (8, 8))
    with torch.no_grad():
        return -(targets * frozen(pixels).log_softmax(1)).sum(1)


@given(seed=seeds, keep=st.integers(1, 4), size=st.integers(1, 6))
def test_kept_candidates_have_the_highest_losses(seed, keep, size):
    model, (images, labels) = network(seed % 5), batch(seed, size)
    policy = Uncertain(model, uniform(2), candidates=4, keep=keep, defaults="cifar", preprocess=NORMALIZE, seed=seed)
    out = policy(images, labels, step=3)
    assert out.inputs.shape == (size * keep, 3, 8, 8)
    if keep == 4:
        assert out.losses is None  # nothing to choose
        return
    losses = losses_by_hand(model, images, labels, out.drawn).view(size, 4)
    assert torch.allclose(out.losses, losses, atol=1e-4)
    kept = out.losses.flatten()[out.chosen].view(size, keep)
    assert torch.equal(kept, out.losses.sort(dim=1, descending=True).values[:, :keep])
    assert torch.equal(out.chosen // 4, torch.arange(size).repeat_interleave(keep))
    # The output can be reproduced from the chosen plan.
    again = NORMALIZE(apply(images, out.plan, fill=FILL))
    assert torch.equal(out.inputs, again)
    assert torch.equal(out.targets, mix_labels(labels, out.plan, 5, (8, 8)))


def test_scoring_does_not_change_the_model():
    model, (images, labels) = network(), batch()
    model.train()
    model[1].eval()  # a frozen layer in a training model stays frozen
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(5)
    generator = torch.get_rng_state()
    policy = Uncertain(model, uniform(2), candidates=4, defaults="cifar", preprocess=NORMALIZE)
    out = policy(images, labels, step=0)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    assert [module.training for module in model] == [True, False, True, True, True, True]
    assert torch.equal(torch.get_rng_state(), generator)
    assert not any(parameter.grad is not None for parameter in model.parameters())
    outspan.soft_cross_entropy(model(out.inputs), out.targets).backward()  # the output can be used for training


def test_the_training_mode_is_restored_if_the_model_fails():
    model, (images, labels) = network().train(), batch()
    with pytest.raises(RuntimeError):
        Uncertain(model, uniform(2))(images[:, :, :4], labels, step=0)
    assert model.training
    assert model[3].training


def test_nan_is_never_chosen():
    losses = torch.tensor([[1.0, math.nan, 3.0], [math.nan, math.nan, -1.0], [math.inf, 0.0, math.nan]])
    for power in (math.inf, 1.0, 0.0, 2.5):
        for step in range(20):
            chosen = choose(losses, 1, power, seed=0, step=step)
            assert not losses.flatten()[chosen].isnan().any()
    assert choose(losses, 1, math.inf, seed=0, step=0).tolist() == [2, 5, 6]


@pytest.mark.parametrize(("power", "weights"), [(1.0, [1, 2, 3, 4]), (2.0, [1, 4, 9, 16]), (0.0, [1, 1, 1, 1])])
def test_proportional_frequencies(power, weights):
    losses = torch.tensor([[1.0, 2.0, 3.0, 4.0]]).expand(20_000, 4).contiguous()
    chosen = choose(losses, 1, power, seed=0, step=0) % 4
    counts = chosen.bincount(minlength=4).double()
    expected = 20_000 * torch.tensor(weights, dtype=torch.float64) / sum(weights)
    assert ((counts - expected) ** 2 / expected).sum() < 16.27  # 3 degrees of freedom: p > 0.001


def test_kept_candidates_are_distinct():
    losses = torch.rand(50, 8)
    for power in (math.inf, 1.0):
        chosen = choose(losses, 4, power, seed=1, step=2).view(50, 4)
        assert all(len(set(row)) == 4 for row in chosen.tolist())


def test_steps_without_scoring_do_not_use_the_model():
    model, (images, labels) = network(), batch()
    calls = []
    model.register_forward_hook(lambda module, inputs, output: calls.append(len(inputs[0])))
    policy = Uncertain(model, uniform(2), candidates=4, keep=2, score_every=3, preprocess=NORMALIZE, classes=5)
    sizes = [len(policy(images, labels, step=step).inputs) for step in range(6)]
    assert sizes == [14] * 6
    assert calls == [28, 28]  # only steps 0 and 3
    plain = policy(images, labels, step=1)
    expected = uniform(2)(7, rng=rng.generator(0, "augment", 1), candidates=2)
    assert plain.plan.to_json() == expected.to_json()


def test_the_unavoidable_loss_of_a_mixed_label_does_not_count():
    """The loss of a row that is mixed half and half is at least log 2 for any model."""

    class Leaning(nn.Module):
        def forward(self, images):
            return torch.tensor([[0.1, 0.0]]).expand(len(images), 2)

    def propose(size, *, rng, candidates=1):  # one row per image is mixed half and half with another class
        return Plan.of([["mixup"], []] * size, levels=[[0.5], []] * size, partners=[[3], []] * 2, source=[0, 0, 1, 1])

    images, labels = make_images(0, 2, 3, 8, 8), torch.tensor([0, 1])
    for score, first in (("loss", 0), ("excess", 1)):
        policy = Uncertain(Leaning(), propose, candidates=2, score=score, preprocess=NORMALIZE, classes=2)
        out = policy(images, labels, step=0)
        plain = math.log(1 + math.exp(-0.1))
        assert out.losses[0].tolist() == pytest.approx([plain + 0.05, plain])  # the reported loss is the total loss
        assert out.chosen[0] == first


def test_the_number_of_classes_comes_from_the_model():
    model, (images, labels) = network(), batch()
    assert Uncertain(model, uniform(2), score_every=2)(images, labels, step=1).targets.shape == (7, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 5}, r"keep must be in \[1, 4\], got 5"),
        ({"keep": 0}, "keep must be at least 1, got 0"),
        ({"candidates": 0}, "candidates must be at least 1, got 0"),
        ({"candidates": 2.5}, "candidates must be a whole number, got 2.5"),
        ({"keep": "1"}, "keep must be a whole number, got '1'"),
        ({"loss": "cross_entropy"}, "loss must be a function of .* or a module, got 'cross_entropy'"),
        ({"score": "margin"}, "score must be 'loss' or 'excess', got 'margin'"),
        ({"score_every": 0}, "score_every must be at least 1, got 0"),
        ({"select": "best"}, "select must be 'max', 'proportional' or a power of at least 0, got 'best'"),
        ({"select": -1.0}, "select must be"),
        ({"select": math.nan}, "select must be"),
        ({"model": abs}, "model must be a torch module, got builtin_function_or_method"),
        ({"loss": nn.Softmax()}, "loss Softmax must take logits and targets: use a loss such as"),
        ({"select": None}, "select must be 'max', 'proportional' or a power of at least 0, got None"),
        ({"propose": "randaugment"}, "propose must be a proposal such as .*, got 'randaugment'"),
        ({"preprocess": abs}, "preprocess must be an outspan.Normalize, or another Preprocess, got builtins.builtin_function"),
        ({"defaults": None}, "defaults must be a proposal or one of none, cifar, .*, mixup, got None"),
        ({"defaults": "cifra"}, "defaults must be a proposal or one of none, cifar, .*, mixup, got 'cifra'"),
    ],
)
def test_wrong_settings_are_refused_by_name(options, message, unchecked):
    with pytest.raises(ValueError, match=message):
        Uncertain(**{"model": network(), "propose": uniform(2), **options})


class Wrapped(nn.Module):
    """A model with the outputs of other libraries."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, images):
        return {"logits": self.inner(images)}


@pytest.mark.parametrize(
    ("options", "step", "message"),
    [
        ({"classes": 3}, 0, "classes must be the number of the model's logits, 5, got 3"),
        ({"model": Wrapped()}, 0, "must return logits, .* got dict"),
        ({"model": Wrapped(), "score_every": 2}, 1, "must return logits, .* got dict"),
        (
            {"loss": lambda logits, targets, reduction: logits.mean()},
            0,
            r"one loss per sample, \[28\] or \[28, classes\], got .* \[\]",
        ),
    ],
)
def test_wrong_outputs_of_a_model_or_loss_are_refused_by_name(options, step, message):
    policy = Uncertain(**{"model": network(), "propose": uniform(2), "preprocess": NORMALIZE, **options})
    with pytest.raises(ValueError, match=message):
        policy(*batch(), step=step)


class Focal(nn.Module):
    """A custom loss that accepts a reduction, and keeps a column."""

    def forward(self, logits, targets, reduction="mean"):
        return outspan.soft_cross_entropy(logits, targets, reduction=reduction).unsqueeze(1)


def test_a_module_with_a_reduction_argument_is_a_loss():
    policies = [
        Uncertain(network(), uniform(2), preprocess=NORMALIZE, loss=loss) for loss in (Focal(), outspan.soft_cross_entropy)
    ]
    batches = [policy(*batch(), step=0) for policy in policies]
    assert torch.equal(batches[0].inputs, batches[1].inputs)


def check_pickled(policy) -> None:
    """Check that a copy of a policy in another process would return the same batches."""
    there, here = (each(*batch(), step=3) for each in (pickle.loads(pickle.dumps(policy)), policy))  # noqa: S301
    assert there.drawn.to_json() == here.drawn.to_json()
    assert torch.equal(there.inputs, here.inputs)


@pytest.mark.parametrize(
    "propose", [uniform(2), augmix(), mixup(), cutmix(), autoaugment(), blend(Step("invert"), Step("blur"))]
)
def test_a_pickled_policy_returns_the_same_batches(propose):
    check_pickled(Plain(propose, classes=5, defaults="cifar"))
    check_pickled(Uncertain(network(), propose, candidates=2, defaults="cifar"))


def test_policies_of_files_can_be_pickled(tmp_path):
    pairs, lines = tmp_path / "pairs", tmp_path / "lines"
    pairs.write_text("[[['Invert', 0.5, 1], ['Rotate', 1, 1]]]")
    lines.write_text(repr(["1", "1", 1, 1, [5] * 60, [7] * 60]))
    for propose in (fast_autoaugment(str(pairs)), pba(str(lines), searched=2, epochs=4, epoch_steps=1)):
        check_pickled(Plain(propose, classes=5))
        check_pickled(Uncertain(network(), propose, candidates=2))


def test_an_adversarial_policy_can_be_pickled_in_the_middle_of_a_round():
    policy = Adversarial(classes=5, update_every=4, policies=2)
    policy.learn(soft_cross_entropy(torch.zeros(14, 5), policy(*batch(), step=2).targets, reduction="none"), step=2)
    check_pickled(policy)
    there = pickle.loads(pickle.dumps(policy))  # noqa: S301
    assert all(torch.equal(tensor, there.state_dict()[name]) for name, tensor in policy.state_dict().items())


def test_plain_applies_the_proposal_and_then_the_defaults():
    images, labels = batch()
    out = Plain(uniform(2), classes=5, defaults="cifar", preprocess=NORMALIZE, seed=3)(images, labels, step=9)
    first = uniform(2)(7, rng=rng.generator(3, "augment", 9))
    then = DEFAULTS["cifar"](7, rng=rng.generator(3, "defaults", 9))
    pixels = apply(apply(images, first), then, fill=FILL) if "cutout" not in first.names else None
    whole = apply(images, first.then(then), fill=FILL)
    assert torch.equal(out.inputs, NORMALIZE(whole))
    assert pixels is None or torch.equal(pixels, whole)
    assert torch.equal(out.targets, mix_labels(labels, out.plan, 5, (8, 8)))


def test_plain_without_normalization_returns_values_from_zero_to_one():
    images, labels = batch()
    out = Plain(sequence(), classes=5)(images, labels, step=0)
    assert torch.equal(out.inputs, (images.double() / 255).float())
    assert torch.equal(out.targets, torch.eye(5)[labels])


def test_a_step_does_not_depend_on_earlier_calls():
    images, labels = batch()
    policy = Uncertain(network(), uniform(2), select="proportional", defaults="cifar", seed=4)
    there = [policy(images, labels, step=step) for step in (0, 1, 2)]
    back = [policy(images, labels, step=step) for step in (2, 1, 0)][::-1]
    for a, b in zip(there, back, strict=True):
        assert torch.equal(a.inputs, b.inputs)
        assert torch.equal(a.targets, b.targets)
    assert not torch.equal(there[0].inputs, there[1].inputs)


@given(seed=seeds)
def test_then_applies_one_plan_after_the_other(seed):
    images = make_images(seed, 4, 3, 9, 7)
    first = uniform(2, transforms=("rotate", "mixup", "invert"))(4, rng=rng.generator(seed, 0), candidates=2)[[5, 0, 7]]
    second = uniform(2, transforms=("blur", "mixup", "cutmix", "invert"))(3, rng=rng.generator(seed, 1))
    assert torch.equal(apply(images, first.then(second)), apply(apply(images, first), second))


def test_then_refuses_a_plan_for_other_rows():
    with pytest.raises(ValueError, match="one row for each of 2 outputs, got 1"):
        Plan.of([["invert"]] * 2).then(Plan.of([["invert"]]))


def test_the_loop_of_the_readme_trains_a_model():
    """A network learns which half of an image is bright."""
    draw = rng.generator(0, "data")
    labels = torch.from_numpy(draw.integers(0, 2, 256))
    images = torch.from_numpy(draw.integers(0, 120, (256, 1, 8, 8))).to(torch.uint8)
    images[labels == 0, :, :4] += 100
    images[labels == 1, :, 4:] += 100
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loader = [(images[i : i + 32], labels[i : i + 32]) for i in range(0, 256, 32)] * 8

    policy = outspan.Uncertain(model, outspan.uniform(depth=2, transforms=("translate_x", "brightness")), candidates=4)
    for step, (some, their) in enumerate(loader):
        batch = policy(some, their, step=step)
        loss = outspan.soft_cross_entropy(model(batch.inputs), batch.targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with torch.no_grad():
        assert (model(images / 255).argmax(1) == labels).double().mean() > 0.95


def test_a_batch_that_does_not_fit_is_refused(unchecked):
    images, labels = torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))
    for policy in (Uncertain(model, uniform()), Plain(uniform(), classes=2), Adversarial(classes=2, update_every=5)):
        with pytest.raises(ValueError, match="labels must be one per sample, got 3 for 4 samples"):
            policy(images, labels[:3], step=0)
        with pytest.raises(ValueError, match=r"labels must be a torch tensor, \[B\] or \[B, classes\], got list"):
            policy(images, [0, 1, 0, 1], step=0)
        with pytest.raises(ValueError, match="labels must be one per sample, got a single number for 4 samples"):
            policy(images, torch.tensor(0), step=0)
        for other, what in (
            (["a film", "a plot"], "a list of str"),
            ("a film", "a value of type str"),
            ([[101, 7, 102]], "a list of list"),
            (torch.zeros(4, 16, dtype=torch.int64), r"torch.int64 \[4, 16\]"),
            (torch.zeros(4, 16, dtype=torch.uint8), r"torch.uint8 \[4, 16\]"),
            (images[0], r"torch.uint8 \[3, 8, 8\]"),
            (images.numpy(), "a value of type ndarray"),
            (None, "a value of type NoneType"),
        ):
            with pytest.raises(ValueError, match=rf"images must be a uint8 tensor \[B, C, H, W\], got {what}"):
                policy(other, labels, step=0)
        with pytest.raises(ValueError, match=r"1 or 3 channels, got \[4, 8, 8, 3\]: use images.permute\(0, 3, 1, 2\)"):
            policy(images.permute(0, 2, 3, 1), labels, step=0)
        with pytest.raises(ValueError, match=r"images must be a uint8 tensor with values from 0 to 255, got torch.int64"):
            policy(images.long(), labels, step=0)
    for tokens, preprocess in ((torch.zeros(4, 9).long(), None), (torch.zeros(4, 9).long(), Normalize((0.5,) * 3, (0.5,) * 3))):
        with pytest.raises(ValueError, match=r"int64 \[4, 9\]: a policy for texts needs preprocess=outspan.text.PadTokens\(\)"):
            Plain(uniform(), classes=2, preprocess=preprocess)(tokens, labels, step=0)
    with pytest.raises(ValueError, match=r"PadTokens is for .*, got torch.uint8 \[4, 3, 8, 8\]: .* for images use Normalize"):
        Plain(uniform(1, transforms=("switchout",)), classes=2, preprocess=PadTokens())(images, labels, step=0)
    with pytest.raises(ValueError, match="one mean and std per channel, got 1 for 3 channels: pass 3 of each"):
        Plain(uniform(), classes=2, preprocess=Normalize((0.5,), (0.5,)))(images, labels, step=0)
    for output, description in (({}, "dict"), (torch.zeros(16, 2, 1), r"a tensor \[16, 2, 1\]")):
        model = torch.nn.Linear(1, 1)
        model.forward = lambda _, output=output: output
        with pytest.raises(ValueError, match=rf"the model must return logits, a tensor \[B, classes\],.* got {description}"):
            Uncertain(model, uniform(), classes=2)(images, labels, step=0)
