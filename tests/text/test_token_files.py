"""Tokens in files: read instead of made again, checked by their digest, and equal to those without a file."""

from dataclasses import replace

import pytest
import torch

from outspan.config import default_recipe
from outspan.text import token_files
from outspan.text.documents import Documents, _tokenized


@pytest.fixture
def prepare(tmp_path, monkeypatch, tiny_model):
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path))
    monkeypatch.setattr(token_files, "_LEAST", 1)
    recipe = replace(default_recipe("texts"), model=str(tiny_model), length=32)

    def start(texts=("A good film. I liked it a lot!", "Dull, and bad."), **options):
        _tokenized.cache_clear()  # as in a new process
        return Documents(texts, torch.tensor([1, 0]), **options).prepared(recipe, train=True)

    return start


def stored(tmp_path):
    return sorted((tmp_path / "tokens").glob("*"))


def test_the_second_start_reads_what_the_first_has_made(prepare, tmp_path, monkeypatch):
    first = prepare()
    assert len(stored(tmp_path)) == 1
    monkeypatch.setattr("outspan.text.tokens.Tokenizer.__call__", forbidden(len("A good film. I liked it a lot!")))
    again = prepare()
    assert again.digest == first.digest
    for name in ("starts", "kinds", "unspaced"):
        one, other = (getattr(split.corpus.bank.vocabulary, name) for split in (first, again))
        assert (one == other).all()
    assert again.corpus.bank.vocabulary.words == first.corpus.bank.vocabulary.words
    assert (again.corpus.weights == first.corpus.weights).all()


def forbidden(length):
    """Return a tokenizer of short texts, such as the letters that a bank tries, which refuses those of the documents."""
    from outspan.text.tokens import Tokenizer

    call = Tokenizer.__call__

    def tokenize(self, texts, builder=None):
        assert builder is None
        assert sum(map(len, texts)) < length
        return call(self, texts)

    return tokenize


def test_a_damaged_file_is_made_again(prepare, tmp_path):
    first = prepare()
    [path] = stored(tmp_path)
    data = bytearray(path.read_bytes())
    for wrong in (data[:-1] + bytes([data[-1] ^ 1]), data[: len(data) // 2], b""):
        path.write_bytes(wrong)
        with pytest.warns(UserWarning, match=r"\.safetensors: damaged \(.*\); the texts are tokenized again"):
            assert prepare().digest == first.digest
        assert path.read_bytes() == data


def test_other_texts_have_another_file_and_few_are_kept(prepare, tmp_path, monkeypatch):
    monkeypatch.setattr(token_files, "_FILES", 2)
    for i in range(4):
        prepare((f"A good film {i}.", "Dull."))
    assert len(stored(tmp_path)) == 2
    prepare(("Not stored.", "Dull."), stores_tokens=False)
    assert len(stored(tmp_path)) == 2
