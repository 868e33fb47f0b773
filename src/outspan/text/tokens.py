"""Tokenized documents: the tokens that a model reads, where their sentences are, and what may replace them."""

import hashlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from outspan.config import Recipe
from outspan.shapes import Labels
from outspan.text.segments import sentences
from outspan.text.word_weights import decisive_words, weigh_words
from outspan.text.wordnet import open_wordnet
from outspan.text.words import Bank, VocabularyBuilder
from outspan.transforms.token_ops import Replacements

TRUNCATIONS = ("head", "tail", "head+tail")
_UNUSED = re.compile(r"\[unused\d+\]|<unused\d+>|<0x[0-9A-F]{2}>")
_WINDOW = 50  # number of batches within which documents are sorted by length
_CHUNK = 20_000  # number of texts that are tokenized at once


@runtime_checkable
class LabeledTexts(Protocol):
    """Texts and their labels, such as `Documents`."""

    @property
    def texts(self) -> Sequence[str]: ...

    @property
    def labels(self) -> Labels: ...


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A fast tokenizer, the special tokens before and after a text, and the padding token."""

    backend: Any = field(repr=False)
    before: tuple[int, ...]
    after: tuple[int, ...]
    padding: int
    vocabulary: np.ndarray = field(repr=False)  # int32: all tokens except special and unused ones
    wordlike: np.ndarray = field(repr=False)  # bool [size]: whether a token has a letter or a digit

    def __call__(
        self, texts: Sequence[str], builder: VocabularyBuilder | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all tokens, where each text starts among them (and the end), and which tokens are whole words.

        The words of the texts are added to the builder of a vocabulary, if there is one.
        """
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
    return Tokenizer(backend, tuple(ids[:start]), tuple(ids[end:]), padding, np.flatnonzero(kept).astype(np.int32), wordlike)


