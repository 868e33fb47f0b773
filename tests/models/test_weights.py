"""Initial weights of the ResNets: torchvision's files, safetensors, and what is refused."""

import hashlib
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from outspan import models
from outspan.downloads import Source
from outspan.training.train import train
from outspan.training.trained import load
from trained_runs import SMALL, few

SHAPE = (3, 32, 32)


class TheirBlock(nn.Module):
    """A block with the names and the order of torchvision's, with the stride on the 3x3 convolution."""

    def __init__(self, before: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        after = 4 * width if bottleneck else width
        plan = [(before, width, 1, 1), (width, width, 3, stride), (width, after, 1, 1)]
        self.count = 3 if bottleneck else 2
        for i, (ins, outs, kernel, step) in enumerate(
            plan if bottleneck else [(before, width, 3, stride), (width, width, 3, 1)], 1
        ):
            setattr(self, f"conv{i}", nn.Conv2d(ins, outs, kernel, step, kernel // 2, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(outs))
        self.downsample = None
        if stride > 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        out = x
        for i in range(1, self.count + 1):
            out = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(out))
            out = out if i == self.count else out.relu()
        return (out + (x if self.downsample is None else self.downsample(x))).relu()


class Theirs(nn.Module):
    """A ResNet with torchvision's names, written from its documentation: the reference."""

    def __init__(self, counts: tuple[int, ...], *, bottleneck: bool) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        before = 64
        for stage, count in enumerate(counts):
            blocks = []
            for i in range(count):
                blocks.append(TheirBlock(before, 64 << stage, 2 if stage and not i else 1, bottleneck=bottleneck))
                before = (256 if bottleneck else 64) << stage
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(before, 1000)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


def published(folder: Path, depth: int, monkeypatch) -> Theirs:
    """Write random weights in torchvision's format where the downloaded file would be."""
    counts = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}[depth]
    theirs = Theirs(counts, bottleneck=depth >= 50)
    for tensor in theirs.state_dict().values():
        if tensor.is_floating_point():
            tensor.uniform_(0.02, 0.05) if tensor.ndim == 1 else tensor.mul_(0.5)
    tensors = {name: tensor for name, tensor in theirs.state_dict().items() if not name.endswith("num_batches_tracked")}
    (folder / "weights").mkdir(parents=True)
    path = folder / "weights" / "made.pth"
    torch.save(tensors, path)
    source = Source("https://nowhere.invalid/made.pth", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(sys.modules["outspan.models.resnet"], "RESNETS", {depth: source})
    monkeypatch.setenv("OUTSPAN_DATA", str(folder))
    return theirs


@pytest.mark.parametrize("depth", [18, 50])
def test_published_weights_give_the_same_logits_as_torchvisions_model(depth, tmp_path, monkeypatch):
    theirs = published(tmp_path, depth, monkeypatch).eval()
    ours = models.build(f"resnet-{depth}", SHAPE, 1000, "published").eval()
    images = torch.randn(2, *SHAPE)
    torch.testing.assert_close(ours(images), theirs(images), rtol=1e-4, atol=1e-5)
    torch.manual_seed(3)
    fresh = models.build(f"resnet-{depth}", SHAPE, 7)
    torch.manual_seed(3)
    tuned = models.build(f"resnet-{depth}", SHAPE, 7, "published")
    assert torch.equal(tuned[-1].weight, fresh[-1].weight)  # the head is as without weights
    assert torch.equal(tuned[0].weight, theirs.conv1.weight)


def test_a_changed_file_of_published_weights_is_refused(tmp_path, monkeypatch):
    published(tmp_path, 18, monkeypatch)
    with (tmp_path / "weights" / "made.pth").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match=r"made.pth: its SHA-256 is not [0-9a-f]{64}: remove it"):
        models.build("resnet-18", SHAPE, 1000, "published")


def test_a_failed_download_and_a_folder_name_the_file_to_use(tmp_path, monkeypatch):
    source = Source("http://127.0.0.1:9/a.pth", "0" * 64)
    monkeypatch.setattr(sys.modules["outspan.models.resnet"], "RESNETS", {18: source})
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path))
    message = "download interrupted .*; without network access use --set weights=FILE.safetensors"
    with pytest.raises(ValueError, match=message):
        models.build("resnet-18", SHAPE, 3, "published")
    with pytest.raises(ValueError, match=r"a folder, not a file: it has no .safetensors file"):
        models.build("resnet-18", SHAPE, 3, str(tmp_path))
    for name in ("step-8.safetensors", "best.safetensors"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"a folder, not a file: pass a file in it, best.safetensors or step-8.safetensors"):
        models.build("resnet-18", SHAPE, 3, str(tmp_path))


def test_files_of_weights_with_both_names_are_loaded_and_others_refused(tmp_path):
    model = models.build("resnet-18", SHAPE, 5)
    save_file({f"model.{name}": tensor for name, tensor in model.state_dict().items()}, tmp_path / "ours")
    loaded = models.build("resnet-18", SHAPE, 5, str(tmp_path / "ours"))
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), loaded.parameters(), strict=True))
    theirs = Theirs((2, 2, 2, 2), bottleneck=False)
    save_file(theirs.state_dict(), tmp_path / "theirs")
    assert torch.equal(models.build("resnet-18", SHAPE, 5, str(tmp_path / "theirs"))[0].weight, theirs.conv1.weight)
    for name, shape, message in (
        ("resnet-34", SHAPE, r"model 'resnet-34': the weights have no tensor for '10.layers.0.weight': another model's\?"),
        ("resnet-18", (1, 32, 32), r"tensor '0.weight' of the weights is \[64, 3, 7, 7\], .* for grey images set channels=3"),
    ):
        with pytest.raises(ValueError, match=message):
            models.build(name, shape, 5, str(tmp_path / "theirs"))
    save_file({**theirs.state_dict(), "extra": torch.ones(1)}, tmp_path / "extra")
    with pytest.raises(ValueError, match="the weights have a tensor 'extra', which the model does not have"):
        models.build("resnet-18", SHAPE, 5, str(tmp_path / "extra"))
    with pytest.raises(ValueError, match="weights must be empty for model 'mlp', got 'published'"):
        models.build("mlp", SHAPE, 5, "published")


def test_a_run_starts_from_the_best_weights_of_another(tmp_path):
    recipe = {"model": "resnet-18", "validation": 40, "batch": 100, "policy": "none", "epochs": 1}
    train(SMALL, out=tmp_path / "first", splits=few(100), **recipe)
    weights = str(tmp_path / "first" / "best.safetensors")
    train(SMALL, out=tmp_path / "second", splits=few(100), **{**recipe, "lr": 1e-9}, weights=weights)
    first, second = (load(tmp_path / name).model for name in ("first", "second"))
    assert torch.allclose(first[0].weight, second[0].weight, atol=1e-6)
