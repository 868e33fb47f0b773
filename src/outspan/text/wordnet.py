"""Synonyms from the database files of WordNet (Debian's package wordnet-base, or the files of wordnet.princeton.edu)."""

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType

from outspan.files import expand_home

FOLDER = "/usr/share/wordnet"  # where Debian installs it
_PARTS = ("noun", "verb", "adj", "adv")
# The endings that WordNet's morphology removes from words that it does not list, and what replaces them.
_ENDINGS: Mapping[str, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        "noun": (
            ("s", ""), ("ses", "s"), ("ves", "f"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man"),
            ("ies", "y"),
        ),
        "verb": (("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
        "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
        "adv": (),
    }
)  # fmt: skip
# Words without a meaning of their own, which EDA does not replace.
_STOP_TEXT = """
a about above after again against all also am an and any are as at be because been before being below between both but by can
could did do does doing down during each few for from further had has have having he her here hers herself him himself his how
i if in into is it its itself just me more most my myself no nor not now of off on once only or other our ours ourselves out
over own same she should so some such than that the their theirs them themselves then there these they this those through to
too under until up very was we were what when where which while who whom why will with would you your yours yourself
yourselves
"""
STOP_WORDS = frozenset(_STOP_TEXT.split())


class WordNet:
    """The synonyms of English words: all words that share a meaning with a word."""

    def __init__(self, folder: str = "") -> None:
        self.folder = expand_home(folder or FOLDER)
        missing = [f"data.{part}" for part in _PARTS if not (self.folder / f"data.{part}").is_file()]
        if missing:
            how = "apt-get install wordnet-base, or set the recipe key wordnet to a folder that has it"
            raise ValueError(f"WordNet is not installed (no {missing[0]} in {self.folder}): {how}")

    @cached_property
    def digest(self) -> str:
        """A digest of the database."""
        digest = hashlib.sha256()
        for part in _PARTS:
            digest.update((self.folder / f"data.{part}").read_bytes())
        return digest.hexdigest()

    @cached_property
    def _synsets(self) -> dict[tuple[str, str], list[tuple[str, ...]]]:
        """The sets of synonyms of each part of speech and word, in the order of the files."""
        synsets: dict[tuple[str, str], list[tuple[str, ...]]] = {}
        for part in _PARTS:
            for words in _read_synsets(self.folder / f"data.{part}"):
                for word in words:
                    synsets.setdefault((part, word.lower()), []).append(words)
        return synsets

    @cached_property
    def _irregular(self) -> dict[tuple[str, str], list[str]]:
        """The base forms of irregular forms."""
        forms = {}
        for part in _PARTS:
            path = self.folder / f"{part}.exc"
            for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
                form, *bases = line.split()
                forms[part, form] = bases
        return forms

    def synonyms(self, word: str) -> list[str]:
        """Return the synonyms of a word in lower case, in the order of the files; none for a stop word.

        If WordNet does not list a form, it is looked up by its base form, and the synonyms are base forms.
        """
        lower = word.lower()
        if lower in STOP_WORDS:
            return []
        synsets = (synset for part in _PARTS for base in self._bases(part, lower) for synset in self._synsets[part, base])
        words = (other for synset in synsets for other in synset)
        plain = (other.replace("_", " ").replace("-", " ").lower() for other in words)
        return [other for other in dict.fromkeys(plain) if other != lower and other.replace(" ", "").isalpha()]

    def _bases(self, part: str, word: str) -> list[str]:
        if (part, word) in self._synsets:
            return [word]
        regular = (word[: -len(ending)] + base for ending, base in _ENDINGS[part] if word.endswith(ending))
        bases = self._irregular.get((part, word)) or regular
        return [base for base in dict.fromkeys(bases) if (part, base) in self._synsets]


def _read_synsets(path: Path) -> Iterator[tuple[str, ...]]:
    """Return the words of each set of synonyms of a data file."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("  "):  # the licence
            continue
        fields = line.split(" ")
        try:
            words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
        except (IndexError, ValueError):
            raise ValueError(f"{path}, line {number}: not a line of WordNet's database") from None
        yield tuple(word.partition("(")[0] for word in words)


@lru_cache(maxsize=2)
def open_wordnet(folder: str) -> WordNet:
    """Return WordNet in a folder; "" is where Debian installs it."""
    return WordNet(folder)
