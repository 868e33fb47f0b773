"""Previews of transforms of texts: in Python, and in the terminal."""

import json
import re

import pytest

from outspan.text.preview import differences, transform_texts
from outspan.transforms.table import TEXT_TRANSFORMS

TEXTS = ["The film was wonderful, don't you think?\nI liked the music a lot!", "Über-dull plot; it's boring 😀."]


def test_level_zero_returns_the_texts_and_draws_are_reproducible():
    for name, transform in TEXT_TRANSFORMS.items():
        if transform.needs in ("", "case"):
            same = transform_texts(TEXTS, [name], [0.0])
            assert [text.split() for text in same] == [text.split() for text in TEXTS]
            once = transform_texts(TEXTS, [name], [1.0], seed=4)
            assert transform_texts(TEXTS, [name], [1.0], seed=4) == once
            assert transform_texts(TEXTS[:1], [name], [1.0], seed=4)[:1] == once[:1] or "replace" in name or name == "switchout"
    assert len({tuple(transform_texts(TEXTS, ["word_swap"], [1.0], seed=seed)) for seed in range(5)}) > 1


def test_the_differences_make_both_texts():
    changed = transform_texts(TEXTS, ["word_deletion", "keyboard_typos"], [1.0, 1.0])
    for old, new in zip(TEXTS, changed, strict=True):
        pieces = differences(old, new)
        assert "".join(before for _, before, _ in pieces) == old
        assert "".join(after for *_, after in pieces) == new


def test_wrong_texts_are_refused(unchecked):
    for texts in ("a film", [], ["a", " "], [1]):
        with pytest.raises(ValueError, match="texts must be a list of strings that are not empty"):
            transform_texts(texts, ["word_swap"], [1.0])
    with pytest.raises(ValueError, match="back_translation needs a cache"):
        transform_texts(TEXTS, ["back_translation"], [1.0])
    with pytest.raises(ValueError, match="unknown transform 'rotate'"):
        transform_texts(TEXTS, ["rotate"], [1.0])


def test_the_commands_show_texts(tmp_path, run):
    path = tmp_path / "reviews.jsonl"
    path.write_text("".join(json.dumps({"review": text.replace("\n", " ")}) + "\n" for text in TEXTS))
    column = ("--text-column", "review")
    out = run("apply", path, *column, "--ops", "punctuation_insertion:1", "--rows", "1")
    words = re.findall(r"[\w']+", TEXTS[0])
    assert re.findall(r"[\w']+", out) == words
    run("apply", path, *column, "--ops", "word_swap:1", "-o", tmp_path / "changed.txt")
    lines = (tmp_path / "changed.txt").read_text().splitlines()
    assert sorted(re.findall(r"[\w']+", lines[0])) == sorted(words)
    assert len(lines) == 2
    shown = run("gallery", path, *column)
    assert all(name in shown for name, transform in TEXT_TRANSFORMS.items() if transform.needs not in ("cache", "proposals"))
    assert "needs a level" in run("apply", path, *column, "--ops", "word_swap", code=2)
    assert "no column 'text' (it has review)" in run("apply", path, "--ops", "word_swap:1", code=2)
    assert "-o is missing: pass the PNG file" in run("gallery", code=2)
    assert "-o is missing: pass the output image" in run("apply", "cat.png", "--ops", "invert", code=2)
