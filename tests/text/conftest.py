"""The tokenizer of the tiny BERT, and reviews for it."""

import json

import pytest

from reviews import make_reviews


@pytest.fixture(scope="session")
def tokenizer(tiny_model):
    """Return the tokenizer of the tiny BERT."""
    from outspan.text.models import load_tokenizer

    return load_tokenizer(str(tiny_model))


@pytest.fixture
def corpus(tmp_path):
    """Return a folder with 40 reviews for training and 20 for testing, as JSONL."""
    folder = tmp_path / "reviews"
    folder.mkdir()
    for split, count, seed in (("train", 40, 0), ("test", 20, 1)):
        rows = [{"text": text, "label": label} for text, label in make_reviews(count, seed)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def cache(tmp_path):
    """Return a cache of back-translations in which the words of every sentence are reversed."""
    from outspan.text.segments import sentences

    path = tmp_path / "cache.jsonl"
    rows: list[dict] = [{"engine": "apertium", "pair": "eng-spa"}]
    for text, _ in make_reviews(40):
        rows += [{"text": one, "back": " ".join(reversed(one[:-1].split())) + " ."} for one in sentences(text)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
