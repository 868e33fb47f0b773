"""Models whose output has the attribute `logits`, as those of Hugging Face transformers."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import outspan
from conftest import make_images
from outspan import models
from outspan.models.outputs import read_logits


class Wrapped(nn.Module):
    """A model with an output object, as in transformers."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images):
        return SimpleNamespace(logits=self.inner(images), loss=None)


def test_train_evaluate_and_predict_accept_it(tmp_path, monkeypatch):
    keys = {"data": "digits", "epochs": 1, "fraction": 0.05, "seed": 3}
    family = models.FAMILIES["images"]["mlp"]
    wrapped = models.Family(lambda shape, classes: Wrapped(family.build(shape, classes)))
    monkeypatch.setattr(models, "FAMILIES", {**models.FAMILIES, "images": {"wrapped": wrapped, **models.FAMILIES["images"]}})
    images = outspan.load_data("digits").test.images[:20]
    results = []
    for model in ("mlp", "wrapped"):
        folder = tmp_path / model
        summary = outspan.train(**keys, model=model, out=folder)
        assert outspan.evaluate(folder).accuracy == summary.accuracy
        results.append((summary.accuracy, outspan.predict(folder, images).probabilities))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])


def test_a_model_of_transformers_works_in_a_loop_with_uncertain():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    config = transformers.ViTConfig(**sizes, image_size=8, patch_size=4, num_labels=5)
    model = transformers.ViTForImageClassification(config)
    images, labels = make_images(0, 6, 3, 8, 8), torch.arange(6) % 5
    batch = outspan.Uncertain(model, outspan.uniform(2), candidates=3)(images, labels, step=0)
    logits = model(batch.inputs).logits
    outspan.soft_cross_entropy(model(batch.inputs), batch.targets).backward()
    assert outspan.soft_cross_entropy(logits, batch.targets) == outspan.soft_cross_entropy(model(batch.inputs), batch.targets)
    assert batch.targets.shape == (6, 5)
    assert all(parameter.grad is not None for parameter in model.classifier.parameters())


@pytest.mark.parametrize("output", [{"logits": torch.zeros(2, 3)}, (torch.zeros(2, 3),), SimpleNamespace(logits=None), None])
def test_other_outputs_are_refused(output):
    with pytest.raises(
        ValueError, match=r"the model must return logits, a tensor .* or an output with the attribute logits, got"
    ):
        read_logits(output)
