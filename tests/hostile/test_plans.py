"""Malicious or changed plans and images: each causes a ValueError that names the problem."""

import pytest
import torch

from conftest import make_images, run_on
from outspan import Normalize, Plain, Plan, Uncertain, apply, mix_labels, uniform
from outspan.transforms.kernels import cpu


@pytest.mark.parametrize("shape", [(0, 1, 1, 2**31), (0, 3, 2**31, 1), (1, 1, 1, 2**31), (1, 1, 2**32 + 4, 4)])
def test_a_side_that_does_not_fit_in_32_bits_is_refused(shape, backend):
    images = torch.zeros(1, 1, 1, 1, dtype=torch.uint8).expand(shape)  # one byte of memory
    plan = Plan.of([["invert"]] * shape[0])
    with pytest.raises(ValueError, match=rf"sides of at most 2147483647 pixels, got \[{shape[2]}, {shape[3]}\]"):
        run_on(backend, images, plan)


@pytest.mark.skipif(not cpu.is_built(), reason="installed without a compiler")
def test_images_too_large_for_the_kernel_run_on_the_reference():
    fill, plan = torch.zeros(1, dtype=torch.uint8), Plan.of([])
    for width, supported in ((2**14, True), (2**14 + 1, False)):
        images = torch.empty((0, 1, 2**15, width), dtype=torch.uint8)
        assert cpu.apply(images, plan, fill=fill, normalize=None, out=torch.empty_like(images)) == supported
        assert apply(images, plan).shape == images.shape


def mixing() -> Plan:
    return Plan.of(
        [["mixup", "invert"], ["rotate"], ["mixup"]],
        levels=[[0.5, 0], [0.5], [0.25]],
        partners=[[1, -1], [-1], [0]],
        source=[0, 1, 2],
        out=[0, 2],
    )


CHANGES = {
    "out": (-1, 3, 2**40, -(2**40)),
    "source": (-1, 3, 2**40, -(2**40)),
    "partners": (-2, 3, 2**40, -(2**40)),
    "ops": (-2, 3, 300, -300),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in CHANGES.items() for value in values])
def test_a_plan_changed_in_place_is_refused(name, value, backend):
    """Python and torch would count a negative row from the end."""
    plan = mixing()
    getattr(plan, name).view(-1)[0] = value
    message = f"the plan reads image {value}" if name == "source" and value > 0 else f"{name} must"
    with pytest.raises(ValueError, match=message):
        run_on(backend, make_images(0, 3, 3, 8, 8), plan)


@pytest.mark.parametrize("name", ["ops", "levels", "places", "partners", "source"])
def test_a_plan_resized_in_place_is_refused(name, backend):
    """The kernels get addresses, so they would read a shorter tensor out of bounds."""
    plan = mixing()
    getattr(plan, name).resize_(1)
    with pytest.raises(ValueError, match=r"must have shape"):
        run_on(backend, make_images(0, 3, 3, 8, 8), plan)


@pytest.mark.parametrize("names", [("invert",), ("invert", "mixup")])
@pytest.mark.parametrize(("name", "value"), [("out", -1), ("source", -1), ("source", 3)])
def test_labels_of_a_plan_changed_in_place_are_refused(names, name, value):
    rows = len(names)
    plan = Plan.of([[step] for step in names], levels=[[0.5]] * rows, partners=[[0]] * rows)
    getattr(plan, name)[0] = value
    with pytest.raises(ValueError, match=rf"{name} must|the plan reads image 3"):
        mix_labels(torch.tensor([0, 1, 2]), plan, 3, (8, 8))


def test_a_plan_changed_in_place_is_not_joined_indexed_or_extended():
    """If two plans are joined, row -1 of the second would become the last row of the first."""
    plan, other = mixing(), mixing()
    other.out[0] = -1
    for join in (lambda: Plan.cat([plan, other]), lambda: other.then(Plan.of([[], []])), lambda: other[[0]]):
        with pytest.raises(ValueError, match=r"out must lie in \[0, 2\], got -1 to 2"):
            join()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.int8, torch.bool])
def test_images_that_are_not_bytes_are_refused(dtype, backend, unchecked):
    """ToTensor of torchvision returns numbers from 0 to 1. As bytes they would all be 0."""
    images = torch.ones(2, 3, 8, 8).to(dtype)
    message = rf"images must be a uint8 tensor .*got {dtype}.*v2.PILToTensor\(\)"
    with pytest.raises(ValueError, match=message):
        Normalize((0.5,) * 3, (0.5,) * 3)(images)
    with pytest.raises(ValueError, match=message):
        Normalize((0.5,) * 3, (0.5,) * 3)(images)
    with pytest.raises(ValueError, match=message):
        run_on(backend, images, Plan.of([["invert"]]))


def test_policies_refuse_images_that_are_not_bytes(unchecked):
    images, labels = torch.rand(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))
    for policy in (Uncertain(model, uniform(2)), Plain(uniform(2), classes=2)):
        with pytest.raises(ValueError, match=r"got torch.float32.*v2.PILToTensor\(\)"):
            policy(images, labels, step=0)
