"""Other spellings of words, checked against the keyboard, hand-made examples and properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outspan.transforms.spellings import CONFUSIONS, NEIGHBOURS, SPELLINGS, cases, misreadings, typos

words = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=12)
numbers = st.lists(st.integers(0, 2**32 - 1), min_size=16, max_size=16)


def test_neighbours_are_the_keys_that_touch():
    """The letters around a key as one reads them from a keyboard."""
    assert {key: "".join(sorted(near)) for key, near in NEIGHBOURS.items() if key in "gaqmp"} == {
        "g": "bfhtvy",
        "a": "qswz",
        "q": "aw",
        "m": "jkn",
        "p": "lo",
    }
    assert all(key in NEIGHBOURS[other] for key, near in NEIGHBOURS.items() for other in near)
    assert len(NEIGHBOURS) == 26


@given(words, numbers)
def test_a_typo_changes_one_letter_to_a_neighbour(word, numbers):
    for other in typos(word, numbers):
        changed = [(a, b) for a, b in zip(word, other, strict=True) if a != b]
        assert len(changed) == 1
        before, after = changed[0]
        assert after.lower() in NEIGHBOURS[before.lower()]
        assert before.isupper() == after.isupper()


@given(words, numbers)
def test_a_misreading_replaces_one_piece_by_a_similar_one(word, numbers):
    for other in misreadings(word, numbers):
        start = next(i for i in range(len(word) + 1) if word[: i + 1] != other[: i + 1])
        assert any(
            word[i : i + len(old)] == old and word[:i] + new + word[i + len(old) :] == other
            for i in range(max(0, start - 2), start + 1)
            for old, near in CONFUSIONS.items()
            for new in near
        )


def test_examples():
    assert typos("it", [0, 0, 1, 1]) == [f"{NEIGHBOURS['i'][0]}t", f"i{NEIGHBOURS['t'][1]}"]
    assert set(misreadings("corn", range(50))) == {"eorn", "c0rn", "ccrn", "cor" + "r", "com"}
    assert cases("film", []) == ["FILM", "Film"]
    assert cases("McDonald", []) == ["mcdonald", "MCDONALD", "Mcdonald"]
    assert typos("5!", [1, 2]) == misreadings("!", [1]) == cases("7", []) == []


@pytest.mark.parametrize("name", SPELLINGS)
@given(word=words, draw=numbers)
def test_spellings_are_distinct_and_not_the_word(name, word, draw):
    others = SPELLINGS[name](word, draw)
    assert word not in others
    assert len(set(others)) == len(others)
    assert SPELLINGS[name](word, draw) == others


def test_all_places_and_letters_are_drawn():
    drawn = {other for i in range(40) for other in typos("word", [i, i // 4])}
    assert len(drawn) >= math.floor(0.8 * sum(len(NEIGHBOURS[letter]) for letter in "word"))
