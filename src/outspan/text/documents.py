"""Documents and their labels, before they are tokenized."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from outspan.config import Recipe
from outspan.files import Json
from outspan.sample_weights import pick_weights, weights_bytes
from outspan.shapes import Labels, Num
from outspan.text.backtranslation import read_cache
from outspan.text.cache import read_sentences
from outspan.text.models import load_tokenizer
from outspan.text.segments import PAIR
from outspan.text.token_files import tokenize
from outspan.text.tokens import Encoded, Tokenizer, encode
from outspan.transforms.table import TEXT_SETS, TEXT_TRANSFORMS

Cached = tuple[Mapping[str, str | None] | None, Mapping[str, Json] | None]  # translations, and proposed words


@dataclass(frozen=True, eq=False)
class Documents:
    """Texts and their labels, not yet tokenized. Equal texts and labels make equal documents, for the cache below.

    A pair of texts is one string, with a NUL between both.
    """

    texts: Sequence[str] = field(repr=False)
    labels: Labels
    weights: Num[Tensor, "..."] | None = None
    stores_tokens: bool = True  # in a file, for later runs; not those of texts that are predicted once
    noun: ClassVar[str] = "texts"
    is_croppable: ClassVar[bool] = False
    decoding: ClassVar[int] = 0

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.texts)

    @cached_property
    def digest(self) -> str:
        """A digest of the texts, labels and weights."""
        digest = hashlib.sha256(self.labels.numpy().tobytes() + weights_bytes(self.weights))
        for text in self.texts:
            data = text.encode(errors="surrogatepass")
            digest.update(len(data).to_bytes(8, "little") + data)
        return digest.hexdigest()

    def short_digest(self) -> str:
        """Return a short digest of the texts and labels."""
        digest = hashlib.blake2b(self.labels.numpy().tobytes() + weights_bytes(self.weights), digest_size=8)
        digest.update("\0".join(self.texts).encode())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        """Return whether the other's texts and labels are the same."""
        return self.digest == getattr(other, "digest", None)

    def __hash__(self) -> int:
        """Return a hash of the texts and labels."""
        return hash(self.digest)

    @property
    def shape(self) -> tuple[int, ...]:
        """Empty: a text has no length before it is tokenized."""
        return ()

    def take(self, rows: Tensor) -> "Documents":
        """Return a subset of the documents."""
        return Documents([self.texts[int(row)] for row in rows], self.labels[rows], pick_weights(self.weights, rows))

    def prepared(self, recipe: Recipe, *, train: bool = False) -> Encoded:
        """Return the documents tokenized for the recipe's model. With `train` also what text operations need."""
        is_pair = any(PAIR in text for text in self.texts)
        if is_pair != ("," in recipe.text_column):
            expected, got = ("single texts", "pairs of texts") if is_pair else ("pairs of texts", "single texts")
            how = "for pairs it names two columns, such as premise,hypothesis, and each sample has two texts"
            raise ValueError(f"text_column {recipe.text_column!r} is for {expected}, got {got}: {how}")
        names = [name.strip() for name in TEXT_SETS.get(recipe.transforms, recipe.transforms.split(","))]
        needs = {TEXT_TRANSFORMS[name].needs for name in names if name in TEXT_TRANSFORMS}
        files = (recipe.cache, recipe.wordnet if "wordnet" in needs else None) if train else ("", None)
        options = {"train": train, "has_proposals": train and "proposals" in needs}
        return _tokenized(self, recipe.model, recipe.length, recipe.truncate, *files, **options)

    def keys(self) -> Iterator[str]:
        """Return the text of each document: equal texts are copies."""
        return iter(self.texts)

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return two empty tuples: texts have no mean and std."""
        return (), ()


@lru_cache(maxsize=8)  # the seeds, policies and grid points of one process use the same tokens
def _tokenized(
    documents: Documents,
    model: str,
    length: int,
    truncate: str,
    cache: str,
    wordnet: str | None,
    *,
    train: bool,
    has_proposals: bool,
) -> Encoded:
    translations, proposals = read_cached(Path(cache), has_proposals=has_proposals) if cache else (None, None)
    options = {"length": length, "truncate": truncate, "cache": translations, "train": train, "wordnet": wordnet}
    tokenize_texts = tokenize if documents.stores_tokens else Tokenizer.__call__
    encoded = encode(documents, load_tokenizer(model), **options, proposals=proposals, tokenize=tokenize_texts)
    return replace(encoded, weights=documents.weights)


def read_cached(path: Path, *, has_proposals: bool) -> Cached:
    """Return the translations of a cache, and with `has_proposals` its proposed words; None for those that it does not have."""
    translations = read_cache(path)
    proposals = read_sentences(path, masked=True) if has_proposals or not translations else None
    translations = None if proposals and not translations else translations  # an empty cache is refused by `encode`
    return translations, (proposals or None) if has_proposals else None
