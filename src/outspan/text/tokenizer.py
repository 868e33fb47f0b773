"""A fast tokenizer with its special tokens, and which of its tokens are words."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outspan.text.words import VocabularyBuilder

_UNUSED = re.compile(r"\[unused\d+\]|<unused\d+>|<0x[0-9A-F]{2}>")
_CHUNK = 20_000  # number of texts that are tokenized at once


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A fast tokenizer, the special tokens before and after a text, and the padding token."""

    backend: Any = field(repr=False)
    before: tuple[int, ...]
    after: tuple[int, ...]
    padding: int
    vocabulary: np.ndarray = field(repr=False)  # int32: all tokens except special and unused ones
    wordlike: np.ndarray = field(repr=False)  # bool [size]: whether a token has a letter or a digit
    between: tuple[int, ...] = ()  # special tokens between the two texts of a pair
    separator: int | None = None  # the token after which the tokens of a pair have type 1; None: they have no such types
    adds_space: bool = False  # it puts a space before every text, so that one at its beginning would be a second one

    def __call__(
        self, texts: Sequence[str], builder: VocabularyBuilder | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all tokens, where each text starts among them (and the end), and which tokens are whole words.

        The words of the texts are added to the builder of a vocabulary, if there is one.
        """
        if self.adds_space:
            texts = [text.removeprefix(" ") for text in texts]
        parts, counts, words = [], [], []
        for i in range(0, len(texts), _CHUNK):
            encodings = self.backend.encode_batch(list(texts[i : i + _CHUNK]), add_special_tokens=False)
            counts += [len(encoding.ids) for encoding in encodings]
            parts.append(np.fromiter((token for encoding in encodings for token in encoding.ids), np.int32))
            numbers = (-1 if word is None else word for encoding in encodings for word in encoding.word_ids)
            words.append(np.fromiter(numbers, np.int64))
            if builder is not None:
                builder.add(texts[i : i + _CHUNK], encodings, parts[-1])
        tokens = np.concatenate([np.empty(0, np.int32), *parts])
        starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
        word = np.concatenate([np.empty(0, np.int64), *words]) + np.repeat(np.arange(len(texts)), np.diff(starts)) * 2**32
        apart = np.ones(len(tokens) + 1, dtype=bool)
        apart[1:-1] = word[1:] != word[:-1]
        return tokens, starts, apart[:-1] & apart[1:] & self.wordlike[tokens]


def wrap_tokenizer(backend: Any, padding: int) -> Tokenizer:
    """Return a backend of the tokenizers library with its special tokens. It neither truncates nor pads."""
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True  # "[SEP]" in a document is text
    whole = backend.encode("a")
    special = np.array(whole.special_tokens_mask, dtype=bool)
    inside = np.flatnonzero(~special)
    ids = whole.ids
    start, end = (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (len(ids), len(ids))
    size = backend.get_vocab_size(with_added_tokens=True)
    names = [backend.id_to_token(i) or "" for i in range(size)]
    kept = np.array([bool(name) and _UNUSED.fullmatch(name) is None for name in names])
    kept[[number for number, token in backend.get_added_tokens_decoder().items() if token.special and number < size]] = False
    kept[[i for i in (*ids[:start], *ids[end:], padding) if i < size]] = False
    if not kept.any():
        raise ValueError("its tokenizer has no words: is tokenizer.json there?")
    # Not the names: in byte-level vocabularies a space and the bytes of punctuation are written as letters.
    decoded = backend.decode_batch([[i] for i in range(size)], skip_special_tokens=False)
    wordlike = np.array([any(map(str.isalnum, text)) for text in decoded]) & kept
    first, second, spaced, both = (backend.encode(text, add_special_tokens=False).ids for text in ("a", "b", " b", "a b"))
    adds_space = first + second == both != first + spaced  # as the tokenizers of Llama 2
    before, after = tuple(ids[:start]), tuple(ids[end:])
    usual = np.flatnonzero(kept).astype(np.int32)
    return Tokenizer(backend, before, after, padding, usual, wordlike, *_separators(backend, before, after), adds_space)


def _separators(backend: Any, before: tuple[int, ...], after: tuple[int, ...]) -> tuple[tuple[int, ...], int | None]:
    """Return the special tokens between the texts of a pair, and the one after which the types are 1, as in BERT."""
    pair, size = backend.encode("a", "a"), len(backend.encode("a", add_special_tokens=False).ids)
    first, second = len(before) + size, len(pair.ids) - len(after) - size
    between = tuple(pair.ids[first:second])
    is_typed = len(between) == 1 and pair.type_ids == [int(i > first) for i in range(len(pair.ids))]
    return between, between[0] if is_typed else None
