"""Operations on words: pure functions `op(units, context, strength, seeds)` of the words of a batch, which return other words.

A unit is a word or a punctuation mark. It is a span of tokens, so it can be moved, removed, inserted or replaced by the tokens
of another spelling. Words are what white space separates, without punctuation at their ends: "don't" is one word.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from outspan.transforms.token_ops import noise, noise_at, unit_interval

MARK, CHANGED = -2, -1  # the kinds of punctuation marks, and of words that an operation has inserted or replaced
_HIGH = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, eq=False)
class Units:
    """The units of all rows, one row after another."""

    rows: np.ndarray  # int64 [U]: the row of each unit
    begin: np.ndarray  # int64 [U]: the first of its tokens
    end: np.ndarray  # int64 [U]
    kinds: np.ndarray  # int64 [U]: its number in the vocabulary of words; MARK; or CHANGED
    count: int  # number of rows

    @property
    def is_word(self) -> np.ndarray:
        """Return which units are words, bool [U]."""
        return self.kinds != MARK

    def numbers(self) -> np.ndarray:
        """Return the number of each unit in its row, int64 [U]."""
        sizes = np.bincount(self.rows, minlength=self.count)
        return np.arange(len(self.rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)

    def take(self, kept: np.ndarray) -> "Units":
        """Return a subset of the units."""
        return Units(self.rows[kept], self.begin[kept], self.end[kept], self.kinds[kept], self.count)

    def insert(self, at: np.ndarray, rows: np.ndarray, spans: np.ndarray, kind: int) -> "Units":
        """Insert units with these rows and spans [K, 2] before the units `at`, ascending; len(units) is the end."""
        begin, end = np.insert(self.begin, at, spans[:, 0]), np.insert(self.end, at, spans[:, 1])
        return Units(np.insert(self.rows, at, rows), begin, end, np.insert(self.kinds, at, kind), self.count)

    def respell(self, at: np.ndarray, spans: np.ndarray) -> "Units":
        """Replace the units `at` by other spans [K, 2]."""
        begin, end, kinds = self.begin.copy(), self.end.copy(), self.kinds.copy()
        begin[at], end[at], kinds[at] = spans[:, 0], spans[:, 1], CHANGED
        return Units(self.rows, begin, end, kinds, self.count)


@dataclass(frozen=True, eq=False)
class Substitutes:
    """Spans of tokens that may replace units."""

    counts: np.ndarray  # int64 [U]: how many there are of each unit
    rows: np.ndarray  # int64 [U]: the row of each unit in `spans`
    spans: np.ndarray = field(repr=False)  # int64 [S, K, 2]

    def pick(self, at: np.ndarray, bits: np.ndarray) -> np.ndarray:
        """Return one of the spans of each unit `at`, drawn by 32 bits, int64 [K, 2]."""
        return self.spans[self.rows[at], (unit_interval(bits) * self.counts[at]).astype(np.int64)]


@runtime_checkable
class Bank(Protocol):
    """Spans of tokens that operations insert: other spellings of words, their synonyms, and punctuation."""

    def spellings(self, name: str, units: Units) -> Substitutes:
        """Return other spellings of each unit."""
        ...

    def proposals(self, units: Units) -> Substitutes:
        """Return the words that a masked language model proposes for each unit."""
        ...

    def marks(self) -> np.ndarray:
        """Return the spans of the six punctuation marks . ; ? : ! and the comma, int64 [6, 2]."""
        ...


@dataclass(frozen=True, eq=False)
class WordContext:
    """What operations know about the words besides their state."""

    bank: Bank = field(repr=False)


def word_deletion(units: Units, context: WordContext, probability: np.ndarray, seeds: np.ndarray) -> Units:
    """Delete words, each with `probability`, but never all of a row (EDA, arXiv:1901.11196). 0 is the identity."""
    draws, words = _draws(units, seeds), units.is_word
    stays = draws >= probability[units.rows]
    none = np.bincount(units.rows, words & stays, minlength=units.count) == 0
    highest = np.full(units.count, -1.0)
    deleted = words & none[units.rows]  # of rows that would lose all words
    np.maximum.at(highest, units.rows[deleted], draws[deleted])
    return units.take(stays | ~words | (deleted & (draws == highest[units.rows])))


def word_swap(units: Units, context: WordContext, fraction: np.ndarray, seeds: np.ndarray) -> Units:
    """Swap two random words, for `fraction` of the words, at least once (EDA, arXiv:1901.11196). 0 is the identity."""
    slots = np.flatnonzero(units.is_word)
    sizes = np.bincount(units.rows[slots], minlength=units.count)
    first, order = np.cumsum(sizes) - sizes, np.arange(len(slots))
    swaps = np.where((sizes > 1) & (fraction > 0), np.maximum(1, (fraction * sizes).astype(np.int64)), 0)
    rows = np.argsort(-swaps, kind="stable")  # those with most swaps first, so that each swap is of the first rows
    size, start = np.maximum(sizes[rows], 1)[:, None], first[rows][:, None]
    bits = noise(seeds[rows], 0, int(swaps.max(initial=0)))
    one = (unit_interval(bits >> _HIGH) * size).astype(np.int64)
    other = (one + 1 + (unit_interval(bits & _LOW) * (size - 1)).astype(np.int64)) % size
    one, other = (one + start).T.copy(), (other + start).T.copy()
    counts = np.searchsorted(-swaps[rows], -np.arange(len(one)))  # how many rows have more swaps than 0, 1, ...
    for left, right, count in zip(one, other, counts.tolist(), strict=True):
        left, right = left[:count], right[:count]
        order[left], order[right] = order[right], order[left]
    begin, end, kinds = units.begin.copy(), units.end.copy(), units.kinds.copy()
    begin[slots], end[slots], kinds[slots] = begin[slots[order]], end[slots[order]], kinds[slots[order]]
    return Units(units.rows, begin, end, kinds, units.count)


def punctuation_insertion(units: Units, context: WordContext, fraction: np.ndarray, seeds: np.ndarray) -> Units:
    """Insert marks before 1 to `fraction` of the words, a random number (AEDA, arXiv:2108.13230). 0 is the identity."""
    words = units.is_word
    most = np.maximum(1, (fraction * np.bincount(units.rows, words, minlength=units.count)).astype(np.int64))
    drawn = unit_interval(noise_at(seeds, np.full(units.count, -1)) >> _HIGH)
    counts = np.where(fraction > 0, 1 + (drawn * most).astype(np.int64), 0)
    bits = noise_at(seeds[units.rows], units.numbers())
    at = _choose(units, words, counts, bits)
    marks = context.bank.marks()
    return units.insert(at, units.rows[at], marks[(unit_interval(bits[at] & _LOW) * len(marks)).astype(np.int64)], MARK)


def synonym_replacement(units: Units, context: WordContext, fraction: np.ndarray, seeds: np.ndarray) -> Units:
    """Replace `fraction` of the words, at least one, by synonyms of WordNet (EDA, arXiv:1901.11196). 0 is the identity."""
    synonyms = context.bank.spellings("synonyms", units)
    bits = noise_at(seeds[units.rows], units.numbers())
    at = _choose(units, synonyms.counts > 0, _at_least_one(units, fraction), bits)
    return units.respell(at, synonyms.pick(at, bits[at] & _LOW))


def word_insertion(units: Units, context: WordContext, fraction: np.ndarray, seeds: np.ndarray) -> Units:
    """Insert synonyms of random words at random places, for `fraction` of the words (EDA, arXiv:1901.11196). 0 is the identity.

    At least one word is inserted.
    """
    synonyms = context.bank.spellings("synonyms", units)
    sources, targets = np.flatnonzero(synonyms.counts > 0), np.flatnonzero(units.is_word)
    of_sources, of_targets = (np.bincount(units.rows[some], minlength=units.count) for some in (sources, targets))
    counts = np.where(of_sources > 0, _at_least_one(units, fraction), 0)
    rows = np.repeat(np.arange(units.count), counts)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    bits, more = noise_at(seeds[rows], 2 * number), noise_at(seeds[rows], 2 * number + 1)
    source = sources[(np.cumsum(of_sources) - of_sources)[rows] + (unit_interval(bits >> _HIGH) * of_sources[rows]).astype(int)]
    at = targets[(np.cumsum(of_targets) - of_targets)[rows] + (unit_interval(bits & _LOW) * of_targets[rows]).astype(int)]
    inserted = synonyms.pick(source, more & _LOW)
    order = np.argsort(at, kind="stable")
    return units.insert(at[order], rows[order], inserted[order], CHANGED)


def masked_replacement(units: Units, context: WordContext, probability: np.ndarray, seeds: np.ndarray) -> Units:
    """Replace words by others that a masked language model proposes, each with `probability` (arXiv:1805.06201, with BERT
    arXiv:1812.06705). 0 is the identity.
    """
    return _replace(units, context.bank.proposals, probability, seeds)


def keyboard_typos(units: Units, context: WordContext, probability: np.ndarray, seeds: np.ndarray) -> Units:
    """Replace a letter by that of an adjacent key, in each word with `probability` (arXiv:1711.02173). 0 is the identity."""
    return _respell("typos", units, context, probability, seeds)


def ocr_errors(units: Units, context: WordContext, probability: np.ndarray, seeds: np.ndarray) -> Units:
    """Replace a character by one that looks alike, in each word with `probability` (as nlpaug's OcrAug). 0 is the identity."""
    return _respell("misreadings", units, context, probability, seeds)


def casing(units: Units, context: WordContext, probability: np.ndarray, seeds: np.ndarray) -> Units:
    """Change each word to lower or upper case, or capitalize it, with `probability` (arXiv:2112.02721). 0 is the identity."""
    return _respell("cases", units, context, probability, seeds)


def _respell(name: str, units: Units, context: WordContext, probability: np.ndarray, seeds: np.ndarray) -> Units:
    """Replace each word that has other spellings by one of them, with `probability`."""
    return _replace(units, partial(context.bank.spellings, name), probability, seeds)


def _replace(units: Units, find: Callable[[Units], Substitutes], probability: np.ndarray, seeds: np.ndarray) -> Units:
    """Replace each unit that has other spellings by one of them, with `probability`."""
    bits = noise_at(seeds[units.rows], units.numbers())
    drawn = np.flatnonzero(unit_interval(bits >> _HIGH) < probability[units.rows])
    spellings = find(units.take(drawn))  # those of other units are not needed, and may not have been made yet
    at = np.flatnonzero(spellings.counts)
    return units.respell(drawn[at], spellings.pick(at, bits[drawn[at]] & _LOW))


def _draws(units: Units, seeds: np.ndarray) -> np.ndarray:
    """Return a number in [0, 1) for each unit, which depends on the seed of its row and its number in the row."""
    return unit_interval(noise_at(seeds[units.rows], units.numbers()) >> _HIGH)


def _at_least_one(units: Units, fraction: np.ndarray) -> np.ndarray:
    words = np.bincount(units.rows, units.is_word, minlength=units.count)
    return np.where(fraction > 0, np.maximum(1, (fraction * words).astype(np.int64)), 0)


def _choose(units: Units, allowed: np.ndarray, counts: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Return random units among the allowed ones, up to `counts` in each row, in ascending order."""
    at = np.flatnonzero(allowed)
    rows = units.rows[at]
    sizes = np.bincount(rows, minlength=units.count)
    counts = np.minimum(counts, sizes)
    # The units of each row side by side: to sort them there is faster than to sort all by row and bits.
    table = np.full((units.count, int(sizes.max(initial=0)) + 1), np.iinfo(np.uint64).max)
    table[np.arange(table.shape[1]) < sizes[:, None]] = bits[at]
    table.sort(axis=1)
    threshold = table[np.arange(units.count), np.maximum(counts - 1, 0)]
    return at[(bits[at] <= threshold[rows]) & (counts > 0)[rows]]
