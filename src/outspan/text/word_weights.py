"""How much the words of a corpus tell: the weights of UDA's word replacement, and the words that tell the label."""

from typing import Protocol, runtime_checkable

import numpy as np

from outspan.transforms.token_ops import Replacements

_DECISIVE = 3.0  # standard errors of the log odds from which a word counts as decisive


@runtime_checkable
class TokenSet(Protocol):
    """The tokens of a tokenizer."""

    @property
    def vocabulary(self) -> np.ndarray: ...

    @property
    def wordlike(self) -> np.ndarray: ...


def weigh_words(
    tokenizer: TokenSet, tokens: np.ndarray, whole: np.ndarray, document: np.ndarray, originals: int, count: int
) -> tuple[Replacements, np.ndarray]:
    """Return what UDA needs: the words that replace others, and for each token how uninformative it is in its document.

    A word w is drawn with a probability proportional to max S - S(w). S = frequency · IDF is computed on the `count` documents
    without their back-translations, which are the first `originals` tokens.
    """
    size = len(tokenizer.wordlike)
    pairs, where, frequencies = np.unique(document * size + tokens, return_inverse=True, return_counts=True)
    present = np.bincount(pairs[pairs < count * size] % size, minlength=size)  # number of documents with a token
    idf = np.log(count / np.maximum(present, 1))
    total = np.bincount(document, minlength=2 * count)
    tf_idf = frequencies[where] / total[document] * idf[tokens]
    highest = np.zeros(2 * count)
    np.maximum.at(highest, document[whole], tf_idf[whole])
    low = np.where(whole, highest[document] - tf_idf, 0)
    mean = np.bincount(document, low, minlength=2 * count) / np.maximum(np.bincount(document, whole, minlength=2 * count), 1)
    flat = mean[document] <= 1e-12  # all words of the document are equally informative
    weights = np.where(flat, whole, low / np.where(flat, 1, mean[document])).astype(np.float32)
    frequency = np.bincount(tokens[:originals][whole[:originals]], minlength=size)
    words = np.flatnonzero(frequency)
    score = frequency[words] * idf[words]
    chance = score.max(initial=0) - score
    chance = chance if chance.sum() > 0 else np.ones(len(words))
    return Replacements(tokenizer.vocabulary, words.astype(np.int32), np.cumsum(chance) / chance.sum()), weights


def decisive_words(tokens: np.ndarray, whole: np.ndarray, labels: np.ndarray, size: int) -> np.ndarray:
    """Return which tokens are words that tell the label, bool [P]. `labels`, [P] or [P, classes], are of each token's document.

    A word tells the label if it is more frequent in a class than in the others: its log odds ratio, with a prior of the word's
    frequency in all classes, is at least 3 standard errors (Monroe, Colaresi and Quinn, doi:10.1093/pan/mpn018).
    """
    words, chosen = tokens[whole], labels[whole]
    rows, members = np.nonzero(chosen) if labels.ndim == 2 else (np.arange(len(words)), chosen)
    classes = labels.shape[1] if labels.ndim == 2 else int(labels.max(initial=0)) + 1
    counts = np.bincount(members * size + words[rows], minlength=classes * size).reshape(classes, size).astype(np.float64)
    every = np.bincount(words, minlength=size)
    prior, total = every + 0.01, every.sum() + 0.01 * size
    decisive = np.zeros(size, dtype=bool)
    for inside in counts:
        one, other = inside + prior, every - inside + prior
        odds = np.log(one / (inside.sum() + total - one)) - np.log(other / (every.sum() - inside.sum() + total - other))
        decisive |= odds / np.sqrt(1 / one + 1 / other) >= _DECISIVE
    return decisive[tokens] & whole
