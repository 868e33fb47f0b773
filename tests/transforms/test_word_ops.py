"""Operations on words: their distributions, and properties of every operation of the table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outspan.transforms.table import TEXT_TRANSFORMS
from outspan.transforms.word_ops import CHANGED, MARK, Substitutes, Units, WordContext
from reviews import uniform_seeds

OPERATIONS = {name: transform for name, transform in TEXT_TRANSFORMS.items() if transform.stage == "words"}
SYNONYMS = (2, 0, 3, 1)  # how many spellings the words 0 to 3 have


class MadeBank:
    """Word k has SYNONYMS[k] spellings; the i-th of them is the token 1000 + 10 k + i."""

    def spellings(self, name, units):
        counts = np.array([*SYNONYMS, 0])[np.where(units.kinds >= 0, units.kinds % 4, 4)]
        begin = 1000 + 10 * np.maximum(units.kinds, 0)[:, None] % 40 + np.arange(3)
        return Substitutes(counts, np.arange(len(counts)), np.stack([begin, begin + 1], axis=2))

    def proposals(self, units):
        return self.spellings("proposals", units)

    def marks(self):
        return np.stack([np.arange(2000, 2006), np.arange(2001, 2007)], axis=1)


CONTEXT = WordContext(MadeBank())


def make_units(*kinds: list[int]) -> Units:
    """Return units of one token each; the token is the number of the unit in its row."""
    rows = np.repeat(np.arange(len(kinds)), [len(row) for row in kinds])
    begin = np.concatenate([np.arange(len(row)) for row in kinds]).astype(np.int64)
    return Units(rows, begin, begin + 1, np.concatenate(kinds).astype(np.int64), len(kinds))


def by_row(units: Units) -> list[list[int]]:
    return [units.begin[units.rows == row].tolist() for row in range(units.count)]


def run(name: str, units: Units, strength: float, seeds=None) -> Units:
    seeds = uniform_seeds(units.count) if seeds is None else seeds
    return OPERATIONS[name].function(units, CONTEXT, np.full(units.count, strength), seeds)


def test_each_word_is_deleted_with_the_probability_and_one_stays():
    rows = 20_000
    kept = by_row(run("word_deletion", make_units(*[[0, 1, MARK, 2]] * rows), 0.3))
    assert all(2 in row and len(row) > 1 for row in kept)  # the mark, and at least one word
    present = np.array([[place in row for place in (0, 1, 3)] for row in kept]).mean(0)
    np.testing.assert_allclose(present, 0.7 + 0.3**3 / 3, atol=0.015)
    alone = np.array(
        [
            [place in row for place in (0, 1, 3)]
            for row in by_row(run("word_deletion", make_units(*[[0, 1, MARK, 2]] * rows), 1.0))
        ]
    )
    assert (alone.sum(1) == 1).all()
    np.testing.assert_allclose(alone.mean(0), 1 / 3, atol=0.015)


def test_one_swap_exchanges_two_words_and_leaves_marks():
    rows = 20_000
    swapped = by_row(run("word_swap", make_units(*[[0, MARK, 1, 2]] * rows), 0.2))
    counts = {order: swapped.count(list(order)) / rows for order in {tuple(row) for row in swapped}}
    assert set(counts) == {(2, 1, 0, 3), (3, 1, 2, 0), (0, 1, 3, 2)}
    np.testing.assert_allclose(list(counts.values()), 1 / 3, atol=0.015)
    assert by_row(run("word_swap", make_units([0], [MARK], []), 1.0)) == [[0], [0], []]


def test_swaps_follow_one_another_as_in_a_loop():
    """The same swaps, one row and one swap at a time."""
    from outspan.transforms.token_ops import noise_at, unit_interval

    units, seeds = make_units(list(range(9)), list(range(4))), uniform_seeds(2)
    expected = []
    for row, size in enumerate((9, 4)):
        order = list(range(size))
        for swap in range(max(1, int(0.5 * size))):
            bits = noise_at(seeds[row : row + 1], np.array([swap]))
            one = int(unit_interval(bits >> np.uint64(32))[0] * size)
            other = (one + 1 + int(unit_interval(bits & np.uint64(2**32 - 1))[0] * (size - 1))) % size
            order[one], order[other] = order[other], order[one]
        expected.append(order)
    assert by_row(run("word_swap", units, 0.5, seeds)) == expected


def test_marks_are_inserted_before_distinct_words():
    rows = 20_000
    done = by_row(run("punctuation_insertion", make_units(*[[0, 1, MARK, 2, 3, 0, 1]] * rows), 1 / 2))
    counts = np.array([sum(token >= 2000 for token in row) for row in done])
    np.testing.assert_allclose(np.bincount(counts, minlength=4)[1:] / rows, 1 / 3, atol=0.015)  # 1 to 3 of 6 words
    marks = np.bincount([token - 2000 for row in done for token in row if token >= 2000]) / counts.sum()
    np.testing.assert_allclose(marks, 1 / 6, atol=0.012)
    following = [row[i + 1] for row in done for i, token in enumerate(row) if token >= 2000]
    np.testing.assert_allclose(np.bincount(following, minlength=7) / counts.sum(), [1 / 6, 1 / 6, 0, *[1 / 6] * 4], atol=0.012)
    assert [[token for token in row if token < 2000] for row in done] == [list(range(7))] * rows


def test_synonyms_replace_some_of_the_words_that_have_them():
    rows = 20_000
    done = run("synonym_replacement", make_units(*[[0, 1, 2, 3, MARK]] * rows), 0.5)  # 2 of 4 words
    result = np.array(by_row(done))
    changed = result >= 1000
    assert (changed.sum(1) == 2).all()
    np.testing.assert_allclose(changed.mean(0), [2 / 3, 0, 2 / 3, 2 / 3, 0], atol=0.015)
    third = result[:, 2][changed[:, 2]] - 1020
    np.testing.assert_allclose(np.bincount(third) / len(third), 1 / 3, atol=0.015)
    assert (done.kinds[done.begin >= 1000] == CHANGED).all()


def test_synonyms_are_inserted_before_any_word():
    rows = 20_000
    done = by_row(run("word_insertion", make_units(*[[1, 3, MARK]] * rows), 0.2))
    assert {tuple(row) for row in done} == {(1030, 0, 1, 2), (0, 1030, 1, 2)}
    assert np.mean([row[0] == 1030 for row in done]) == pytest.approx(0.5, abs=0.015)
    assert by_row(run("word_insertion", make_units([1, 1]), 1.0)) == [[0, 1]]  # no synonyms


def test_each_word_with_spellings_is_respelled_with_the_probability():
    rows = 20_000
    for name in ("keyboard_typos", "ocr_errors", "casing"):
        result = np.array(by_row(run(name, make_units(*[[0, 1, 2, MARK]] * rows), 0.2)))
        np.testing.assert_allclose((result >= 1000).mean(0), [0.2, 0, 0.2, 0], atol=0.012)


kinds = st.lists(st.sampled_from([MARK, CHANGED, 0, 1, 2, 3]), max_size=12)


@pytest.mark.parametrize("name", OPERATIONS)
@given(rows=st.lists(kinds, min_size=1, max_size=4), strength=st.floats(0.01, 1.0), seed=st.integers(0, 2**63))
def test_a_row_does_not_depend_on_the_batch_and_zero_changes_nothing(name, rows, strength, seed):
    units, seeds = make_units(*map(np.array, rows)), np.arange(seed, seed + len(rows), dtype=np.uint64)
    before = [column.copy() for column in (units.rows, units.begin, units.end, units.kinds)]
    done = run(name, units, strength, seeds)
    assert done.count == len(rows)
    assert (np.diff(done.rows) >= 0).all()
    for row in range(len(rows)):
        alone = run(name, make_units(np.array(rows[row])), strength, seeds[row : row + 1])
        assert by_row(alone)[0] == by_row(done)[row]
        assert bool(rows[row]) == bool(by_row(done)[row])  # never empties a text
    assert by_row(run(name, units, 0.0, seeds)) == by_row(units)
    for column, old in zip((units.rows, units.begin, units.end, units.kinds), before, strict=True):
        np.testing.assert_array_equal(column, old)
