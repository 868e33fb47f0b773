"""Models: parameter counts of the papers, and shapes."""

import subprocess
import sys

import pytest
import torch

from outspan import models
from outspan.data.sets import load
from outspan.models import shake
from outspan.models.evaluating import on_device
from outspan.models.shake_shake import Shortcut


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("wide_resnet-28-10", 36.5),
        ("wide_resnet-28-2", 1.47),
        ("wide_resnet-40-2", 2.24),
        ("wide_resnet-16-4", 2.75),
        ("shake_shake-26-2x96d", 26.2),
        ("pyramidnet-272-200", 26.0),
        ("resnet-50", 25.6),
        ("resnet-18", 11.7),
    ],
)
def test_parameter_counts_match_the_papers(name, millions):
    with torch.device("meta"):
        model = models.build(name, (3, 32, 32), 1000 if name.startswith("resnet") else 10)
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)


def test_the_mlp_has_one_hidden_layer_of_100():
    model = models.build("mlp", (1, 28, 28), 10)
    assert [tuple(parameter.shape) for parameter in model.parameters()] == [(100, 784), (100,), (10, 100), (10,)]


def test_the_width_of_an_mlp_is_in_its_name():
    assert models.build("mlp-30", (1, 28, 28), 10)[1].weight.shape == (30, 784)
    for name in ("mlp-0", "mlp-x", "30"):
        with pytest.raises(ValueError, match="unknown model"):
            models.build(name, (1, 28, 28), 10)


SMALL = ["shake_shake-26-2x4d", "pyramidnet-11-8", "resnet-18"]


@pytest.mark.parametrize("name", ["mlp", "convnet", "wide_resnet-16-4", *SMALL])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 9, 13)])
def test_logits_have_one_column_per_class(name, shape):
    model = models.build(name, shape, 7).eval()
    assert model(torch.zeros(2, *shape)).shape == (2, 7)


def test_unknown_names_and_missing_packages_raise_errors(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ValueError, match="unknown model 'wideresnet-28-2', did you mean 'wide_resnet-28-2'"):
        models.build("wideresnet-28-2", (3, 32, 32), 10)
    with pytest.raises(ValueError, match="needs timm, which is not installed"):
        models.build("timm:resnet18", (3, 32, 32), 10)
    for name, message in (
        ("wide_resnet-27-2", r"model 'wide_resnet-27-2': depth must be 6 n \+ 4, at least 10, got 27"),
        ("wide_resnet-4-2", "at least 10, got 4"),
        ("pyramidnet-270-200", r"depth must be 9 n \+ 2, got 270"),
        ("resnet-20", "depth must be one of 18, 34, 50, 101, got 20"),
    ):
        with pytest.raises(ValueError, match=message):
            models.build(name, (3, 32, 32), 10)


@pytest.mark.parametrize("name", SMALL)
def test_evaluation_uses_no_random_numbers(name):
    model = models.build(name, (3, 16, 16), 4)
    images = torch.randn(3, 3, 16, 16)
    model.eval()
    before = torch.get_rng_state()
    with torch.no_grad():
        assert torch.equal(model(images), model(images))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("stride", [1, 2])
def test_half_of_a_shortcut_is_shifted_by_one_pixel(stride):
    shortcut = Shortcut(2, 4, stride).eval()
    for path in shortcut.paths:
        path.weight.data = torch.eye(2).view(2, 2, 1, 1)
    images = torch.rand(3, 2, 6, 8)
    with torch.no_grad():
        still, moved = shortcut(images).split(2, dim=1)
    assert torch.allclose(still, images[..., ::stride, ::stride], atol=1e-4)
    assert not moved[..., 0, :].any()
    assert not moved[..., 0].any()
    assert torch.allclose(moved[..., 1:, 1:], images[..., stride - 1 : -1 : stride, stride - 1 : -1 : stride], atol=1e-4)


