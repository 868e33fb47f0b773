"""Synonyms from WordNet's files: a made dictionary, and the real one if it is installed."""

from pathlib import Path

import pytest

from outspan.text.wordnet import FOLDER, WordNet

LICENCE = "  1 This is the licence.  \n"
NOUNS = """00000100 06 n 02 film 0 movie 0 001 @ 00000200 n 0000 | a story in pictures
00000200 06 n 03 story 0 tale 0 account 1 000 | what is told
00000300 06 n 02 motion_picture 0 Film 0 000 | the same
00000400 05 n 01 leaf 0 000 | of a tree
00000500 05 n 02 foliage 0 leaf 0 000 | of trees
"""
ADJECTIVES = "00000100 00 a 03 good(p) 0 fine(a) 0 well-made 0 000 | pleasing\n"


def write(folder: Path) -> Path:
    """Write a small dictionary in the format of WordNet."""
    for part, text in {"noun": NOUNS, "verb": "", "adj": ADJECTIVES, "adv": ""}.items():
        (folder / f"data.{part}").write_text(LICENCE + text)
    (folder / "noun.exc").write_text("leaves leaf\n")
    return folder


def test_synonyms_of_a_made_dictionary(tmp_path):
    words = WordNet(str(write(tmp_path)))
    assert words.synonyms("film") == ["movie", "motion picture"]
    assert words.synonyms("Films") == ["film", "movie", "motion picture"]  # a regular plural
    assert words.synonyms("leaves") == ["leaf", "foliage"]  # an irregular one
    assert words.synonyms("leaf") == ["foliage"]
    assert words.synonyms("good") == ["fine", "well made"]
    assert words.synonyms("stories") == ["story", "tale", "account"]
    assert words.synonyms("qwerty") == words.synonyms("the") == words.synonyms("") == []
    assert len(words.digest) == 64


def test_a_missing_or_damaged_dictionary_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"WordNet is not installed \(no data.noun in .*apt-get install wordnet-base, or set"):
        WordNet(str(tmp_path))
    write(tmp_path)
    (tmp_path / "data.verb").write_text("no database\n")
    with pytest.raises(ValueError, match=r"data.verb, line 1: not a line of WordNet's database"):
        WordNet(str(tmp_path)).synonyms("film")


@pytest.mark.skipif(not (Path(FOLDER) / "data.noun").is_file(), reason="needs Debian's wordnet-base")
def test_synonyms_of_the_real_wordnet():
    words = WordNet()
    assert {"movie", "picture", "motion picture"} <= {*words.synonyms("film")}
    assert {"fantastic", "wondrous"} <= {*words.synonyms("wonderful")}
    assert "child" in words.synonyms("children")
