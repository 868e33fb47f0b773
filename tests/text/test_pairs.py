"""Pairs of texts: tokens, types and truncation as transformers, operations within each part, and runs on tables."""

import csv
import json
import re

import pytest
import torch

import outspan
from made_tokenizers import PAIRS, TEXTS, build
from outspan import Plan
from outspan.text.executor import PadTokens, apply
from outspan.text.tokenized import tokenize
from outspan.transforms.table import TEXT_TRANSFORMS
from reviews import make_reviews

pytest.importorskip("transformers")
COLUMNS = {"premise": TEXTS, "hypothesis": ["It was great.", *TEXTS[:1], "The actors?"], "label": [0, 1, 0]}


@pytest.fixture(scope="module", params=PAIRS)
def own(request):
    """A tokenizer of transformers of each kind with a template for pairs."""
    return build(request.param)


def batch_of(data):
    return data.inputs(data.collate([data[row] for row in range(len(data))]))


@pytest.mark.parametrize("length", [200, 40, 31, 8])
def test_tokens_types_and_truncation_are_those_of_transformers(own, length):
    data = tokenize(COLUMNS, own, length=length, text=("premise", "hypothesis"))
    tokens = PadTokens()(batch_of(data))
    options = {"truncation": True, "max_length": length, "padding": "max_length", "return_token_type_ids": True}
    expected = own(COLUMNS["premise"], COLUMNS["hypothesis"], **options, return_tensors="pt")
    width = tokens.shape[1]
    assert torch.equal(tokens, expected["input_ids"][:, :width])
    assert not expected["input_ids"][:, width:].any()
    arguments = data.arguments(tokens)
    assert torch.equal(arguments["attention_mask"], expected["attention_mask"][:, :width])
    types = arguments.get("token_type_ids", torch.zeros_like(tokens))
    assert torch.equal(types, expected["token_type_ids"][:, :width])


def test_operations_stay_within_each_part(own):
    data = tokenize(COLUMNS, own, length=200, text=("premise", "hypothesis"))
    passages, between = batch_of(data), data.texts.corpus.tokenizer.between
    plain = PadTokens()(passages)
    for name, transform in TEXT_TRANSFORMS.items():
        if transform.needs:
            continue
        places = [[[0.3, 0.1, 0.2, row / 3]] for row in range(3)]
        plan = Plan.of([[name]] * 3, levels=[[1.0]] * 3, places=places)
        tokens = apply(passages, plan)
        assert [row.tolist().count(between[0]) for row in tokens] == [row.tolist().count(between[0]) for row in plain]
        again = apply(passages, plan[[2, 0]])
        assert [token for token in again[0].tolist() if token] == [token for token in tokens[2].tolist() if token]
        zero = Plan.of([[name]] * 3, levels=[[0.0]] * 3, places=places)
        assert torch.equal(apply(passages, zero), plain)
    swapped = apply(passages, Plan.of([["word_swap"]] * 3, levels=[[1.0]] * 3, places=places))
    for row, old in zip(swapped.tolist(), plain.tolist(), strict=True):
        parts = []
        for some in (row, old):
            cut = some.index(between[0])
            texts = (own.decode(part, skip_special_tokens=True).replace(" ", "") for part in (some[:cut], some[cut:]))
            parts.append([sorted(text) for text in texts])
        assert row != old
        assert parts[0] == parts[1]


def test_wrong_pairs_are_refused(unchecked):
    own = build("byte-level BPE")
    wrong = {"premise": ["a", "b", "c"], "hypothesis": ["a", None, " "], "label": [0, 1, 0]}
    with pytest.raises(
        ValueError, match=r"column 'hypothesis' must have texts, got None in row 1; 2 of 3 rows have none \(1, 2\)"
    ):
        tokenize(wrong, own, length=16, text=("premise", "hypothesis"))
    with pytest.raises(ValueError, match="no column 'other'"):
        tokenize(wrong, own, length=16, text=("premise", "other"))
    with pytest.raises(ValueError, match="text must be a column, or a tuple of two columns for pairs, got"):
        tokenize(wrong, own, length=16, text=("premise", "hypothesis", "label"))
    with pytest.raises(ValueError, match="the tokenizer has no special token between the texts of a pair"):
        tokenize(COLUMNS, build("BPE of Llama"), length=16, text=("premise", "hypothesis"))
    with pytest.raises(ValueError, match="length must be above the 4 special tokens, got 5"):
        tokenize(COLUMNS, own, length=5, text=("premise", "hypothesis"))


