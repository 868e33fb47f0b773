"""Export to ONNX: ONNX Runtime gives the probabilities of the run's model, and nothing is written if it cannot."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import outspan
from outspan.data.sets import Data
from outspan.data.splits import InMemory
from outspan.integrations import onnx_file
from outspan.training import checkpoint
from outspan.training.trained import load
from trained_runs import SMALL, few

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the exporter


def run_onnx(file, **inputs):
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return session, session.run(None, inputs)[0]


def color(count: int, side: int) -> Data:
    """Return random images of three channels that are darker in one class."""
    draw = outspan.rng.generator(3, "color")
    labels = torch.arange(count) % 2
    images = torch.from_numpy(draw.integers(0, 156, (count, 3, side, side), dtype=np.uint8))
    return Data("color", *[InMemory(images + 100 * labels.byte().view(-1, 1, 1, 1), labels)] * 2, ("dark", "light"))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Return the folder of a run whose weights are averaged."""
    folder = tmp_path_factory.mktemp("onnx") / "digits"
    outspan.train(replace(SMALL, model="convnet", batch=50, epochs=2, ema=0.9), out=folder, splits=few(), device="cpu")
    return folder


def test_the_file_gives_the_probabilities_of_the_averaged_model(digits, tmp_path):
    data = outspan.load_data("digits")
    result = outspan.export(digits, tmp_path / "new" / "model.onnx", splits=data)
    assert result.path == tmp_path / "new" / "model.onnx"
    assert result.difference is not None
    assert result.difference <= 1e-4
    assert result.report == (
        f"largest difference of a probability to the run's model, on 256 test images of digits: {result.difference:.1e}",
    )
    run = load(digits)
    for count in (1, 7, 64):  # any batch
        images = data.test.images[300 : 300 + count]
        session, probabilities = run_onnx(result.path, images=images.numpy())
        expected = outspan.predict(run, images, device="cpu").probabilities
        np.testing.assert_allclose(probabilities, expected.numpy(), rtol=0, atol=1e-4)
    stored = checkpoint.load(digits)
    assert stored is not None
    for prefix, is_same in (("ema.", True), ("model.", False)):
        run.model.load_state_dict(
            {key.removeprefix(prefix): one for key, one in stored.tensors.items() if key.startswith(prefix)}
        )
        difference = (run.predict(images).probabilities.cpu() - torch.from_numpy(probabilities)).abs().max()
        assert (difference <= 1e-4) == is_same
    (described,) = session.get_inputs()
    assert (described.name, described.type, described.shape[1:]) == ("images", "tensor(uint8)", [1, 28, 28])
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == [str(digit) for digit in range(10)]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "resnet-18", "wide_resnet-16-4", "shake_shake-26-2x4d", "pyramidnet-29-4"])
def test_the_built_in_models_can_be_exported(model, tmp_path):
    data = color(256, 32)
    outspan.train(model=model, data="color", splits=data, policy="none", steps=3, batch=8, out=tmp_path / "run", device="cpu")
    result = outspan.export(tmp_path / "run", splits=data)
    assert result.path == tmp_path / "run" / "model.onnx"
    _, probabilities = run_onnx(result.path, images=data.test.images.numpy())
    expected = outspan.predict(tmp_path / "run", data.test.images, device="cpu").probabilities
    assert np.abs(probabilities - expected.numpy()).max() <= 1e-4


class Branching(nn.Module):
    """A model whose path depends on its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(784, 10)

    def forward(self, images):
        outputs = self.layer(images.flatten(1))
        return outputs if outputs.sum() > 0 else -outputs


class Remembering(nn.Module):
    """A model whose result in ONNX differs: the graph has the value that a number had during the export."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(784, 10), 0

    def forward(self, images):
        self.calls += 1
        return self.layer(images.flatten(1)) * (self.calls % 5)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Branching(), "cannot be exported to ONNX: its path depends on the values of the input; use torch.where"),
        (Remembering(), r"its probabilities differ by .*0\.0001"),
    ],
)
def test_a_model_that_onnx_cannot_take_is_refused_and_leaves_no_file(digits, tmp_path, model, message, capfd):
    with pytest.raises(ValueError, match=message) as error:
        outspan.export(replace(load(digits), model=model.eval()), tmp_path / "model.onnx")
    assert capfd.readouterr().err == ""  # torch prints its graph
    assert "\n" not in str(error.value)
    assert "model 'convnet' " in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_onnx_runtime_cannot_run_is_refused_and_removed(digits, tmp_path, monkeypatch):
    import onnxruntime

    class Broken(onnxruntime.InferenceSession):
        def run(self, names, inputs):
            return super().run(names, dict.fromkeys(["unknown"], inputs))

    monkeypatch.setattr(onnxruntime, "InferenceSession", Broken)
    with pytest.raises(ValueError, match=r"cannot be exported to ONNX: ONNX Runtime cannot run the exported file \(.*unknown"):
        outspan.export(digits, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", onnx_file._PACKAGES)
def test_a_missing_package_is_named(digits, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"needs {package}, which is not installed: pip install 'outspan\[export\]'"):
        outspan.export(digits, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments_are_refused(digits, tmp_path, run):
    (tmp_path / "empty").mkdir()
    for arguments, message in (
        ((digits, "--format", "onxx"), "unknown format 'onxx', did you mean 'onnx'? (known: onnx, huggingface)"),
        ((tmp_path / "none",), "no such folder"),
        ((tmp_path / "empty",), "no complete checkpoint; pass a folder that `outspan train -o`"),
        (
            (digits, "-o", tmp_path / "model.pt"),
            "model.pt: must be a .onnx file; a folder for transformers or timm is written with --format huggingface",
        ),
    ):
        assert message in run("export", *arguments, code=2)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_the_command_prints_the_difference_and_the_path(digits, tmp_path, run):
    out = run("export", digits, "-o", tmp_path / "model.onnx")  # the run has other data than digits
    assert "on 256 random inputs (the run's data cannot be read)" in out
    assert out.endswith(f"wrote {tmp_path / 'model.onnx'}\n")


@pytest.mark.slow
def test_texts_are_exported_from_tokens_to_probabilities(tmp_path, tiny_model):
    from reviews import make_reviews

    rows = [json.dumps({"text": text, "label": label}) for text, label in make_reviews(40)]
    for split in ("train", "test"):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / f"{split}.jsonl").write_text("\n".join(rows))
    keys = {"data": str(tmp_path / "data"), "model": str(tiny_model), "policy": "none", "epochs": 1, "length": 32}
    outspan.train(**keys, out=tmp_path / "run", device="cpu")
    result = outspan.export(tmp_path / "run")
    assert "on 40 test texts" in result.report[0]
    for shape in ((1, 5), (3, 32)):
        tokens = np.random.default_rng(0).integers(1, 20, shape)
        _, probabilities = run_onnx(result.path, tokens=tokens)
        with torch.inference_mode():
            expected = load(tmp_path / "run").model(torch.from_numpy(tokens)).softmax(1)
        assert np.abs(probabilities - expected.numpy()).max() <= 1e-4
