"""Transforms that mix images, and the labels of mixed images."""

import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import make_images, seeds
from outspan import TRANSFORMS, Plan, apply, mix_labels, rng, uniform


def test_mixup_uses_the_partner_before_the_step():
    images = torch.tensor([0, 200], dtype=torch.uint8).view(2, 1, 1, 1)
    plan = Plan.of([["invert", "mixup"], ["invert", "mixup"]], levels=[[0, 0.5], [0, 0.5]], partners=[[-1, 1], [-1, 0]])
    assert apply(images, plan).flatten().tolist() == [155, 155]  # 255 and 55, each mixed with the other


def test_mixup_labels_by_weight_and_cutmix_labels_by_area():
    plan = Plan.of(
        [["mixup"], ["cutmix"], []],
        levels=[[0.25], [0.5], []],
        places=[[[0] * 4], [[0, 0, 0, 0]], []],  # the corner: a quarter of the square remains
        partners=[[2], [2], []],
    )
    targets = mix_labels(torch.tensor([0, 1, 2]), plan, 3, (32, 32))
    assert targets.tolist() == [[0.75, 0, 0.25], [0, 1 - 64 / 1024, 64 / 1024], [0, 0, 1]]


@given(seed=seeds, depth=st.integers(0, 5))
def test_labels_follow_the_pixels(seed, depth):
    """The value of a constant image is its label, except for the rounding of a byte at every step."""
    values = torch.arange(6) * 40
    images = values.to(torch.uint8).view(6, 1, 1, 1).expand(6, 1, 8, 8)
    plan = uniform(depth, transforms=("mixup", "horizontal_flip"), replacement=True)(6, rng=rng.generator(seed))
    means = apply(images, plan).double().mean((1, 2, 3))
    targets = mix_labels(torch.arange(6), plan, 6, (8, 8))
    assert torch.allclose(targets.double() @ values.double(), means, atol=depth + 1e-3)
    assert torch.allclose(targets.sum(1), torch.ones(6))


def test_labels_belong_to_the_rows_of_the_output():
    plan = uniform(3, transforms=tuple(TRANSFORMS))(5, rng=rng.generator(0), candidates=2)
    labels = torch.tensor([3, 1, 2, 0, 3])
    whole = mix_labels(labels, plan, 4, (32, 32))
    assert torch.equal(mix_labels(labels, plan[[7, 2]], 4, (32, 32)), whole[[7, 2]])
    soft = torch.eye(4)[labels]
    assert torch.equal(mix_labels(soft, plan, 4, (32, 32)), whole)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 3]), r"labels must lie in \[0, 2\], got 0 to 3"),
        (torch.tensor([0, -1]), r"labels must lie in"),
        (torch.tensor([0.0, 1.0]), "labels must be class indices"),
        (torch.zeros(2, 4), "soft labels must have 3 columns, got 4"),
        (torch.tensor([[0.5, 0.5, 0.0], [torch.nan, 0.0, 1.0]]), "sum to 1, got row 1 with the sum nan"),
        (torch.tensor([[0.5, 0.5, 0.0], [torch.inf, 0.0, 1.0]]), "sum to 1, got row 1 with the sum inf"),
        (torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.5]]), "sum to 1, got row 1 with the sum 1.5"),
        (torch.tensor([[0.5, 0.5, 0.0], [1.5, 0.0, -0.5]]), "got row 1 with the sum 1, its smallest value is -0.5"),
        (torch.tensor([[0.5, 0.5, 0.01], [1.0, 0.0, 0.0]]), "got row 0 with the sum 1.01"),
        (torch.tensor([[0, 1, 1], [1, 0, 0]]), "got row 0 with the sum 2"),
        (torch.tensor([[0, 0, 0], [1, 0, 0]]), "got row 0 with the sum 0"),
        (torch.zeros(2, 3, dtype=torch.float16), "got row 0 with the sum 0"),
        (torch.tensor([0]), "the plan reads image 1, but the batch has 1 images"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, message, unchecked):
    with pytest.raises(ValueError, match=message):
        mix_labels(labels, Plan.of([["invert"]] * 2), 3, (4, 4))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_soft_labels_may_be_rounded(dtype):
    soft = torch.tensor([[0.9, 0.05, 0.05], [1.0001, -0.0001, 0.0], [1 / 3, 1 / 3, 1 / 3]]).to(dtype)
    mixed = mix_labels(soft, Plan.of([["invert"]] * 3), 3, (4, 4))
    assert torch.equal(mixed, soft.float())
    assert mix_labels(soft[:0], Plan.of([]), 3, (4, 4)).shape == (0, 3)


_ON_GPU = """
import torch
from outspan import Plan, mix_labels
plan = Plan.of([["mixup"], []], levels=[[0.25], []], partners=[[1], []])
soft = torch.tensor([[0.9, 0.1], {second}], device="cuda")
mix_labels(soft, plan, 2, (4, 4)).cpu()
torch.cuda.set_sync_debug_mode("error")
targets = mix_labels(soft, plan, 2, (4, 4))
torch.cuda.set_sync_debug_mode("default")
print(targets.tolist())
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_refuses_wrong_soft_labels_without_synchronization():
    def run(second: list[float]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", _ON_GPU.format(second=second)], capture_output=True, text=True, check=False
        )

    assert json.loads(run([0.0, 1.0]).stdout) == [pytest.approx([0.675, 0.325]), [0, 1]]
    for second in ([0.5, 0.4], [1.5, -0.5]):
        process = run(second)
        assert process.returncode != 0
        assert "soft labels must be probabilities" in process.stderr


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan.of([["mixup"]], levels=[[0.5]]), "'mixup' in row 0 needs a partner row"),
        (Plan.of([["mixup"]], levels=[[5.0]], partners=[[0]]), "level of 'mixup' must lie in"),
        (Plan.of([["rotat"]]), "did you mean 'rotate'"),
    ],
)
def test_labels_of_a_plan_that_does_not_fit_are_refused(plan, message):
    with pytest.raises(ValueError, match=message):
        mix_labels(torch.tensor([0]), plan, 2, (4, 4))


def test_mixing_an_image_with_itself_changes_nothing():
    images = make_images(0, 2, 3, 8, 8)
    plan = Plan.of([["mixup"], ["cutmix"]], levels=[[0.37], [0.5]], partners=[[0], [1]])
    assert torch.equal(apply(images, plan), images)
