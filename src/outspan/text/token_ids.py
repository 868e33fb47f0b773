"""Documents that are already tokens: their sentences and words are found in the decoded tokens."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from outspan.shapes import Labels
from outspan.text.segments import sentence_spans
from outspan.text.tokenizer import Tokenizer
from outspan.text.tokens import Encoded, TokenizedSentences, assemble
from outspan.text.words import VocabularyBuilder

_ANCHOR = "a"  # a word before a token shows whether the token begins with a space
_CLOSING = frozenset(")]}\u201d\u2019")  # decoders of WordPiece write a space before them
_OBJECT = "\N{OBJECT REPLACEMENT CHARACTER}"  # stands for a special token: neither a letter nor a space


class _Encoding(NamedTuple):
    """Tokens of a sentence and their places in its text, as the tokenizers library returns them."""

    ids: list[int]
    offsets: list[tuple[int, int]]


def encode_ids(
    rows: Sequence[Sequence[int]],
    labels: Labels,
    tokenizer: Tokenizer,
    *,
    length: int,
    truncate: str = "tail",
    wordnet: str | None = None,
) -> Encoded:
    """Make a split for training of tokens instead of texts. Without augmentation they stay exactly as they are.

    `rows` are the tokens of each document, without special tokens at the ends and without padding.
    """
    texts = surfaces(sorted({token for row in rows for token in row}), tokenizer)
    counts, encodings, flat = [], [], []
    for row in rows:
        parts = _divide(row, [texts[token] for token in row])
        counts.append(len(parts))
        encodings += [encoding for encoding, _ in parts]
        flat += [text for _, text in parts]
    tokens = np.array([token for encoding in encodings for token in encoding.ids], dtype=np.int32)
    ends = np.cumsum([0, *(len(encoding.ids) for encoding in encodings)])
    builder = VocabularyBuilder()
    builder.add(flat, encodings, tokens)
    words = builder.build()
    is_end = np.append(words.starts, True)[1:]  # the next token starts another unit
    whole = words.starts & (words.kinds >= 0) & is_end & tokenizer.wordlike[tokens]
    tokenized = TokenizedSentences(counts, flat, tokens, ends, whole)
    return assemble(tokenized, labels, tokenizer, builder, length=length, truncate=truncate, wordnet=wordnet)


def surfaces(tokens: Sequence[int], tokenizer: Tokenizer) -> dict[int, str]:
    """Return the text of each token as it is written after another word, so with the space before it."""
    anchor = tokenizer.backend.encode(_ANCHOR, add_special_tokens=False).ids
    between = ([*anchor, token, anchor[-1]] for token in tokens)  # some decoders remove spaces at the end
    lone, after, *decoded = tokenizer.backend.decode_batch([anchor, [*anchor, anchor[-1]], *between], skip_special_tokens=False)
    usual, texts = {*tokenizer.vocabulary.tolist()}, {}
    for token, text in zip(tokens, decoded, strict=True):
        # A part of a character counts as a letter: most characters of several bytes are letters.
        own = text.removeprefix(lone).removesuffix(after.removeprefix(lone)).replace("\ufffd", "x")
        own = own.lstrip() if own.strip() in _CLOSING else own
        texts[token] = own if token in usual else f" {_OBJECT}"
    return texts


def _divide(tokens: Sequence[int], texts: Sequence[str]) -> list[tuple[_Encoding, str]]:
    """Return the sentences of a document: their tokens and their text. A token belongs to the sentence of its first letter."""
    ends = [*accumulate(map(len, texts))]
    begins = [end - len(text.lstrip()) for end, text in zip(ends, texts, strict=True)]
    first = np.array([begin for begin, _ in sentence_spans("".join(texts))])
    numbers = np.maximum.accumulate(np.searchsorted(first, begins, side="right") - 1)
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(tokens)] if len(tokens) else [0]
    parts = []
    for begin, end in pairwise(cuts):
        start = ends[begin] - len(texts[begin])
        offsets = [
            (last - len(text) - start, last - start) for last, text in zip(ends[begin:end], texts[begin:end], strict=True)
        ]
        parts.append((_Encoding([*tokens[begin:end]], offsets), "".join(texts[begin:end])))
    return parts
