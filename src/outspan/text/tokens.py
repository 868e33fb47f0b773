"""Tokenized documents: the tokens that a model reads, where their sentences are, and what may replace them."""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from outspan.config import Recipe
from outspan.files import Json
from outspan.shapes import Labels, Num
from outspan.text.proposals import find_proposals
from outspan.text.segments import PAIR, sentences
from outspan.text.tokenizer import Tokenizer
from outspan.text.word_weights import decisive_words, weigh_words
from outspan.text.wordnet import open_wordnet
from outspan.text.words import Bank, VocabularyBuilder
from outspan.transforms.token_ops import Replacements

TRUNCATIONS = ("head", "tail", "head+tail")
_WINDOW = 50  # number of batches within which documents are sorted by length


@runtime_checkable
class LabeledTexts(Protocol):
    """Texts and their labels, such as `Documents`."""

    @property
    def texts(self) -> Sequence[str]: ...

    @property
    def labels(self) -> Labels: ...


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
    parts: int = 1  # texts per document; 2 for pairs, whose texts follow one another in `starts`

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each document, int64 [N]."""
        ends = np.concatenate([[0], np.cumsum(self.spans[:, 1] - self.spans[:, 0])])
        return np.diff(ends[self.starts]).reshape(-1, self.parts).sum(axis=1)


@dataclass(frozen=True, eq=False)
class Encoded:
    """Tokenized documents and their labels. They are truncated when a batch is assembled."""

    corpus: Corpus
    rows: np.ndarray = field(repr=False)  # int64 [N]: the documents of the corpus
    labels: Labels
    length: int  # maximum number of tokens, with special tokens
    truncate: str = "tail"  # the part of a long document that is kept
    weights: Num[Tensor, "..."] | None = None
    noun: ClassVar[str] = "texts"
    is_croppable: ClassVar[bool] = False
    decoding: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if self.truncate not in TRUNCATIONS:
            raise ValueError(f"truncate must be one of {', '.join(TRUNCATIONS)}, got {self.truncate!r}")
        special = self.length - self.room
        if self.room < self.corpus.parts:
            raise ValueError(f"length must be above the {special} special tokens, got {self.length}")

    @property
    def room(self) -> int:
        """The maximum number of tokens that are not special."""
        tokenizer = self.corpus.tokenizer
        between = len(tokenizer.between) * (self.corpus.parts - 1)
        return self.length - len(tokenizer.before) - between - len(tokenizer.after)

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """The maximum number of tokens."""
        return (self.length,)

    def take(self, rows: Tensor) -> "Encoded":
        """Return a subset of the documents."""
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, rows=self.rows[rows.numpy()], labels=self.labels[rows], weights=weights)

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
            cuts = corpus.starts[row * corpus.parts : (row + 1) * corpus.parts + 1]
            spans = (corpus.spans[start:end] for start, end in pairwise(cuts))
            yield b"|".join(b"".join(corpus.tokens[span[0] : span[1]].tobytes() for span in part) for part in spans)

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
    proposals: Mapping[str, Json] | None = None,
    tokenize: Callable[[Tokenizer, Sequence[str], VocabularyBuilder | None], tuple[np.ndarray, ...]] = Tokenizer.__call__,
) -> Encoded:
    """Tokenize documents. For `train` also compute the weights of words, and add back-translations from a cache.

    `proposals` are the words that a masked language model proposes for each word of a sentence. `wordnet` is the folder of
    WordNet, "" for where Debian installs it. With None it is opened when synonyms are needed. `tokenize` calls the tokenizer,
    or reads its tokens from a file.
    """
    builder = VocabularyBuilder() if train else None
    pairs = [text.split(PAIR) for text in documents.texts]
    parts = [sentences(text) for pair in pairs for text in pair]
    flat = [" " * (i > 0) + sentence for part in parts for i, sentence in enumerate(part)]  # some tokenizers see the space
    tokenized = TokenizedSentences([len(part) for part in parts], flat, *tokenize(tokenizer, flat, builder))
    options = {"length": length, "truncate": truncate, "cache": cache, "wordnet": wordnet, "proposals": proposals}
    return assemble(tokenized, documents.labels, tokenizer, builder, **options, parts=_count_parts(pairs, tokenizer))


def _count_parts(pairs: Sequence[Sequence[str]], tokenizer: Tokenizer) -> int:
    """Return how many texts each document has: 1, or 2 for pairs."""
    counts = {len(pair) for pair in pairs}
    if counts <= {1}:
        return 1
    if counts != {2}:
        raise ValueError(
            f"documents must all be single texts or all be pairs, got {' and '.join(map(str, sorted(counts)))} texts"
        )
    if not tokenizer.between:
        raise ValueError("the tokenizer has no special token between the texts of a pair: use another model for pairs")
    return 2


class TokenizedSentences(NamedTuple):
    """The tokenized sentences of all documents."""

    counts: Sequence[int]  # number of sentences of each document
    texts: Sequence[str]
    tokens: np.ndarray  # int32 [P], of all sentences
    ends: np.ndarray  # int64 [S + 1]: where each sentence starts among the tokens, and their number
    whole: np.ndarray  # bool [P]: the token is a whole word


def assemble(
    tokenized: TokenizedSentences,
    labels: Labels,
    tokenizer: Tokenizer,
    builder: VocabularyBuilder | None,
    *,
    length: int,
    truncate: str = "tail",
    cache: Mapping[str, str | None] | None = None,
    wordnet: str | None = None,
    proposals: Mapping[str, Json] | None = None,
    parts: int = 1,
) -> Encoded:
    """Return tokenized sentences as a split. `builder` has their words; None for documents for testing."""
    counts, flat, tokens, ends, whole = tokenized
    documents = len(counts)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    spans = np.stack([ends[:-1], ends[1:], ends[:-1], ends[1:]], axis=1)
    document_of = np.repeat(np.arange(documents), np.diff(starts))  # of each sentence
    document = np.repeat(document_of, np.diff(ends))  # of each token
    count = len(tokens)
    if cache is not None and builder is not None:
        _check_cache(flat, cache)
        pairs = [(i, back) for i, one in enumerate(flat) if (back := cache.get(one.strip())) and back != one.strip()]
        others, other_ends, other_whole = tokenizer([" " * flat[i].startswith(" ") + back for i, back in pairs], builder)
        at = np.array([i for i, _ in pairs], dtype=np.int64)
        spans[at, 2], spans[at, 3] = other_ends[:-1] + count, other_ends[1:] + count
        tokens, whole = np.concatenate([tokens, others]), np.concatenate([whole, other_whole])
        # The translations of a document count as another document.
        document = np.concatenate([document, np.repeat(document_of[at], np.diff(other_ends)) + documents])
    replacements, weights = Replacements(tokenizer.vocabulary, np.empty(0, np.int32), np.empty(0)), None
    bank = protected = None
    if builder is not None:
        replacements, weights = weigh_words(tokenizer, tokens, whole, document, count, documents)
        protected = decisive_words(tokens, whole, labels.numpy()[document % documents // parts], len(tokenizer.wordlike))
        dictionary = "" if wordnet is None else open_wordnet(wordnet).digest
        vocabulary = builder.build()
        proposed = None if proposals is None else find_proposals(flat, ends, vocabulary, proposals)
        options: dict[str, Any] = {"dictionary": dictionary + (proposed.digest if proposed else ""), "proposals": proposed}
        options |= {"synonyms": lambda word: open_wordnet(wordnet or "").synonyms(word)}
        bank = Bank(lambda texts: tokenizer(texts)[:2], vocabulary, len(tokens), **options)
    corpus = Corpus(tokenizer, tokens, weights, spans, starts, replacements, cache is not None, bank, protected, parts)
    return Encoded(corpus, np.arange(documents // parts), labels, length, truncate)


def _check_cache(texts: Sequence[str], cache: Mapping[str, str | None]) -> None:
    """Refuse a cache of other documents. Warn if it contains only some of the sentences."""
    known = sum(text.strip() in cache for text in texts)
    if not known:
        raise ValueError("the cache of back-translations has no sentence of these documents: it is another corpus's")
    if known < len(texts):
        part = f"{known:,} of {len(texts):,} sentences"
        warnings.warn(f"the cache of back-translations has {part}; the others stay as they are", stacklevel=4)
