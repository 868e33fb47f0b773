"""Sentences: nothing of a text is lost, and long texts take no longer than they are."""

from hypothesis import given
from hypothesis import strategies as st

from outspan.text.segments import sentences


@given(st.text(alphabet="ab .!?\n\"')A", max_size=60))
def test_sentences_joined_are_the_text_but_for_white_space(text):
    assert " ".join(sentences(text)).split() == text.split()
    assert all(one == one.strip() and one for one in sentences(text))


def test_sentences_by_hand():
    assert sentences("It is 3.5 of 10... Dr. No is in it! \"Fine.\" he said\nA new line") == [
        "It is 3.5 of 10...", "Dr. No is in it!", '"Fine."', "he said", "A new line",
    ]  # fmt: skip
    assert sentences("  ") == []


def test_long_runs_of_dots_and_spaces_take_no_longer_than_they_are():
    for text in ("." * 200_000, " " * 200_000 + "x", "A. " * 50_000, "x" + " " * 200_000 + "y"):
        assert " ".join(sentences(text)).split() == text.split()  # quadratic, it would take minutes
