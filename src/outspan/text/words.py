"""The words of a corpus, and the tokens of their other spellings and synonyms, which are made when they are first needed."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from outspan.transforms.spellings import SPELLINGS
from outspan.transforms.token_ops import mixed
from outspan.transforms.word_ops import MARK, Substitutes, Units

MARKS = ".;?:!,"  # what AEDA inserts
_MOST = 8  # spellings of a word
TokenizeTexts = Callable[
    [Sequence[str]], tuple[np.ndarray, np.ndarray]
]  # from texts to their tokens, and where each text starts


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The words and marks of a corpus: which token starts one, and which one it is."""

    starts: np.ndarray = field(repr=False)  # bool [P]: the token starts a unit
    kinds: np.ndarray = field(repr=False)  # int32 [P]: the number of its word, where a word starts; MARK elsewhere
    words: list[str] = field(repr=False)  # as they are written in the corpus, with a space before them if there is one
    unspaced: np.ndarray = field(repr=False)  # bool [words]: there is no space before the word


class VocabularyBuilder:
    """Collects the words of texts while they are tokenized."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # the hash of a word's tokens, and its number
        self._words: list[str] = []
        self._starts: list[np.ndarray] = []
        self._kinds: list[np.ndarray] = []

    def add(self, texts: Sequence[str], encodings: Sequence[Any], tokens: np.ndarray) -> None:
        """Add texts, their encodings and the tokens of all of them."""
        text = "".join(texts)
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        counts = np.fromiter((len(encoding.ids) for encoding in encodings), np.int64, len(encodings))
        offsets = (place for encoding in encodings for pair in encoding.offsets for place in pair)
        places = np.fromiter(offsets, np.int64, 2 * len(tokens)).reshape(-1, 2)
        places += np.repeat(np.cumsum(lengths) - lengths, counts)[:, None]
        text_of = np.repeat(np.arange(len(texts)), counts)
        starts, is_word, begin = find_units(text, places, text_of)
        first = np.flatnonzero(starts)
        kinds = np.full(len(tokens), MARK, dtype=np.int32)
        if len(first):
            ends = np.append(first[1:], len(tokens))
            words = np.flatnonzero(is_word[first])
            hashes = _hash_spans(tokens, first)[words]
            distinct, index, inverse = np.unique(hashes, return_index=True, return_inverse=True)
            unit = words[index]
            columns = (distinct, begin[first[unit]], places[ends[unit] - 1, 1])
            numbers = [self._number(text, *row) for row in zip(*(column.tolist() for column in columns), strict=True)]
            kinds[first[words]] = np.array(numbers, dtype=np.int32)[inverse.reshape(-1)]
        self._starts.append(starts)
        self._kinds.append(kinds)

    def _number(self, text: str, name: int, begin: int, end: int) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self._words)
            self._words.append(" " * text[begin - 1 : begin].isspace() + text[begin:end])
        return self._numbers[name]

    def build(self) -> Vocabulary:
        """Return the words that were collected."""
        starts = np.concatenate([np.empty(0, bool), *self._starts])
        kinds = np.concatenate([np.empty(0, np.int32), *self._kinds])
        return Vocabulary(starts, kinds, self._words, np.array([word[:1] != " " for word in self._words], dtype=bool))

    def state(self) -> dict[str, np.ndarray]:
        """Return what was collected, as arrays."""
        names = np.array([*self._numbers], dtype=np.uint64)
        words = np.frombuffer(json.dumps(self._words).encode(), dtype=np.uint8)
        vocabulary = self.build()
        return {"unit_starts": vocabulary.starts, "unit_kinds": vocabulary.kinds, "word_names": names, "words": words}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from the state of another builder. This one must be new."""
        self._words = json.loads(state["words"].tobytes())
        self._numbers = {name: number for number, name in enumerate(state["word_names"].tolist())}
        self._starts, self._kinds = [state["unit_starts"]], [state["unit_kinds"]]


