"""Predictions of a text model: strings are texts, Path objects are files."""

import pytest
import torch

import outspan


def test_strings_and_files_give_the_same_predictions(corpus, tiny_model, tmp_path):
    keys = {"data": str(corpus), "model": str(tiny_model), "policy": "none", "epochs": 1, "batch": 8, "length": 32}
    outspan.train(**keys, out=tmp_path / "run", device="cpu")
    texts = ["A good film.", "Bad."]
    result = outspan.predict(tmp_path / "run", texts, device="cpu")
    assert result.probabilities.shape == (2, 2)
    (tmp_path / "first.txt").write_text(texts[0])
    of_file = outspan.load(tmp_path / "run").predict([tmp_path / "first.txt"])
    assert torch.allclose(of_file.probabilities[0].cpu(), result.probabilities[0], atol=1e-5)
    with pytest.raises(ValueError, match=r"texts must be a list of strings, or paths of \.txt files, got str"):
        outspan.predict(tmp_path / "run", "A good film.", device="cpu")
    with pytest.raises(ValueError, match="texts must be strings that are not empty, got '' at position 1"):
        outspan.predict(tmp_path / "run", ["A good film.", ""], device="cpu")
