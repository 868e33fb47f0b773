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
    first = json.loads(run("predict", trained, tmp_path / "new.jsonl", "--json", "--top", "2").splitlines()[0])
    assert first == objects[0]  # the same keys as in the file


def send(monkeypatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_texts_of_the_command_line_and_of_standard_input(trained, run, monkeypatch, tmp_path):
    texts = ["a great film", "dull"]
    expected = outspan.predict(trained, texts, device="cpu")
    out = [json.loads(line) for line in run("predict", trained, "--text", texts[0], "--text", texts[1], "--json").splitlines()]
    assert [(line["file"], line["row"], line["text"]) for line in out] == [("", 1, "a great film"), ("", 2, "dull")]
    assert [line["class"] for line in out] == expected.classes
    send(monkeypatch, b"a great film\n\n dull\r\n")
    lines = [json.loads(line) for line in run("predict", trained, "-", "--json").splitlines()]
    assert [(line["file"], line["row"], line["text"]) for line in lines] == [("-", 1, "a great film"), ("-", 3, " dull")]
    assert [line["probabilities"] for line in lines] == [line["probabilities"] for line in out]
    send(monkeypatch, b"a great film\n\n dull\r\n")
    assert f"wrote {tmp_path / 'p.csv'}: 2 predictions" in run("predict", trained, "-", "-o", tmp_path / "p.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "p.csv").read_text())))
    assert [(row["file"], row["row"], row["text"]) for row in rows] == [("-", "1", "a great film"), ("-", "3", " dull")]
    assert [float(row["p(1)"]) for row in rows] == pytest.approx(expected.probabilities[:, 1].tolist(), abs=1e-6)
    message = run("predict", trained, "--text", "dull", "-o", tmp_path / "p.jsonl")
    assert message.strip() == f"wrote {tmp_path / 'p.jsonl'}: 1 prediction"
    assert json.loads((tmp_path / "p.jsonl").read_text())["text"] == "dull"


def test_wrong_inputs_of_the_command_line_are_refused(trained, run, monkeypatch, tmp_path):
    send(monkeypatch, b"a \xff film\n")
    assert "standard input: not UTF-8 (byte 2); convert it first" in run("predict", trained, "-", code=2)
    send(monkeypatch, b"\n \n")
    assert "standard input is empty: write a text per line to it" in run("predict", trained, "-", code=2)
    message = "pass either files, texts (--text), or - for standard input, got"
    assert f"{message} none of them" in run("predict", trained, code=2)
    assert f"{message} several of them" in run("predict", trained, "a.txt", "--text", "b", code=2)


def test_rows_without_a_text_can_be_left_out(trained, tmp_path, run):
    path, keys = tmp_path / "new.csv", ("--device", "cpu")
    path.write_text('text\na good film\n""\n" "\ndull\n')
    message = run("predict", trained, path, "-o", tmp_path / "p.csv", *keys, code=2)
    assert "2 of 4 rows have no text in the column 'text': lines 3, 4; add what is missing, or leave these" in message
    assert "rows out with --skip-bad 2" in message
    with pytest.warns(UserWarning, match="these rows are left out"):
        run("predict", trained, path, "-o", tmp_path / "p.csv", "--skip-bad", "2", *keys)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "p.csv").read_text())))
    assert [row["row"] for row in rows] == ["1", "4"]
    with pytest.warns(UserWarning, match="2 of 4 rows have no text .* are left out"):
        predicted = outspan.predict(trained, path, skip_bad=2, device="cpu")
    expected = outspan.predict(trained, ["a good film", "dull"], device="cpu").probabilities
    assert torch.allclose(predicted.probabilities, expected, atol=1e-6)
    with pytest.raises(ValueError, match="skip_bad must be at least 0"):
        outspan.predict(trained, path, skip_bad=-1, device="cpu")


def test_names_of_files_are_not_predicted_as_texts(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("new.csv", "a.txt"):
        Path(name).write_text("text\ndull\n")
        with pytest.raises(ValueError, match=f"names of files, got '{name}' at position 1: pass Path\\('{name}'\\) to read it"):
            outspan.predict(trained, ["dull", name], device="cpu")
    assert len(outspan.predict(trained, ["missing.csv", "a.csv\0", "a" * 300 + ".csv"], device="cpu")) == 3
    (tmp_path / "a.txt").write_text("dull")
    outspan.predict(trained, Path("a.txt"), device="cpu").save("p.csv")
    assert Path("p.csv").read_text().splitlines()[1].startswith("a.txt,,")  # it has no rows


def test_a_series_has_texts(trained):
    series = pytest.importorskip("pandas").Series(["a good film", "dull"])
    expected = outspan.predict(trained, series.to_list(), device="cpu").probabilities
    assert torch.equal(outspan.predict(trained, series, device="cpu").probabilities, expected)


def test_wrong_tables_are_refused(trained, tmp_path, run):
    path = tmp_path / "new.csv"
    path.write_text("text\n" + "good\n" + '" "\n' * 12)
    message = f"{path}: 12 of 13 rows have no text in the column 'text': lines 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, …"
    assert message in run("predict", trained, path, code=2)
    path.write_text("review\ngood\n")
    assert "no column 'text' (it has review); rename the column of the texts" in run("predict", trained, path, code=2)
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
