"""What is done to tokens: pure functions of a batch of rows, each with its own strength and seed."""

from dataclasses import dataclass

import numpy as np

_STEP, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))  # SplitMix64
_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, eq=False)
class Law:
    """Which tokens may come in: all alike for switchout, and by a law of their own for word replacement."""

    vocabulary: np.ndarray  # int32 [V]: every token but special and unused ones
    words: np.ndarray  # int32 [W]: tokens that are whole words of the corpus
    cumulative: np.ndarray  # float64 [W]: the chance of a word and of those before it


def seeds_of(places: np.ndarray) -> np.ndarray:
    """Return a seed a row, uint64 [rows], from a plan's places, float32 [rows, 4]."""
    bits = (places * np.float32(2**24)).astype(np.uint64)
    return bits[:, 0] << np.uint64(40) ^ bits[:, 1] << np.uint64(27) ^ bits[:, 2] << np.uint64(13) ^ bits[:, 3]


def noise(seeds: np.ndarray, first: int, count: int) -> np.ndarray:
    """Return 64 random bits for each of `count` positions of a row from `first` on: a function of its seed alone."""
    bits = np.arange(first + 1, first + count + 1, dtype=np.uint64)[None] * _STEP + _mixed(seeds)[:, None]
    return _mixed(bits)


def _mixed(bits: np.ndarray) -> np.ndarray:
    bits = bits ^ (bits >> np.uint64(30))
    bits *= _FIRST
    bits ^= bits >> np.uint64(27)
    bits *= _SECOND
    bits ^= bits >> np.uint64(31)
    return bits


def switchout(tokens: np.ndarray, lengths: np.ndarray, temperature: np.ndarray, seeds: np.ndarray, law: Law) -> np.ndarray:
    """Replace some tokens of each row by any of the vocabulary (arXiv:1808.07512); temperature 0 is the identity.

    Of a row of n tokens m are replaced, where m = 0 … n has the probability exp(-m / (temperature·n)), normalised.
    """
    rows, width = tokens.shape
    if not tokens.size:
        return tokens.copy()
    many = how_many(lengths, temperature, _share(noise(seeds, 0, 1)[:, 0] >> np.uint64(32)))
    bits = noise(seeds, 1, width)
    positions = np.arange(width, dtype=np.uint64)
    order = bits & ~_LOW | positions  # the last bits are the position, so that no two are alike
    order[positions >= lengths[:, None].astype(np.uint64)] = np.iinfo(np.uint64).max
    last = np.sort(order, axis=1)[np.arange(rows), np.maximum(many - 1, 0)]
    drawn = law.vocabulary[((bits & _LOW) * np.uint64(len(law.vocabulary))) >> np.uint64(32)]
    return np.where((order <= last[:, None]) & (many > 0)[:, None], drawn, tokens)


def how_many(lengths: np.ndarray, temperature: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return the number whose probability is exp(-m / (temperature·n)), m = 0 … n, normalised, at a share of that law."""
    scale = np.maximum(temperature * lengths, 1e-12)
    found = np.floor(-scale * np.log1p(-share * -np.expm1(-(lengths + 1) / scale)))
    return np.where(temperature > 0, np.minimum(found, lengths), 0).astype(np.int64)


def word_replacement(
    tokens: np.ndarray, weights: np.ndarray, probability: np.ndarray, seeds: np.ndarray, law: Law
) -> np.ndarray:
    """Replace whole words that say little, each with `probability` times its weight (UDA, arXiv:1904.12848); 0 is the identity.

    A weight is (C - TF-IDF) / Z: 0 for the word that says most in its document, 1 on average; 0 where nothing may come in.
    """
    bits = noise(seeds, 0, tokens.shape[1])
    rows, columns = np.nonzero(_share(bits >> np.uint64(32)) < probability[:, None].astype(np.float32) * weights)
    out = tokens.copy()
    if len(law.words):
        at = np.searchsorted(law.cumulative, _share(bits[rows, columns] & _LOW), side="right")
        out[rows, columns] = law.words[np.minimum(at, len(law.words) - 1)]
    return out


def back_translation(sentences: np.ndarray, share: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Choose sentences to take back-translated, each with the row's share: bool, of row i the first `sentences[i]`."""
    width = int(sentences.max(initial=0))
    drawn = _share(noise(seeds, 0, width) >> np.uint64(32)) < share[:, None]
    return drawn & (np.arange(width) < sentences[:, None])


def _share(bits: np.ndarray) -> np.ndarray:
    """Return 32 bits as a number in [0, 1)."""
    return bits.astype(np.float64) * 2.0**-32
