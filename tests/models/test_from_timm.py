"""Models of timm: their initial weights, and the weights that are refused."""

import pickle
import sys

import pytest
import torch
from safetensors.torch import save_file

from outspan import models

SHAPE = (1, 4, 4)


@pytest.mark.parametrize("prefix", ["", "model."])  # a file of weights, and a checkpoint of outspan
def test_a_file_of_weights_is_loaded(prefix, timm, tmp_path):
    theirs = {"1.weight": torch.full((2, 16), 0.5), "1.bias": torch.ones(2), "2.weight": torch.ones(3, 2)}
    save_file({prefix + key: tensor for key, tensor in theirs.items()} | {"momentum.1.bias": torch.ones(2)}, tmp_path / "w")
    torch.manual_seed(5)
    model = models.build("timm:small", SHAPE, 3, str(tmp_path / "w"))
    assert (model[1].weight == 0.5).all()
    torch.manual_seed(5)
    fresh = models.build("timm:small", SHAPE, 3)
    assert torch.equal(model[2].weight, fresh[2].weight)  # the classifier is initialized as without a file
    assert not torch.equal(model[1].weight, fresh[1].weight)
    assert [one[:2] for one in timm] == [(3, 1)] * 3


def test_published_weights_come_from_timm(timm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "published").touch()  # not this file
    assert (models.build("timm:small", SHAPE, 3, "published")[1].weight == 0.25).all()
    assert [one[2] for one in timm] == [False, "published"]


def test_weights_of_another_model_are_refused(timm, tmp_path):
    for name, tensors in (("none", {"a": torch.ones(2)}), ("bias", {"1.bias": torch.ones(2)})):
        save_file(tensors, tmp_path / name)
        message = rf"weights '.*{name}' fit 0 of the 1 matrices of model 'timm:small': another model's\?"
        with pytest.raises(ValueError, match=message):
            models.build("timm:small", SHAPE, 3, str(tmp_path / name))
    save_file({"1.weight": torch.ones(5, 5)}, tmp_path / "shape")
    with pytest.raises(ValueError, match=r"model 'timm:small, weights .*shape': timm cannot build it \(Error"):
        models.build("timm:small", SHAPE, 3, str(tmp_path / "shape"))


class Bad:
    def __reduce__(self):
        return pytest.fail, ("a pickle was read",)


def test_pickles_are_not_read(timm, tmp_path):
    (tmp_path / "w.pt").write_bytes(pickle.dumps(Bad()))
    torch.save({"1.weight": torch.ones(2, 16)}, tmp_path / "safe.pt")
    (tmp_path / "empty.safetensors").touch()
    for name in ("w.pt", "safe.pt", "empty.safetensors"):
        with pytest.raises(ValueError, match=rf"weights '.*{name}': not safetensors \(.*\); a pickle can run code"):
            models.build("timm:small", SHAPE, 3, str(tmp_path / name))
    assert not [one for one in timm if one[2]]


def test_wrong_arguments_are_refused(timm):
    with pytest.raises(ValueError, match=r"weights 'none.pt': no such file \(allowed: empty, 'published', or a file\)"):
        models.build("timm:small", SHAPE, 3, "none.pt")
    with pytest.raises(ValueError, match=r"model 'timm:other': timm cannot build it \(Unknown model \(other\)\)"):
        models.build("timm:other", SHAPE, 3)
    for name, shape in (("convnet", (1, 8, 8)), ("google/bert", (16,))):
        with pytest.raises(ValueError, match=rf"weights must be empty for model '{name}', got 'published'"):
            models.build(name, shape, 3, "published")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import torchvision_that_is_not_there", "ModuleNotFoundError: No module named 'torchvision_that_is_not_there'"),
        (
            "raise RuntimeError('operator torchvision::nms does not exist\\nmore')",
            "RuntimeError: operator torchvision::nms does",
        ),
        ("raise OSError('libcudart.so.11: cannot open shared object file')", "OSError: libcudart.so.11"),
        ("import torch; torch.no_such_name", "AttributeError: module 'torch' has no attribute 'no_such_name'"),
    ],
)
def test_an_import_error_of_timm_names_the_cause(code, message, tmp_path, monkeypatch):
    (tmp_path / "timm.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(ValueError, match=rf"model 'timm:small' needs timm, which cannot be imported \({message}") as refused:
        models.build("timm:small", SHAPE, 3)
    assert "\n" not in str(refused.value)


def test_a_missing_timm_is_named(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:2])  # only built-in and frozen modules
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(ValueError, match="model 'timm:small' needs timm, which is not installed: pip install timm"):
        models.build("timm:small", SHAPE, 3)
