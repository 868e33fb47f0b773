"""Predictions of a text model: strings are texts, Path objects are files."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest
import torch

import outspan
from outspan.text.models import load_tokenizer


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
    with pytest.raises(ValueError, match="texts must be strings that are not empty, or pairs of them, got '' at position 1"):
        outspan.predict(tmp_path / "run", ["A good film.", ""], device="cpu")


@pytest.fixture
def trained(corpus, tiny_model, tmp_path):
    keys = {"data": str(corpus), "model": str(tiny_model), "policy": "none", "epochs": 1, "batch": 8, "length": 32}
    outspan.train(**keys, out=tmp_path / "run", device="cpu")
    return tmp_path / "run"


def test_a_table_is_predicted_row_by_row(trained, tmp_path, run):
    texts = ["a wonderful film.", 'dull, "very" dull', "the plot\nis\tquite long and with music and with music.", "great!"]
    expected = outspan.predict(trained, texts, device="cpu").probabilities
    with open(tmp_path / "new.csv", "w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *([i, text] for i, text in enumerate(texts))])
    (tmp_path / "new.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    for name in ("new.csv", "new.jsonl"):
        path, written = tmp_path / name, tmp_path / f"predicted{Path(name).suffix}"
        predicted = outspan.predict(trained, path, device="cpu")
        assert torch.allclose(predicted.probabilities, expected, atol=1e-6)
        assert (predicted.files, predicted.rows) == ((path,) * 4, (1, 2, 3, 4))
        assert f"wrote {written}: 4 predictions" in run("predict", trained, path, "-o", written, "--device", "cpu")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "predicted.csv").read_text())))
    objects = [json.loads(line) for line in (tmp_path / "predicted.jsonl").read_text().splitlines()]
    for i, (row, line) in enumerate(zip(rows, objects, strict=True)):
        assert (row["file"], row["row"], row["class"]) == (str(tmp_path / "new.csv"), str(i + 1), line["class"])
        assert [float(row["p(0)"]), float(row["p(1)"])] == pytest.approx(expected[i].tolist(), abs=1e-6)
        assert [*line["probabilities"].values()] == pytest.approx(expected[i].tolist(), abs=1e-6)
    shown = run("predict", trained, tmp_path / "new.csv", "--device", "cpu").splitlines()
    assert shown[2].startswith(f"{tmp_path / 'new.csv'}, row 3  ")
    first = json.loads(run("predict", trained, tmp_path / "new.csv", "--json", "--top", "2").splitlines()[0])
    assert first["row"] == 1
    assert sum(first["classes"].values()) == pytest.approx(1)


def test_texts_of_the_command_line_and_of_standard_input(trained, run, monkeypatch):
    out = run("predict", trained, "--text", "a great film", "--text", "dull", "--json").splitlines()
    assert [json.loads(line)["text"] for line in out] == ["a great film", "dull"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a great film\n\ndull\r\n")))
    assert run("predict", trained, "-", "--json").splitlines() == out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a \xff film\n")))
    assert "standard input: not UTF-8 (byte 2); convert it first" in run("predict", trained, "-", code=2)
    assert "pass either files or texts (--text, or - for standard input), got neither" in run("predict", trained, code=2)


def test_wrong_tables_are_refused(trained, tmp_path, run):
    path = tmp_path / "new.csv"
    path.write_text("text\n" + "good\n" + '" "\n' * 12)
    message = f"{path}: 12 of 13 rows have no text in the column 'text': lines 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, …"
    assert message in run("predict", trained, path, code=2)
    path.write_text("review\ngood\n")
    assert "no column 'text' (it has review)" in run("predict", trained, path, code=2)
    (tmp_path / "new.json").write_text("[]")
    assert "new.json: not a table that predict reads: write JSON lines" in run(
        "predict", trained, tmp_path / "new.json", code=2
    )
    assert "must be a .csv or .jsonl file, got '.txt'" in run("predict", trained, path, "-o", tmp_path / "a.txt", code=2)
    path.write_bytes(b"text\ngood\nb\xe4d\n")
    assert "line 3: not UTF-8 (byte 0xe4)" in run("predict", trained, path, code=2)


def test_a_model_that_cannot_be_fetched_is_refused_at_once(monkeypatch):
    from huggingface_hub import constants

    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(
        ValueError, match=r"'nobody/nothing' cannot be loaded \(127.0.0.1 cannot be reached: .*\); without the hub"
    ):
        load_tokenizer("nobody/nothing")
