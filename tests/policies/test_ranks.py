"""The ranks of a user's loop: each draws its own rows of the plan of the whole batch."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

import outspan
from outspan.plan import Plan
from outspan.policies.ranks import Part, find_ranks, own_plan, own_rows, within_ranks

IMAGES = torch.randint(0, 256, (12, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(12) % 10
GEOMETRIC = outspan.uniform(depth=2, transforms=("rotate", "cutout", "invert"))


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))


@pytest.mark.parametrize(("size", "world"), [(0, 2), (1, 3), (7, 3), (12, 4), (5, 5)])
def test_every_row_belongs_to_one_rank(size, world):
    parts = [own_rows(size, rank, world) for rank in range(world)]
    assert [row for part in parts for row in part] == list(range(size))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("defaults", ["none", "flip", "cifar-cutout"])
def test_the_plan_of_a_step_does_not_depend_on_the_number_of_ranks(defaults):
    policy = outspan.Plain(GEOMETRIC, classes=10, defaults=defaults)
    whole = policy(IMAGES, LABELS, step=3)
    for world in (2, 3, 4):
        size = len(IMAGES) // world
        for rank in range(world):
            rows = slice(rank * size, (rank + 1) * size)
            part = outspan.Plain(GEOMETRIC, classes=10, defaults=defaults, rank=rank, world=world)
            batch = part(IMAGES[rows], LABELS[rows], step=3)
            assert torch.equal(batch.inputs, whole.inputs[rows])
            assert torch.equal(batch.targets, whole.targets[rows])


@pytest.mark.parametrize("options", [{}, {"keep": 2}, {"select": "proportional"}])
def test_ranks_choose_the_same_candidates_as_one_process(options):
    options |= {"candidates": 4, "classes": 10}
    whole = outspan.Uncertain(model(), GEOMETRIC, **options)(IMAGES, LABELS, step=5)
    keep = options.get("keep", 1)
    for rank in range(2):
        rows = slice(6 * rank, 6 * rank + 6)
        batch = outspan.Uncertain(model(), GEOMETRIC, rank=rank, world=2, **options)(IMAGES[rows], LABELS[rows], step=5)
        assert torch.equal(batch.inputs, whole.inputs[6 * keep * rank : 6 * keep * (rank + 1)])


def test_confidence_scales_the_rows_of_the_rank():
    confidence = torch.linspace(0, 1, 12)
    whole = outspan.Plain(GEOMETRIC, classes=10)(IMAGES, LABELS, step=1, confidence=confidence)
    part = outspan.Plain(GEOMETRIC, classes=10, rank=1, world=2)
    batch = part(IMAGES[6:], LABELS[6:], step=1, confidence=confidence[6:])
    assert torch.equal(batch.inputs, whole.inputs[6:])


@pytest.mark.parametrize(
    "propose", [outspan.mixup(), outspan.cutmix(), outspan.uniform(depth=3, transforms=("mixup", "rotate", "cutmix"))]
)
@pytest.mark.parametrize("candidates", [1, 3])
def test_mixing_partners_come_from_the_rank_and_other_draws_are_unchanged(propose, candidates):
    def draw(proposal) -> Plan:
        return proposal(12, rng=np.random.default_rng(1), candidates=candidates)

    plan, before = draw(within_ranks(propose, 3)), draw(propose)
    for name in ("ops", "levels", "places", "source", "out"):
        assert torch.equal(getattr(plan, name), getattr(before, name)), name
    mixing = (plan.ops >= 0) & (plan.partners >= 0)
    mixing &= torch.tensor([name in ("mixup", "cutmix") for name in plan.names])[plan.ops.clamp(min=0).long()]
    own = plan.source.unsqueeze(1).expand_as(plan.partners)[mixing]
    other = plan.source[plan.partners[mixing]]
    assert mixing.any()
    assert torch.equal(own // 4, other // 4)
    assert not (own == other).any()


def test_partners_are_uniform_over_the_other_images_of_the_rank():
    proposal, counts = within_ranks(outspan.mixup(), 2), torch.zeros(8, 8)
    for seed in range(2000):
        plan = proposal(8, rng=np.random.default_rng(seed))
        counts[torch.arange(8), plan.partners[:, 0]] += 1
    expected = torch.block_diag(*[2000 / 3 * (1 - torch.eye(4))] * 2)
    assert (counts - expected).abs().max() < 100  # 4.7 standard deviations


def test_a_rank_with_one_image_mixes_it_with_itself():
    plan = within_ranks(outspan.mixup(), 3)(3, rng=np.random.default_rng(0))
    assert torch.equal(plan.partners[:, 0], torch.arange(3))


@pytest.mark.parametrize("propose", [GEOMETRIC, outspan.mixup(), outspan.augmix()])
def test_a_part_of_a_plan_gives_the_same_pixels(propose):
    plan = within_ranks(propose, 3)(12, rng=np.random.default_rng(2), candidates=2)
    whole = outspan.apply(IMAGES, plan)
    for rank in range(3):
        rows = own_rows(12, rank, 3)
        own = outspan.apply(IMAGES[rows.start : rows.stop], own_plan(plan, rows, 12))
        assert torch.equal(own, whole[2 * rows.start : 2 * rows.stop])


@pytest.mark.parametrize("keep", [1, 2])
def test_a_policy_that_gets_a_part_executes_its_own_rows(keep):
    """The losses of the other ranks are filled in by `gather`, here from a single process."""
    policy = outspan.Uncertain(model(), GEOMETRIC, candidates=4, keep=keep, classes=10)
    whole = policy(IMAGES, LABELS, step=2)
    assert whole.losses is not None
    part = Part(IMAGES[4:9], range(4, 9), 12, lambda own: whole.losses.flatten())
    batch = policy(part, LABELS, step=2)
    assert torch.equal(batch.inputs, whole.inputs[4 * keep : 9 * keep])
    assert torch.equal(batch.targets, whole.targets)
    assert torch.equal(batch.chosen, whole.chosen)


@pytest.fixture
def process_group(monkeypatch):
    """Two ranks whose losses are equal, without processes."""
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor.mul_(2))


def test_the_default_is_that_of_the_process_group(process_group):
    assert find_ranks() == (1, 2)
    assert find_ranks(0, 1) == (0, 1)
    default = outspan.Plain(GEOMETRIC, classes=10)(IMAGES, LABELS, step=0)
    explicit = outspan.Plain(GEOMETRIC, classes=10, rank=1, world=2)(IMAGES, LABELS, step=0)
    assert torch.equal(default.inputs, explicit.inputs)


def test_the_controller_learns_from_the_losses_of_all_ranks(process_group):
    options = {"update_every": 1, "policies": 2, "classes": 10}
    ours = outspan.Adversarial(**options)
    alone = outspan.Adversarial(**options, rank=0, world=1)
    losses = torch.arange(24.0)
    ours.learn(losses[:12], step=0)  # twice these losses in all
    alone.learn(losses[:12].repeat(2), step=0)
    for one, other in zip(ours.controller.parameters(), alone.controller.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_auto_learns_from_the_losses_of_all_ranks(process_group):
    options = {"weak": outspan.crop_and_flip(), "epochs": 100, "steps": 50, "classes": 10}
    ours, alone = (outspan.Auto(outspan.natural(), **options, **ranks) for ranks in ({}, {"rank": 0, "world": 1}))
    for step in range(10):
        plans = [policy(IMAGES, LABELS, step=step).plan for policy in (ours, alone)]
        losses = torch.linspace(0.1, 2, 12)
        alone._batch = (*ours._batch[:2], 1)  # the other rank has the same rows and losses
        alone._fits.add(*(ours._batch[0], losses, ours._batch[1]))
        ours.learn(losses, step=step)
        alone.learn(losses, step=step)
    assert plans[0].ops.tolist() != plans[1].ops.tolist()  # the rows of rank 1
    for name, tensor in ours.state_dict().items():
        torch.testing.assert_close(tensor, alone.state_dict()[name])


def test_a_rank_of_auto_has_its_rows_of_the_whole_batch():
    mixed = {"mix": outspan.cutmix(), "epochs": 400, "steps": 50, "classes": 10, "defaults": "flip"}
    whole = outspan.Auto(outspan.natural(), **mixed, rank=0, world=1)(IMAGES.repeat(2, 1, 1, 1), LABELS.repeat(2), step=3)
    for rank in range(2):
        own = outspan.Auto(outspan.natural(), **mixed, rank=rank, world=2)(IMAGES, LABELS, step=3)
        assert own.plan.names == whole.plan.names
        assert torch.equal(own.plan.ops, whole.plan.ops[12 * rank : 12 * rank + 12])
        assert int(own.plan.partners.max()) < 12  # of its own rows


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 1}, "rank and world must be passed together, got rank=1 and world=None"),
        ({"rank": 2, "world": 2}, r"rank must be in \[0, 1\], one less than world, got 2"),
        ({"rank": 0, "world": 0}, "world must be at least 1, got 0"),
    ],
)
def test_wrong_ranks_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        outspan.Plain(GEOMETRIC, classes=10, **options)
