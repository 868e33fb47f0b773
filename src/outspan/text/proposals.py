"""The words that a masked language model proposes for the words of a corpus, by their positions."""

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from outspan.files import Json
from outspan.text.words import Vocabulary
from outspan.transforms.word_ops import Units

_MOST = 8  # proposals per word


@dataclass(frozen=True, eq=False)
class ProposedWords:
    """The proposals for each word of a corpus."""

    positions: np.ndarray = field(repr=False)  # int64 [W]: where the words with proposals start, ascending
    numbers: np.ndarray = field(repr=False)  # int32 [W, 8]: which words are proposed; -1: none
    words: list[str] = field(repr=False)  # all proposed words, with a space before them if the replaced word has one
    digest: str

    def find(self, units: Units) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the words proposed for each unit, int32 [U, 8], and how many they are, int64 [U]."""
        if not len(self.positions):
            return np.full((len(units.rows), _MOST), -1), np.zeros(len(units.rows), dtype=np.int64)
        at = np.minimum(np.searchsorted(self.positions, units.begin), len(self.positions) - 1)
        is_known = (self.positions[at] == units.begin) & (units.kinds >= 0)
        numbers = np.where(is_known[:, None], self.numbers[at], -1)
        return numbers, (numbers >= 0).sum(axis=1)


def find_proposals(texts: Sequence[str], ends: np.ndarray, vocabulary: Vocabulary, cache: Mapping[str, Json]) -> ProposedWords:
    """Return the proposals of a cache for the words of sentences. `ends` is where each sentence starts among the tokens.

    A sentence whose number of words in the cache is another has none: its tokenizer joins words and punctuation.
    """
    words = np.flatnonzero(vocabulary.kinds[: ends[-1]] >= 0)
    first = np.searchsorted(words, ends)
    numbers, rows, positions = {}, [], []
    known = 0
    for sentence, (begin, end) in enumerate(zip(first[:-1].tolist(), first[1:].tolist(), strict=True)):
        proposals = cache.get(texts[sentence].strip())
        if not isinstance(proposals, list) or len(proposals) != end - begin:
            continue
        known += 1
        for position, others in zip(words[begin:end].tolist(), proposals, strict=True):
            space = vocabulary.words[vocabulary.kinds[position]][:1].isspace()
            row = [numbers.setdefault(" " * space + other, len(numbers)) for other in others[:_MOST]]
            rows.append(row + [-1] * (_MOST - len(row)))
            positions.append(position)
    if not known:
        raise ValueError("the cache has no proposed words for these documents: run `outspan text propose` on this corpus")
    if known < len(texts):
        part = f"{known:,} of {len(texts):,} sentences"
        warnings.warn(f"the cache has proposed words for {part}; the others stay as they are", stacklevel=5)
    digest = hashlib.sha256(json.dumps([positions, rows, [*numbers]]).encode()).hexdigest()
    table = np.array(rows, dtype=np.int32).reshape(-1, _MOST)
    return ProposedWords(np.array(positions, dtype=np.int64), table, [*numbers], digest)
