"""Text operations: pure functions `op(state, context, strength, seeds)` of a batch of rows, each with a strength and a seed.

Operations on sentences run first, before long documents are truncated. Their state are the sentences of each row, int64
[rows, sentences]: twice the number of the sentence in its document, plus 1 if it is replaced by its back-translation; -1 is no
sentence. Operations on words run next (`word_ops`), then those on tokens. Their state are the tokens, int32 [rows, width].
"""

from dataclasses import dataclass

import numpy as np

_STEP, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))  # SplitMix64
_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, eq=False)
class Replacements:
    """The tokens that operations insert: any of the vocabulary with equal probability, or words of the corpus by frequency."""

    vocabulary: np.ndarray  # int32 [V]: all tokens except special and unused ones
    words: np.ndarray  # int32 [W]: tokens that are whole words of the corpus
    cumulative: np.ndarray  # float64 [W]: cumulative probability of the words


@dataclass(frozen=True, eq=False)
class Context:
    """What operations know about the rows besides their state."""

    lengths: np.ndarray  # int64 [rows]: number of sentences or tokens in each row; what follows is padding
    replacements: Replacements
    positions: np.ndarray | None = None  # int64 [rows, width]: where the tokens are in the corpus
    corpus_weights: np.ndarray | None = None  # float32 [P]: weight of each token of the corpus; None for test documents
    has_translations: bool = False  # whether a cache of back-translated sentences was read
    protected: np.ndarray | None = None  # bool [P]: which tokens of the corpus are words that tell the label

    def take(self, rows: np.ndarray) -> "Context":
        """Return the context of a subset of the rows."""
        positions = None if self.positions is None else self.positions[rows]
        others = self.corpus_weights, self.has_translations, self.protected
        return Context(self.lengths[rows], self.replacements, positions, *others)

    def weights(self) -> np.ndarray:
        """Return how uninformative each token is in its document, float32 [rows, width]; 0 for padding.

        A weight is (C - TF-IDF) / Z: 0 for the most informative word of a document, and 1 on average.
        """
        if self.corpus_weights is None or self.positions is None:
            raise ValueError("word_replacement needs the weights of training documents, got documents for testing")
        last = len(self.corpus_weights) - 1  # later positions are those of words that operations have inserted
        inside = (np.arange(self.positions.shape[1]) < self.lengths[:, None]) & (self.positions <= last)
        return self.corpus_weights[np.minimum(self.positions, last)] * inside


def seeds_of(places: np.ndarray) -> np.ndarray:
    """Return a seed per row, uint64 [rows], from a plan's places, float32 [rows, 4]."""
    bits = (places * np.float32(2**24)).astype(np.uint64)
    return bits[:, 0] << np.uint64(40) ^ bits[:, 1] << np.uint64(27) ^ bits[:, 2] << np.uint64(13) ^ bits[:, 3]


def noise(seeds: np.ndarray, first: int, count: int) -> np.ndarray:
    """Return 64 random bits for each of `count` positions of a row from `first` on. They depend on the row's seed only."""
    bits = np.arange(first + 1, first + count + 1, dtype=np.uint64)[None] * _STEP + mixed(seeds)[:, None]
    return mixed(bits)