@pytest.fixture
def table(tmp_path):
    """A table of pairs of reviews: whether both have the same label."""
    reviews = make_reviews(120)
    rows = [
        (one[0], other[0], "same" if one[1] == other[1] else "other") for one, other in zip(reviews, reviews[7:], strict=False)
    ]
    rows = [(a, b, "same" if i % 3 else label) for i, (a, b, label) in enumerate(rows)]
    with open(tmp_path / "pairs.csv", "w", newline="") as file:
        csv.writer(file).writerows([("premise", "hypothesis", "label"), *rows])
    return tmp_path / "pairs.csv"


def test_a_run_on_a_table_predicts_and_is_exported(table, tiny_model, tmp_path, run, monkeypatch, unchecked, one_thread):
    columns = ("--set", "text_column=premise,hypothesis", "--set", "length=48", "--device", "cpu")
    keys = (
        "--set",
        "epochs=2",
        "--set",
        "lr=0.02",
        "--policy",
        "uncertain",
        "--set",
        "transforms=word_swap,switchout,sentence_crop",
    )
    run("train", "--data", table, "--model", tiny_model, *columns, *keys, "-o", tmp_path / "run")
    assert "accuracy" in run("evaluate", tmp_path / "run")
    result = outspan.predict(tmp_path / "run", table)
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    by_hand = outspan.predict(tmp_path / "run", [(row["premise"], row["hypothesis"]) for row in rows])
    assert torch.allclose(result.probabilities, by_hand.probabilities, atol=1e-6)
    turned = outspan.predict(tmp_path / "run", [(row["hypothesis"], row["premise"]) for row in rows])
    assert not torch.equal(result.probabilities, turned.probabilities)
    (tmp_path / "one.txt").write_text("a film")
    for wrong, message in (
        (("--text", "a film"), "text_column 'premise,hypothesis' is for pairs of texts, got single texts"),
        ((tmp_path / "one.txt",), "the model takes pairs of texts: use a table with the columns premise,hypothesis"),
    ):
        assert message in run("predict", tmp_path / "run", *wrong, code=2)
    run("export", tmp_path / "run", "-o", tmp_path / "model", "--format", "huggingface")
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model, tokenizer = (one.from_pretrained(tmp_path / "model") for one in (AutoModelForSequenceClassification, AutoTokenizer))
    card = (tmp_path / "model" / "README.md").read_text()
    assert "Size of a sample: 48 tokens." in card
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    exec(re.search(r"```python\n(.*?)```", card, re.DOTALL)[1], scope)  # noqa: S102, the code of the card
    assert {*scope["tokens"]["token_type_ids"][0].tolist()} == {0, 1}
    inputs = tokenizer(rows[0]["premise"], rows[0]["hypothesis"], return_tensors="pt", truncation=True)
    assert {*inputs["token_type_ids"][0].tolist()} == {0, 1}
    assert torch.allclose(model(**inputs).logits.softmax(1), result.probabilities[:1], atol=1e-4)
    assert torch.allclose(outspan.predict(tmp_path / "model", table).probabilities, result.probabilities, atol=1e-6)


def test_missing_texts_and_columns_of_a_table_are_named(table, tiny_model, tmp_path, run):
    options = ("--model", tiny_model, "--set", "length=16", "--device", "cpu", "-o", tmp_path / "run")
    for columns, message in (
        ("premise,other", "no column 'other'"),
        ("premise,", "text_column must be one column, or the two columns of pairs"),
        ("premise,premise", "text_column must be one column, or the two columns of pairs"),
        ("a,b,c", "text_column must be one column, or the two columns of pairs"),
    ):
        assert message in run("train", "--data", table, "--set", f"text_column={columns}", *options, code=2)
    rows = [{"premise": "a film.", "hypothesis": "" if i == 4 else "a plot.", "label": i % 2} for i in range(20)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    message = run("train", "--data", path, "--set", "text_column=premise,hypothesis", *options, code=2)
    assert "1 of 20 rows have nothing in the column 'hypothesis', lines 5; add what is missing" in message
    rows[4]["hypothesis"] = None
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    message = run("train", "--data", path, "--set", "text_column=premise,hypothesis", *options, code=2)
    assert "1 of 20 rows have nothing in the column 'hypothesis', lines 5; add what is missing" in message
    shown = run("apply", table, "--text-column", "premise,hypothesis", "--ops", "word_swap:1", code=2)
    assert "pairs of texts cannot be shown: name one of the two columns" in shown