def find_units(text: str, places: np.ndarray, text_of: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which tokens start a unit, which are part of a word, and where each token begins, without white space.

    `places` are the begin and end of each token in the text, `text_of` numbers the texts that were joined.
    """
    characters = np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype=np.uint32)
    known, inverse = np.unique(characters, return_inverse=True)
    spaces, letters = (np.array([test(chr(one)) for one in known], dtype=bool) for test in (str.isspace, str.isalnum))
    is_space, is_letter = (np.append(flags[inverse.reshape(-1)], False) for flags in (spaces, letters))
    following = np.where(is_space, len(text), np.arange(len(text) + 1))
    following = np.minimum.accumulate(following[::-1])[::-1]  # the next character that is not white space
    spaces_before = np.append(0, np.cumsum(is_space))
    letters_before = np.append(0, np.cumsum(is_letter))
    begin, end = following[places[:, 0]], places[:, 1]
    count = len(places)
    if not count:
        return np.zeros(0, bool), np.zeros(0, bool), begin
    starts = np.ones(count, dtype=bool)
    starts[1:] = (spaces_before[begin[1:]] > spaces_before[begin[:-1]]) | (text_of[1:] != text_of[:-1])
    runs, number = np.cumsum(starts) - 1, np.arange(count)
    has_letter = letters_before[np.maximum(end, begin)] > letters_before[begin]
    visible = np.where(end > begin, number, count - 1)  # a token of white space belongs to the next one
    has_letter = has_letter[np.minimum.accumulate(visible[::-1])[::-1]]
    first, last = np.full(runs[-1] + 1, count), np.full(runs[-1] + 1, -1)
    np.minimum.at(first, runs[has_letter], number[has_letter])
    np.maximum.at(last, runs[has_letter], number[has_letter])
    is_word = (number >= first[runs]) & (number <= last[runs])
    return starts | ~is_word | (number == first[runs]), is_word, begin


def _hash_spans(tokens: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return a hash of the tokens from each start to the next, uint64 [starts]."""
    lengths = np.diff(np.append(first, len(tokens)))
    place = (np.arange(len(tokens)) - np.repeat(first, lengths)).astype(np.uint64)
    return np.add.reduceat(mixed(tokens.astype(np.uint64) << np.uint64(20) ^ place), first)


@runtime_checkable
class Proposals(Protocol):
    """The words that a masked language model proposes for each word of the corpus."""

    @property
    def words(self) -> list[str]: ...

    def find(self, units: Units) -> tuple[np.ndarray, np.ndarray]: ...


class Bank:
    """Tokens that operations insert. They follow those of the corpus: position P is the first of the bank."""

    def __init__(
        self,
        tokenize: TokenizeTexts,
        vocabulary: Vocabulary,
        size: int,
        *,
        synonyms: Callable[[str], list[str]],
        dictionary: str = "",
        proposals: Proposals | None = None,
    ) -> None:
        self._tokenize, self.vocabulary, self._offset, self._synonyms = tokenize, vocabulary, size, synonyms
        self.dictionary = dictionary  # the digest of the synonyms, and of the words that a masked language model proposes
        self._proposals = proposals
        self._parts = _Growing(np.empty(0, np.int32))
        self._tables: dict[str, _Table] = {}
        self._marks: np.ndarray | None = None
        self._proposed: np.ndarray | None = None
        (plain, _), (spaced, _), (capital, _) = tokenize(["a"]), tokenize([" a"]), tokenize(["A"])
        self.sees_spaces = not np.array_equal(plain, spaced)
        self.sees_case = not np.array_equal(plain, capital)

    @property
    def tokens(self) -> np.ndarray:
        """The tokens of the bank."""
        return self._parts.values

    def marks(self) -> np.ndarray:
        """Return the spans of the six punctuation marks . ; ? : ! and the comma, int64 [6, 2]."""
        if self._marks is None:
            self._marks = self._add([f" {mark}" for mark in MARKS])
        return self._marks

    def proposals(self, units: Units) -> Substitutes:
        """Return the words that a masked language model proposes for each unit."""
        if self._proposals is None:
            raise ValueError("masked_replacement needs a cache of proposed words: see `outspan text propose --help`")
        if self._proposed is None:
            self._proposed = np.append(self._add(self._proposals.words), [[0, 0]], axis=0)
        numbers, counts = self._proposals.find(units)
        return Substitutes(counts, np.arange(len(counts)), self._proposed[numbers])

    def spellings(self, name: str, units: Units) -> Substitutes:
        """Return other spellings of each unit."""
        none = len(self.vocabulary.words)  # a row without spellings, for marks and for words that were changed
        kinds = np.where(units.kinds >= 0, units.kinds, none)
        if name not in self._tables:
            self._tables[name] = _Table(none)
        table = self._tables[name]
        missing = np.unique(kinds[~table.is_known[kinds]])
        if len(missing):
            self._fill(table, name, missing)
        return Substitutes(table.counts[kinds], kinds, table.spans)

    def _fill(self, table: "_Table", name: str, kinds: np.ndarray) -> None:
        """Make the tokens of the spellings of some words. They depend on the word only."""
        texts, owners = [], []
        for kind in kinds.tolist():
            written = self.vocabulary.words[kind]
            word = written.lstrip()
            for other in (word, *self._spell(name, word)[:_MOST]):
                texts.append(written[: len(written) - len(word)] + other)
                owners.append(kind)
        spans, owner = self._add(texts), np.array(owners)
        is_own = np.append(True, owner[1:] != owner[:-1])
        same = self._equals(spans, spans[np.flatnonzero(is_own)[np.cumsum(is_own) - 1]])
        spans, owner = spans[~same], owner[~same]
        sizes = np.bincount(owner, minlength=len(table.is_known))
        table.counts[kinds], table.is_known[kinds] = sizes[kinds], True
        table.spans[owner, np.arange(len(owner)) - np.repeat((np.cumsum(sizes) - sizes), sizes)] = spans

    def _spell(self, name: str, word: str) -> list[str]:
        if name == "synonyms":
            return self._synonyms(word)
        if name == "spaced":
            return [f" {word}"]
        digest = hashlib.blake2b(word.encode(errors="surrogatepass"), digest_size=64).digest()
        return SPELLINGS[name](word, np.frombuffer(digest, dtype="<u4").tolist())

    def _equals(self, spans: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return whether spans have the same tokens as others, bool [K]."""
        sizes, tokens = spans[:, 1] - spans[:, 0], self.tokens
        same = sizes == others[:, 1] - others[:, 0]
        for place in range(int(sizes[same].max(initial=0))):
            at = np.flatnonzero(same & (sizes > place))
            same[at] = tokens[spans[at, 0] + place - self._offset] == tokens[others[at, 0] + place - self._offset]
        return same

    def _add(self, texts: Sequence[str]) -> np.ndarray:
        """Add the tokens of texts and return their spans."""
        tokens, starts = self._tokenize(texts)
        begin = self._offset + len(self.tokens)
        self._parts.extend(tokens)
        return np.stack([begin + starts[:-1], begin + starts[1:]], axis=1)


class _Table:
    """The spellings of each word that are known so far."""

    def __init__(self, words: int) -> None:
        self.is_known = np.append(np.zeros(words, dtype=bool), True)
        self.counts = np.zeros(words + 1, dtype=np.int64)
        self.spans = np.zeros((words + 1, _MOST, 2), dtype=np.int64)


class _Growing:
    """An array that grows at its end."""

    def __init__(self, values: np.ndarray) -> None:
        self._buffer, self._size = values.copy(), len(values)

    @property
    def values(self) -> np.ndarray:
        return self._buffer[: self._size]

    def extend(self, values: np.ndarray) -> None:
        size = self._size + len(values)
        if size > len(self._buffer):
            self._buffer = np.concatenate([self.values, np.empty(max(size, 2 * self._size) - self._size, self._buffer.dtype)])
        self._buffer[self._size : size], self._size = values, size
