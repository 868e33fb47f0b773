"""The executor for text: puts the documents of a batch together as a plan says, cut to length, between special tokens."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from outspan.devices import to_device
from outspan.plan import Plan
from outspan.shapes import Int64
from outspan.text import ops
from outspan.text.tokens import Corpus, Encoded, Passages
from outspan.transforms.apply import check_plan
from outspan.transforms.table import TEXT_TRANSFORMS

_MULTIPLE = 8  # lengths are padded to


def apply(passages: Passages, plan: Plan) -> Int64[Tensor, "M T"]:
    """Execute a plan on documents: the rows `plan.out` come out as tokens, padded to the longest, on the batch's device.

    Back-translation comes first, wherever it stands in a row: it needs sentences. Then a long document is cut, and what is left
    is changed in the plan's order. Special tokens and padding are never touched.
    """
    check_plan(plan, len(passages), TEXT_TRANSFORMS)
    split, corpus = passages.split, passages.split.corpus
    rows = plan.out.numpy()
    documents = passages.rows[plan.source.numpy()[rows]]
    plan_ops, levels, places = plan.ops.numpy()[rows], plan.levels.numpy()[rows], plan.places.numpy()[rows]
    back = plan.names.index("back_translation") if "back_translation" in plan.names else -2
    where, lengths = _positions(split, documents, _translated(corpus, documents, plan_ops == back, levels, places))
    tokens = corpus.tokens[where]
    for step in range(plan_ops.shape[1]):
        for name in ("switchout", "word_replacement"):
            if name not in plan.names:
                continue
            at = np.flatnonzero((plan_ops[:, step] == plan.names.index(name)) & (levels[:, step] > 0))
            strength = TEXT_TRANSFORMS[name].span * levels[at, step].astype(np.float64)
            seeds = ops.seeds_of(places[at, step])
            if not len(at):
                continue
            if name == "switchout":
                tokens[at] = ops.switchout(tokens[at], lengths[at], strength, seeds, corpus.law)
            else:
                if corpus.weights is None:
                    raise ValueError("word_replacement needs the weights of training documents, got documents for testing")
                inside = np.arange(tokens.shape[1]) < lengths[at, None]
                tokens[at] = ops.word_replacement(tokens[at], corpus.weights[where[at]] * inside, strength, seeds, corpus.law)
    return to_device(torch.from_numpy(_framed(split, tokens, lengths)), passages.device)


@dataclass(frozen=True)
class Framed:
    """The last step for text: documents as they are, cut to length, between special tokens."""

    def __call__(self, passages: Passages) -> Int64[Tensor, "B T"]:
        """Put a batch together."""
        return apply(passages, Plan.of([[]] * len(passages)))


def _translated(corpus: Corpus, documents: np.ndarray, at: np.ndarray, levels: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return which sentences of each row's document are taken in translation, bool [rows, sentences]."""
    count = corpus.starts[documents + 1] - corpus.starts[documents]
    taken = np.zeros((len(documents), int(count.max(initial=0))), dtype=bool)
    if at.any() and not corpus.translated:
        raise ValueError("back_translation needs a cache of translated sentences: see `outspan text backtranslate --help`")
    for step in range(at.shape[1]):
        rows = np.flatnonzero(at[:, step] & (levels[:, step] > 0))
        if len(rows):
            share = TEXT_TRANSFORMS["back_translation"].span * levels[rows, step].astype(np.float64)
            found = ops.back_translation(count[rows], share, ops.seeds_of(places[rows, step]))
            taken[rows, : found.shape[1]] |= found
    return taken


def _positions(split: Encoded, documents: np.ndarray, translated: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where each row's tokens stand in the corpus, [rows, longest], cut to length, and how many they are."""
    corpus, special = split.corpus, len(split.corpus.tokenizer.before) + len(split.corpus.tokenizer.after)
    room = split.length - special
    first = corpus.starts[documents]
    count = corpus.starts[documents + 1] - first
    row = np.repeat(np.arange(len(documents)), count)
    number = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    spans = corpus.spans[first[row] + number]
    other = translated[row, number]
    begin, end = np.where(other, spans[:, 2], spans[:, 0]), np.where(other, spans[:, 3], spans[:, 1])
    size = end - begin
    whole = np.bincount(row, size, minlength=len(documents)).astype(np.int64)
    # One long line of all rows' tokens: a token's place in the corpus is its sentence's beginning and its number in it.
    ends = np.cumsum(size)
    line = np.arange(int(size.sum())) + np.repeat(begin - (ends - size), size)
    kept = np.minimum(whole, room)
    head = {"head": kept, "tail": 0 * kept, "head+tail": np.where(whole > room, room // 4, kept)}[split.truncate]
    column = np.arange(int(kept.max(initial=0)))
    at = (np.cumsum(whole) - whole)[:, None] + column + np.where(column >= head[:, None], (whole - kept)[:, None], 0)
    inside = column < kept[:, None]
    if not len(line):
        return np.zeros((len(documents), 0), dtype=np.int64), kept
    return line[np.where(inside, at, 0)], kept


def _framed(split: Encoded, tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the tokens between the special ones, int64 [rows, T], padded."""
    tokenizer = split.corpus.tokenizer
    before, after = len(tokenizer.before), len(tokenizer.after)
    width = before + int(lengths.max(initial=0)) + after
    width = min(-(-width // _MULTIPLE) * _MULTIPLE, split.length)
    out = np.full((len(tokens), width), tokenizer.padding, dtype=np.int64)
    out[:, :before] = tokenizer.before
    inside = np.arange(tokens.shape[1]) < lengths[:, None]
    out[:, before : before + tokens.shape[1]] = np.where(inside, tokens, tokenizer.padding)
    for i, token in enumerate(tokenizer.after):
        out[np.arange(len(out)), before + lengths + i] = token
    return out