def test_join_has_a_different_weight_in_the_backward_pass():
    shortcut, values = (torch.randn(5, 2, 3, 3, requires_grad=True) for _ in range(2))
    forward, backward = torch.rand(5, 1, 1, 1), torch.rand(5, 1, 1, 1)
    out = shake.Join.apply(shortcut, values, forward, backward)
    assert torch.allclose(out, shortcut + forward * values)
    out.sum().backward()
    assert torch.equal(shortcut.grad, torch.ones_like(shortcut))
    assert torch.allclose(values.grad, backward.expand_as(values))


def test_mix_has_a_different_weight_in_the_backward_pass():
    first, second = (torch.randn(5, 2, 3, 3, requires_grad=True) for _ in range(2))
    forward, backward = torch.rand(5, 1, 1, 1), torch.rand(5, 1, 1, 1)
    out = shake.Mix.apply(first, second, forward, backward)
    assert torch.allclose(out, forward * first + (1 - forward) * second, atol=1e-6)
    out.sum().backward()
    assert torch.allclose(first.grad, backward.expand_as(first))
    assert torch.allclose(second.grad, (1 - backward).expand_as(second))


def test_shake_shake_mixes_each_image_with_its_own_weight():
    ones, zeros = torch.ones(4000, 1, 1, 1, requires_grad=True), torch.zeros(4000, 1, 1, 1, requires_grad=True)
    mixed = shake.shake_shake(ones, zeros, training=True)
    mixed.sum().backward()
    for weights in (mixed.detach(), ones.grad):
        assert weights.min() >= 0
        assert weights.max() <= 1
        assert weights.mean() == pytest.approx(0.5, abs=5 * (1 / 12 / 4000) ** 0.5)
        assert weights.var() == pytest.approx(1 / 12, rel=0.1)
    assert abs(torch.corrcoef(torch.stack([mixed.detach().flatten(), ones.grad.flatten()]))[0, 1]) < 0.1  # two draws
    assert torch.allclose(ones.grad + zeros.grad, torch.ones(()))
    assert torch.equal(shake.shake_shake(ones, zeros, training=False), torch.full((4000, 1, 1, 1), 0.5))


COMPILED = """
import torch
from outspan import models
for name in ("shake_shake-26-2x4d", "pyramidnet-11-8"):
    model = models.build(name, (3, 16, 16), 4).to(memory_format=torch.channels_last)
    images = torch.randn(4, 3, 16, 16).to(memory_format=torch.channels_last)
    with torch.autocast("cpu", torch.bfloat16):
        logits = torch.compile(model, backend="aot_eager", fullgraph=True)(images)
    assert logits.dtype == torch.bfloat16
    logits.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
print("done")
"""


@pytest.mark.slow
def test_shake_models_compile_to_one_graph_in_half_precision():
    """In a separate process, because the type checks of the suite must not be compiled."""
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", COMPILED], capture_output=True, text=True)
    assert run.stdout == "done\n", run.stderr


def test_shake_drop_weights_follow_the_survival_probability():
    survival = torch.tensor([0.9, 0.7]).repeat(2000)
    forward, backward = shake.draw_drops(torch.empty(8, 3, 5, 5), survival).flatten(2)  # [blocks, B] each
    passed = (forward == 1).all(1)
    assert torch.equal(passed, (backward == 1).all(1))  # a block survives for the whole batch, in both passes
    for own, kept in ((0.9, passed[::2]), (0.7, passed[1::2])):
        assert kept.double().mean() == pytest.approx(own, abs=5 * (own * (1 - own) / 2000) ** 0.5)
    for noise, low in ((forward[~passed], -1), (backward[~passed], 0)):
        assert low <= noise.min() < low + 0.01
        assert 0.99 < noise.max() <= 1
        spread = (1 - low) ** 2 / 12
        assert noise.mean() == pytest.approx((low + 1) / 2, abs=5 * (spread / noise.numel()) ** 0.5)
        assert noise.var() == pytest.approx(spread, rel=0.1)
    assert abs(torch.corrcoef(torch.stack([forward[~passed].flatten(), backward[~passed].flatten()]))[0, 1]) < 0.1  # two draws