def noise_at(seeds: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return 64 random bits for each position, of the seed at the same place: `noise(seed, position, 1)`, uint64 [K]."""
    return mixed((positions + 1).astype(np.uint64) * _STEP + mixed(seeds))


def mixed(bits: np.ndarray) -> np.ndarray:
    """Return other bits for each number, by the finalizer of SplitMix64."""
    bits = bits ^ (bits >> np.uint64(30))
    bits *= _FIRST
    bits ^= bits >> np.uint64(27)
    bits *= _SECOND
    bits ^= bits >> np.uint64(31)
    return bits


def switchout(tokens: np.ndarray, context: Context, temperature: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Replace tokens of each row by random tokens of the vocabulary (arXiv:1808.07512). Temperature 0 is the identity.

    In a row of n tokens m are replaced. m = 0 … n has the probability exp(-m / (temperature·n)), normalized.
    """
    rows, width = tokens.shape
    if not tokens.size:
        return tokens.copy()
    lengths, vocabulary = context.lengths, context.replacements.vocabulary
    counts = replaced_counts(lengths, temperature, unit_interval(noise(seeds, 0, 1)[:, 0] >> np.uint64(32)))
    bits = noise(seeds, 1, width)
    positions = np.arange(width, dtype=np.uint64)
    order = bits & ~_LOW | positions  # the low bits are the position, so that no two are equal
    order[positions >= lengths[:, None].astype(np.uint64)] = np.iinfo(np.uint64).max
    threshold = np.sort(order, axis=1)[np.arange(rows), np.maximum(counts - 1, 0)]
    drawn = vocabulary[((bits & _LOW) * np.uint64(len(vocabulary))) >> np.uint64(32)]
    return np.where((order <= threshold[:, None]) & (counts > 0)[:, None], drawn, tokens)


def replaced_counts(lengths: np.ndarray, temperature: np.ndarray, quantile: np.ndarray) -> np.ndarray:
    """Return how many tokens switchout replaces: the quantile of P(m) = exp(-m / (temperature·n)), m = 0 … n, normalized."""
    scale = np.maximum(temperature * lengths, 1e-12)
    counts = np.floor(-scale * np.log1p(-quantile * -np.expm1(-(lengths + 1) / scale)))
    return np.where(temperature > 0, np.minimum(counts, lengths), 0).astype(np.int64)


def word_replacement(tokens: np.ndarray, context: Context, probability: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Replace uninformative words, each with `probability` times its weight (UDA, arXiv:1904.12848). 0 is the identity."""
    return _replace_words(tokens, context, probability[:, None].astype(np.float32) * context.weights(), seeds)


def protected_replacement(tokens: np.ndarray, context: Context, probability: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Replace words like `word_replacement`, but no word that tells the label (see `decisive_words`). 0 is the identity."""
    weights = context.weights()  # refuses documents for testing
    assert context.protected is not None
    assert context.positions is not None
    kept = context.protected[np.minimum(context.positions, len(context.protected) - 1)]
    return _replace_words(tokens, context, probability[:, None].astype(np.float32) * weights * ~kept, seeds)


def _replace_words(tokens: np.ndarray, context: Context, chances: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Replace tokens, each with its own probability, by words of the corpus."""
    bits, replacements = noise(seeds, 0, tokens.shape[1]), context.replacements
    rows, columns = np.nonzero(unit_interval(bits >> np.uint64(32)) < chances)
    out = tokens.copy()
    if len(replacements.words):
        at = np.searchsorted(replacements.cumulative, unit_interval(bits[rows, columns] & _LOW), side="right")
        out[rows, columns] = replacements.words[np.minimum(at, len(replacements.words) - 1)]
    return out


def back_translation(sentences: np.ndarray, context: Context, probability: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Replace sentences by their back-translation, each with `probability`. 0 is the identity."""
    if not context.has_translations:
        raise ValueError("back_translation needs a cache of translated sentences: see `outspan text backtranslate --help`")
    drawn = unit_interval(noise(seeds, 0, sentences.shape[1]) >> np.uint64(32)) < probability[:, None]
    return sentences | (drawn & (sentences >= 0))


def sentence_shuffle(sentences: np.ndarray, context: Context, probability: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Move sentences, each with `probability`, at least two, to places of each other (arXiv:1910.13461). 0 is the identity.

    The moved sentences stand in a random circle, and each takes the place of the one before it. So all of them move.
    """
    width = sentences.shape[1]
    if width < 2:
        return sentences.copy()
    bits, columns = noise(seeds, 0, width), np.arange(width)
    draws = np.where(sentences >= 0, unit_interval(bits >> np.uint64(32)), 1.0)
    least = np.where(probability > 0, np.partition(draws, 1, axis=1)[:, 1], -1.0)  # the second smallest
    moved = ((draws < probability[:, None]) | (draws <= least[:, None])) & (sentences >= 0)
    circle = np.argsort(np.where(moved, unit_interval(bits & _LOW), 1.0), axis=1, kind="stable")  # then those that stay
    count, rows = np.maximum(moved.sum(axis=1), 1)[:, None], np.arange(len(sentences))[:, None]
    following = circle[rows, np.where(columns < count, (columns + 1) % count, columns)]
    out = sentences.copy()
    out[rows, circle] = sentences[rows, following]
    return out


def sentence_crop(sentences: np.ndarray, context: Context, fraction: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Keep a random run of sentences, without `fraction` of them (arXiv:2012.15466). 0 is the identity.

    At least one sentence is dropped, and at least one is kept.
    """
    dropped = np.where(fraction > 0, np.maximum(1, (fraction * context.lengths).astype(np.int64)), 0)
    dropped = np.minimum(dropped, np.maximum(context.lengths - 1, 0))
    first = (unit_interval(noise(seeds, 0, 1)[:, 0] >> np.uint64(32)) * (dropped + 1)).astype(np.int64)
    columns = np.arange(sentences.shape[1])
    kept = (columns >= first[:, None]) & (columns < (first + context.lengths - dropped)[:, None])
    return np.where(kept, sentences, -1)


def unit_interval(bits: np.ndarray) -> np.ndarray:
    """Return 32 bits as a number in [0, 1)."""
    return bits.astype(np.float64) * 2.0**-32
