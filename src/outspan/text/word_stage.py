"""Apply the operations on words of a plan: from tokens to words and back."""

import numpy as np

from outspan.plan import Plan
from outspan.text.words import Bank, Vocabulary
from outspan.transforms.table import TEXT_TRANSFORMS
from outspan.transforms.token_ops import seeds_of
from outspan.transforms.word_ops import MARK, Units, WordContext


def to_units(positions: np.ndarray, lengths: np.ndarray, vocabulary: Vocabulary) -> Units:
    """Return the words and marks of rows of tokens, given their positions in the corpus [rows, width]."""
    flat = positions[np.arange(positions.shape[1]) < lengths[:, None]]
    row = np.repeat(np.arange(len(lengths)), lengths)
    is_start = vocabulary.starts[flat]  # a copy
    if len(flat):
        is_start[0] = True
        is_start[1:] |= (row[1:] != row[:-1]) | (flat[1:] != flat[:-1] + 1)
    first = np.flatnonzero(is_start)
    begin = flat[first]
    end = flat[np.append(first[1:], len(flat)) - 1] + 1 if len(first) else begin
    # What is left of a word after truncation is not a word.
    kinds = np.where(vocabulary.starts[begin], vocabulary.kinds[begin], MARK).astype(np.int64)
    return Units(row[first], begin, end, kinds, len(lengths))


def run_words(plan: Plan, units: Units, bank: Bank) -> Units:
    """Apply the operations on words to the rows `plan.out`, step by step."""
    units = _with_spaces(units, bank)
    out = plan.out.numpy()
    ops, levels, places = plan.ops.numpy()[out], plan.levels.numpy()[out], plan.places.numpy()[out]
    context = WordContext(bank)
    for step in range(ops.shape[1]):
        for op, name in enumerate(plan.names):
            transform = TEXT_TRANSFORMS[name]
            at = np.flatnonzero((ops[:, step] == op) & (levels[:, step] > 0))
            if transform.stage != "words" or not len(at):
                continue
            if transform.needs == "case" and not bank.sees_case:
                raise ValueError(
                    f"{name} needs a tokenizer that tells upper from lower case; this one does not: leave {name} out"
                )
            number = np.full(units.count, -1)
            number[at] = np.arange(len(at))
            is_changed = number[units.rows] >= 0
            part = units.take(is_changed)
            part = Units(number[part.rows], part.begin, part.end, part.kinds, len(at))
            strength = transform.span * levels[at, step].astype(np.float64)
            done = transform.function(part, context, strength, seeds_of(places[at, step]))
            units = _join(units.take(~is_changed), Units(at[done.rows], done.begin, done.end, done.kinds, units.count))
            units = _with_spaces(units, bank)
    return units


def _join(one: Units, other: Units) -> Units:
    """Return the units of both, sorted by their rows."""
    order = np.argsort(np.concatenate([one.rows, other.rows]), kind="stable")
    rows, begin = np.concatenate([one.rows, other.rows])[order], np.concatenate([one.begin, other.begin])[order]
    end, kinds = np.concatenate([one.end, other.end])[order], np.concatenate([one.kinds, other.kinds])[order]
    return Units(rows, begin, end, kinds, one.count)


def _with_spaces(units: Units, bank: Bank) -> Units:
    """Return units in which words that had no space before them have one, if they do not follow what they followed any more."""
    if not bank.sees_spaces or not len(units.rows):
        return units
    moved = np.append(False, units.begin[1:] != units.end[:-1]) & (units.numbers() > 0)
    at = np.flatnonzero(moved & np.append(bank.vocabulary.unspaced, [False, False])[units.kinds])
    if not len(at):
        return units
    spaced = bank.spellings("spaced", units.take(at))
    return units.respell(at, spaced.spans[spaced.rows, 0])