def test_shake_drop_has_a_different_weight_in_the_backward_pass():
    values, shortcut = torch.ones(2, 1, 1, 1, requires_grad=True), torch.full((2, 1, 1, 1), 5.0, requires_grad=True)
    forward, backward = torch.tensor([[-0.5, 1.0], [0.25, 1.0]]).view(2, 2, 1, 1, 1)
    out = shake.shake_drop(shortcut, values, forward, backward)
    out.sum().backward()
    assert out.flatten().tolist() == [4.5, 6.0]
    assert values.grad.flatten().tolist() == [0.25, 1.0]
    assert shortcut.grad.flatten().tolist() == [1.0, 1.0]


def test_in_evaluation_a_block_is_scaled_by_its_survival_probability():
    block = models.build("pyramidnet-11-8", (3, 8, 8), 4).eval().blocks[0]
    images = torch.randn(2, 16, 8, 8)
    around = torch.nn.functional.pad(images, (0, 0, 0, 0, 0, block.more))
    assert block.survival == pytest.approx(1 - 0.5 / 3)
    assert torch.allclose(block(images, None), around + block.survival * block.layers(images), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "steps", "count"),
    [
        ("shake_shake-26-2x8d", 50, 32),
        ("pyramidnet-20-16", 60, 32),
        ("resnet-18", 30, 32),
        ("wide_resnet-10-2", 40, 32),
        pytest.param("shake_shake-26-2x8d", 100, 128, marks=pytest.mark.slow),
        pytest.param("pyramidnet-29-16", 100, 128, marks=pytest.mark.slow),
        pytest.param("resnet-18", 60, 128, marks=pytest.mark.slow),
        pytest.param("wide_resnet-10-2", 60, 128, marks=pytest.mark.slow),
    ],
)
def test_a_model_can_fit_a_few_images(name, steps, count, one_thread):
    digits = load("digits")
    images, labels = digits.train.images[:count].float() / 255, digits.train.labels[:count]
    images = torch.nn.functional.avg_pool2d(images, 4)
    torch.manual_seed(0)
    model = models.build(name, (1, 7, 7), 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / steps)
        model.train()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    model.eval()
    assert torch.equal(model(images).argmax(1), labels)


def test_a_model_is_added_by_a_function_and_a_line_of_the_table(tmp_path, monkeypatch):
    added = {
        "linear-N": models.Family(
            lambda shape, classes, bias: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, classes))
        )
    }
    table = {**models.FAMILIES, "images": {**models.FAMILIES["images"], **added}}
    monkeypatch.setattr(models, "FAMILIES", table)
    assert models.build("linear-1", (1, 2, 2), 3)(torch.zeros(1, 1, 2, 2)).shape == (1, 3)
    with pytest.raises(ValueError, match="model 'linear-1' is for images; for texts use a Hugging Face Hub name"):
        models.check_takes("linear-1", "texts")
    models.check_takes("some/bert", "texts")
    assert [models.reads_files(name) for name in ("linear-1", "timm:a", "some/bert")] == [False, True, True]
    assert [models.is_perceptron(name) for name in ("mlp", "mlp-7", "linear-1", "some/bert")] == [True, True, False, False]
    monkeypatch.chdir(tmp_path)
    for name in ("mlp", "bert", "123"):
        (tmp_path / name).mkdir()
    assert [models.locate(name) for name in ("mlp", "bert", "123", "other", "")] == [
        "mlp", str(tmp_path / "bert"), str(tmp_path / "123"), "other", "",
    ]  # fmt: skip


class Movable(torch.nn.Linear):
    """A model on the CPU that records the devices that it is moved to."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.places: list[str] = []

    def to(self, device: torch.device) -> "Movable":
        self.places.append(device.type)
        return self


def test_a_model_is_moved_back_to_its_device():
    model = Movable()
    with on_device(model, torch.device("cuda")) as moved:
        assert moved is model
        assert model.places == ["cuda"]
    assert model.places == ["cuda", "cpu"]
    with pytest.raises(KeyError), on_device(model, torch.device("cuda")):
        raise KeyError
    assert model.places == ["cuda", "cpu"] * 2
