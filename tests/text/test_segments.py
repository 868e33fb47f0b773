"""Sentences: no part of a text is lost, and the time is linear in the length of a text."""

from hypothesis import given
from hypothesis import strategies as st

from outspan.text.segments import sentences


@given(st.text(alphabet="ab .!?\n\"')A", max_size=60))
def test_joined_sentences_equal_the_text_except_for_white_space(text):
    assert " ".join(sentences(text)).split() == text.split()
    assert all(one == one.strip() and one for one in sentences(text))


def test_sentences_by_hand():
    assert sentences("It is 3.5 of 10... Dr. No is in it! \"Fine.\" he said\nA new line") == [
        "It is 3.5 of 10...", "Dr. No is in it!", '"Fine."', "he said", "A new line",
    ]  # fmt: skip
    assert sentences("  ") == []


def test_many_dots_and_spaces_take_linear_time():
    for text in ("." * 200_000, " " * 200_000 + "x", "A. " * 50_000, "x" + " " * 200_000 + "y"):
        assert " ".join(sentences(text)).split() == text.split()  # with quadratic time it would take minutes