@dataclass(frozen=True, eq=False)
class Corpus:
    """The tokens of all documents in one array, followed by those of their back-translated sentences."""

    tokenizer: Tokenizer
    tokens: np.ndarray  # int32 [P]
    weights: np.ndarray | None  # float32 [P]: how uninformative each token is in its document; None for test documents
    spans: np.ndarray  # int64 [S, 4]: start and end of each sentence, and of its back-translation
    starts: np.ndarray  # int64 [N + 1]: the first sentence of each document, and the number of sentences
    replacements: Replacements
    has_translations: bool  # whether a cache of back-translated sentences was read
    bank: Bank | None = None  # the words, and what operations insert; None for test documents
    protected: np.ndarray | None = None  # bool [P]: the token is a word that tells the label; None for test documents

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each document, int64 [N]."""
        ends = np.concatenate([[0], np.cumsum(self.spans[:, 1] - self.spans[:, 0])])
        return np.diff(ends[self.starts])


@dataclass(frozen=True, eq=False)
class Encoded:
    """Tokenized documents and their labels. They are truncated when a batch is assembled."""

    corpus: Corpus
    rows: np.ndarray = field(repr=False)  # int64 [N]: the documents of the corpus
    labels: Labels
    length: int  # maximum number of tokens, with special tokens
    truncate: str = "tail"  # the part of a long document that is kept
    noun: ClassVar[str] = "texts"
    is_croppable: ClassVar[bool] = False
    decoding: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if self.truncate not in TRUNCATIONS:
            raise ValueError(f"truncate must be one of {', '.join(TRUNCATIONS)}, got {self.truncate!r}")
        special = len(self.corpus.tokenizer.before) + len(self.corpus.tokenizer.after)
        if self.length <= special:
            raise ValueError(f"length must be above the {special} special tokens, got {self.length}")

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """The maximum number of tokens."""
        return (self.length,)

    def take(self, rows: Tensor) -> "Encoded":
        """Return a subset of the documents."""
        return Encoded(self.corpus, self.rows[rows.numpy()], self.labels[rows], self.length, self.truncate)

    @cached_property
    def digest(self) -> str:
        """A digest of the tokens and labels."""
        digest = hashlib.sha256(self.labels.numpy().tobytes() + self.rows.tobytes())
        for array in (self.corpus.tokens, self.corpus.spans, self.corpus.starts):
            digest.update(array.tobytes())
        if self.corpus.bank is not None:
            digest.update(self.corpus.bank.dictionary.encode())
        return digest.hexdigest()

    def short_digest(self) -> str:
        """Return a short digest of the tokens and labels."""
        return self.digest[:16]

    def prepared(self, recipe: Recipe, *, train: bool = False) -> "Encoded":
        """Return it unchanged: it is tokenized."""
        return self

    def keys(self) -> Iterator[bytes]:
        """Return the tokens of each document: equal tokens are copies."""
        corpus = self.corpus
        for row in self.rows.tolist():
            start, end = corpus.starts[row], corpus.starts[row + 1]
            yield b"".join(corpus.tokens[span[0] : span[1]].tobytes() for span in corpus.spans[start:end])

    def can_record_graphs(self, device: torch.device) -> bool:
        """Return False: a batch is as long as its longest document."""
        return False

    def check_model(self, model: nn.Module, name: str, smallest_batch: int) -> None:
        """Do nothing: `load_classifier` has checked that the model takes texts of this length."""

    def to(self, device: torch.device) -> "Encoded":
        """Return it unchanged: tokens are assembled on the host."""
        return self

    def batches(self, rows: Sequence[Tensor], device: torch.device, crops: Any = None) -> Iterator[tuple["Passages", Tensor]]:
        """Return the documents and labels of each batch of rows. `crops` has no effect on text."""
        for batch in rows:
            yield Passages(self, self.rows[batch.numpy()], device), self.labels[batch].to(device)

    def evaluation_order(self) -> Tensor:
        """Return the order of the documents by length, which needs the least padding."""
        return torch.from_numpy(np.argsort(self.corpus.lengths[self.rows], kind="stable"))

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return two empty tuples: texts have no mean and std."""
        return (), ()

    def divide(self, order: Tensor, batch: int) -> Sequence[Tensor]:
        """Return the rows of each batch of an epoch: documents of similar length, sorted within windows of the order.

        The batches of a window come in random order. A window is at most a quarter of the documents, so that epochs differ. A
        last batch that is shorter stays as drawn.
        """
        lengths = torch.from_numpy(np.minimum(self.corpus.lengths[self.rows], self.length))
        place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        full = len(order) - len(order) % batch
        size = max(1, min(_WINDOW, len(order) // (4 * batch))) * batch
        batches = []
        for first in range(0, full, size):
            window = order[first : min(first + size, full)]
            similar = window[lengths[window].argsort(stable=True)].split(batch)
            batches += sorted(similar, key=lambda rows: int(place[rows[0]]))  # by the place of one document: random
        return batches + ([order[full:]] if full < len(order) else [])


@dataclass(frozen=True, eq=False)
class Passages:
    """A batch of documents. `outspan.text.apply` applies a plan to it and returns the tokens."""

    split: Encoded
    rows: np.ndarray = field(repr=False)  # documents of the corpus
    device: torch.device

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of documents, and 1 x 1 as the height and width, which `mix_labels` needs."""
        return len(self.rows), 1, 1


def encode(
    documents: LabeledTexts,
    tokenizer: Tokenizer,
    *,
    length: int,
    truncate: str = "tail",
    cache: Mapping[str, str | None] | None = None,
    train: bool = True,
    wordnet: str | None = None,
    tokenize: Callable[[Tokenizer, Sequence[str], VocabularyBuilder | None], tuple[np.ndarray, ...]] = Tokenizer.__call__,
) -> Encoded:
    """Tokenize documents. For `train` also compute the weights of words, and add back-translations from a cache.

    `wordnet` is the folder of WordNet, "" for where Debian installs it. With None it is opened when synonyms are needed.
    `tokenize` calls the tokenizer, or reads its tokens from a file.
    """
    builder = VocabularyBuilder() if train else None
    parts = [sentences(text) for text in documents.texts]
    flat = [" " * (i > 0) + sentence for part in parts for i, sentence in enumerate(part)]  # some tokenizers see the space
    starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    tokens, ends, whole = tokenize(tokenizer, flat, builder)
    spans = np.stack([ends[:-1], ends[1:], ends[:-1], ends[1:]], axis=1)
    document_of = np.repeat(np.arange(len(parts)), np.diff(starts))  # of each sentence
    document = np.repeat(document_of, np.diff(ends))  # of each token
    count = len(tokens)
    if cache is not None and train:
        _check_cache(flat, cache)
        pairs = [(i, back) for i, one in enumerate(flat) if (back := cache.get(one.strip())) and back != one.strip()]
        others, other_ends, other_whole = tokenizer([" " * flat[i].startswith(" ") + back for i, back in pairs], builder)
        at = np.array([i for i, _ in pairs], dtype=np.int64)
        spans[at, 2], spans[at, 3] = other_ends[:-1] + count, other_ends[1:] + count
        tokens, whole = np.concatenate([tokens, others]), np.concatenate([whole, other_whole])
        # The translations of a document count as another document.
        document = np.concatenate([document, np.repeat(document_of[at], np.diff(other_ends)) + len(parts)])
    replacements, weights = Replacements(tokenizer.vocabulary, np.empty(0, np.int32), np.empty(0)), None
    bank = protected = None
    if builder is not None:
        replacements, weights = weigh_words(tokenizer, tokens, whole, document, count, len(parts))
        protected = decisive_words(tokens, whole, documents.labels.numpy()[document % len(parts)], len(tokenizer.wordlike))
        dictionary = "" if wordnet is None else open_wordnet(wordnet).digest
        options = {"synonyms": lambda word: open_wordnet(wordnet or "").synonyms(word), "dictionary": dictionary}
        bank = Bank(lambda texts: tokenizer(texts)[:2], builder.build(), len(tokens), **options)
    corpus = Corpus(tokenizer, tokens, weights, spans, starts, replacements, cache is not None, bank, protected)
    return Encoded(corpus, np.arange(len(parts)), documents.labels, length, truncate)


def _check_cache(texts: Sequence[str], cache: Mapping[str, str | None]) -> None:
    """Refuse a cache of other documents. Warn if it contains only some of the sentences."""
    known = sum(text.strip() in cache for text in texts)
    if not known:
        raise ValueError("the cache of back-translations has no sentence of these documents: it is another corpus's")
    if known < len(texts):
        part = f"{known:,} of {len(texts):,} sentences"
        warnings.warn(f"the cache of back-translations has {part}; the others stay as they are", stacklevel=4)
