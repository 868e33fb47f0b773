"""Operations on tokens: they follow the distributions of the papers and change nothing else."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outspan.transforms import token_ops
from reviews import uniform_seeds

REPLACEMENTS = token_ops.Replacements(
    np.arange(100, 150, dtype=np.int32), np.array([7, 8, 9], dtype=np.int32), np.cumsum([0.5, 0.3, 0.2])
)


def context(lengths: np.ndarray) -> token_ops.Context:
    return token_ops.Context(lengths, REPLACEMENTS, has_translations=True)


def weighted(weights: np.ndarray) -> token_ops.Context:
    positions = np.arange(weights.size).reshape(weights.shape)
    return token_ops.Context(np.full(len(weights), weights.shape[1]), REPLACEMENTS, positions, weights.reshape(-1))


@pytest.mark.parametrize("temperature", [0.05, 0.2, 3.0])
def test_the_number_of_replaced_tokens_of_switchout(temperature):
    rows, length = 20_000, 12
    tokens = np.zeros((rows, 16), dtype=np.int32)
    result = token_ops.switchout(tokens, context(np.full(rows, length)), np.full(rows, temperature), uniform_seeds(rows))
    counts = np.bincount((result != 0).sum(1), minlength=length + 1) / rows
    expected = np.exp(-np.arange(length + 1) / (temperature * length))
    np.testing.assert_allclose(counts, expected / expected.sum(), atol=4 * 0.5 / math.sqrt(rows))
    assert not result[:, length:].any()  # padding
    places = (result != 0)[:, :length].mean(0)
    np.testing.assert_allclose(places, places.mean(), atol=4 * 0.5 / math.sqrt(rows))
    drawn = np.bincount(result[result != 0] - 100, minlength=50)
    assert drawn.min() > 0
    assert drawn.max() < 1.5 * drawn.mean()


def test_word_replacement_follows_weights_and_the_corpus():
    rows = 30_000
    weights = np.tile(np.array([0.0, 0.5, 1.0, 4.0], dtype=np.float32), (rows, 1))
    result = token_ops.word_replacement(
        np.zeros((rows, 4), np.int32), weighted(weights), np.full(rows, 0.3), uniform_seeds(rows)
    )
    np.testing.assert_allclose((result != 0).mean(0), [0, 0.15, 0.3, 1.0], atol=0.012)
    drawn = np.bincount(result[result != 0], minlength=10)[7:] / (result != 0).sum()
    np.testing.assert_allclose(drawn, [0.5, 0.3, 0.2], atol=0.012)


def test_a_fraction_of_the_sentences_is_translated():
    rows = 20_000
    none = np.tile(2 * np.arange(5), (rows, 1))
    result = token_ops.back_translation(none, context(np.full(rows, 5)), np.full(rows, 0.4), uniform_seeds(rows))
    np.testing.assert_allclose((result % 2).mean(0), 0.4, atol=0.015)
    np.testing.assert_array_equal(result // 2, none // 2)
    short = np.where(np.arange(5) < 2, none[:2], -1)
    assert (
        token_ops.back_translation(short, context(np.array([2, 2])), np.ones(2), uniform_seeds(2)).tolist()
        == [[1, 3, -1, -1, -1]] * 2
    )
    assert (token_ops.back_translation(none[:2] + 1, context(np.array([5, 5])), np.zeros(2), uniform_seeds(2)) % 2 == 1).all()


def test_sentences_are_shuffled_among_the_chosen_places():
    rows = 30_000
    sentences = np.tile(np.array([0, 2, 4, 6, -1]), (rows, 1))
    whole = token_ops.sentence_shuffle(sentences, context(np.full(rows, 4)), np.ones(rows), uniform_seeds(rows))
    assert (whole[:, 4] == -1).all()
    orders, counts = np.unique(whole[:, :4], axis=0, return_counts=True)
    np.testing.assert_allclose(counts / rows, 1 / 6, atol=0.012)  # the 3! circles of four
    for order in orders // 2:
        seen = [0]
        while (place := int(order[seen[-1]])) != 0:
            seen.append(place)
        assert len(seen) == 4, order
    half = token_ops.sentence_shuffle(sentences, context(np.full(rows, 4)), np.full(rows, 0.5), uniform_seeds(rows))
    moved = np.bincount((half != sentences).sum(1), minlength=5) / rows
    np.testing.assert_allclose(moved, [0, 0, 11 / 16, 4 / 16, 1 / 16], atol=0.012)  # of four, binomial, but at least two
    zero = token_ops.sentence_shuffle(sentences, context(np.full(rows, 4)), np.zeros(rows), uniform_seeds(rows))
    np.testing.assert_array_equal(zero, sentences)


@pytest.mark.parametrize("level", [1e-6, 0.3, 1.0])
def test_two_sentences_never_stay_as_they_are(level):
    rows = 1_000
    sentences, lengths = np.tile(np.array([0, 2, -1]), (rows, 1)), np.full(rows, 2)
    shuffled = token_ops.sentence_shuffle(sentences, context(lengths), np.full(rows, level), uniform_seeds(rows))
    np.testing.assert_array_equal(shuffled, np.tile([2, 0, -1], (rows, 1)))
    cropped = token_ops.sentence_crop(sentences, context(lengths), np.full(rows, level / 2), uniform_seeds(rows))
    assert sorted(map(tuple, np.unique(cropped, axis=0).tolist())) == [(-1, 2, -1), (0, -1, -1)]
    single = np.where(np.arange(3) < 1, sentences, -1)
    for operation in (token_ops.sentence_shuffle, token_ops.sentence_crop):
        np.testing.assert_array_equal(
            operation(single, context(np.ones(rows, int)), np.full(rows, level), uniform_seeds(rows)), single
        )


def test_a_crop_is_a_run_of_sentences():
    rows, lengths = 20_000, np.array([6, 1] * 10_000)
    sentences = np.where(np.arange(6) < lengths[:, None], 2 * np.arange(6), -1)
    cropped = token_ops.sentence_crop(sentences, context(lengths), np.full(rows, 0.5), uniform_seeds(rows))
    assert (cropped[1::2] == sentences[1::2]).all()  # a single sentence stays
    runs, counts = np.unique(cropped[::2], axis=0, return_counts=True)
    assert sorted(map(tuple, runs.tolist())) == sorted(
        tuple(2 * i if first <= i < first + 3 else -1 for i in range(6)) for first in range(4)
    )
    np.testing.assert_allclose(counts / (rows / 2), 0.25, atol=0.02)
    np.testing.assert_array_equal(
        token_ops.sentence_crop(sentences, context(lengths), np.zeros(rows), uniform_seeds(rows)), sentences
    )


def test_protected_words_are_never_replaced():
    rows = 5_000
    weights = np.ones((rows, 4), dtype=np.float32)
    positions = np.tile(np.arange(4), (rows, 1))
    protected = np.array([False, True, False, True])
    known = token_ops.Context(np.full(rows, 4), REPLACEMENTS, positions, weights[0], protected=protected)
    tokens = np.zeros((rows, 4), np.int32)
    result = token_ops.protected_replacement(tokens, known, np.full(rows, 0.3), uniform_seeds(rows))
    plain = token_ops.word_replacement(tokens, known, np.full(rows, 0.3), uniform_seeds(rows))
    np.testing.assert_array_equal(result, np.where(protected, 0, plain))
    assert (plain[:, protected] != 0).any()


@given(st.integers(0, 2**63), st.integers(1, 40), st.integers(0, 40))
def test_a_row_does_not_depend_on_the_batch(seed, width, other):
    seeds = np.array([seed, other, seed], dtype=np.uint64)
    tokens = np.tile(np.arange(width, dtype=np.int32), (3, 1))
    lengths = np.array([width, width // 2, width])
    strength, weights = np.array([0.5, 0.1, 0.5]), np.ones(tokens.shape, dtype=np.float32)
    switched = token_ops.switchout(tokens, context(lengths), strength, seeds)
    replaced = token_ops.word_replacement(tokens, weighted(weights), strength, seeds)
    np.testing.assert_array_equal(switched[2:], token_ops.switchout(tokens[:1], context(lengths[:1]), strength[:1], seeds[:1]))
    alone = token_ops.word_replacement(tokens[:1], weighted(weights[:1]), strength[:1], seeds[:1])
    np.testing.assert_array_equal(replaced[:1], alone)
    np.testing.assert_array_equal(tokens[0], np.arange(width))  # the input is unchanged
    zero = np.zeros(3)
    np.testing.assert_array_equal(token_ops.switchout(tokens, context(lengths), zero, seeds), tokens)
    np.testing.assert_array_equal(token_ops.word_replacement(tokens, weighted(weights), zero, seeds), tokens)


@given(st.integers(0, 2**63), st.integers(1, 40), st.integers(1, 600))
@example(2587, 500, 15_884)  # the random numbers of two tokens agree in their first 18 bits
def test_a_row_does_not_depend_on_the_width_of_its_batch(seed, length, more):
    seeds, lengths, strength = np.array([seed], dtype=np.uint64), np.array([length]), np.array([0.5])
    tokens = np.arange(length + more, dtype=np.int32)[None]
    narrow = token_ops.switchout(tokens[:, :length], context(lengths), strength, seeds)
    np.testing.assert_array_equal(token_ops.switchout(tokens, context(lengths), strength, seeds)[:, :length], narrow)


def test_seeds_use_all_four_numbers_of_a_place():
    places = np.zeros((5, 4), dtype=np.float32)
    places[np.arange(4), np.arange(4)] = 2.0**-24
    assert len(set(token_ops.seeds_of(places).tolist())) == 5


def test_empty_rows_are_allowed():
    none = np.zeros((2, 0), dtype=np.int32)
    for op in (token_ops.switchout, token_ops.word_replacement):
        assert op(none, weighted(none.astype(np.float32)), np.ones(2), uniform_seeds(2)).shape == (2, 0)
    assert token_ops.back_translation(none.astype(bool), context(np.zeros(2)), np.ones(2), uniform_seeds(2)).shape == (2, 0)
