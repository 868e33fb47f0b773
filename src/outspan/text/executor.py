"""The executor for text: applies a plan to documents, truncates them, adds special tokens, and pads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from outspan.devices import to_device
from outspan.plan import Plan
from outspan.shapes import Int64, describe
from outspan.text.pairs import join_parts, plan_of_parts, rooms_of_parts
from outspan.text.tokens import Encoded, Passages
from outspan.text.word_stage import run_words, to_units
from outspan.transforms.apply import check_plan
from outspan.transforms.table import TEXT_TRANSFORMS, Transform
from outspan.transforms.token_ops import Context, seeds_of

_MULTIPLE = 8  # rows are padded to a multiple of this length


def apply(passages: Passages, plan: Plan) -> Int64[Tensor, "M T"]:
    """Execute a plan on documents. Return the rows `plan.out` as tokens, padded to the longest, on the batch's device.

    Operations on sentences run first, even if they are later in a row. Then long documents are truncated, and operations on
    words run, then those on tokens, each in the plan's order. Special tokens and padding never change.
    """
    return Augmented(passages, plan).to_inputs()


class Augmented:
    """The tokens of a plan's outputs on the host, before special tokens and padding. Some outputs may be drawn again."""

    def __init__(self, passages: Passages, plan: Plan) -> None:
        check_plan(plan, len(passages), TEXT_TRANSFORMS)
        self.passages, self.sources = passages, plan.source.numpy()[plan.out.numpy()]
        self.tokens, self.lengths = _execute(passages, plan)
        self.has_transforms = _has_transforms(plan)

    def unchanged(self) -> np.ndarray:
        """Return which outputs have transforms and are equal to their document, bool [M]."""
        if not self.has_transforms.any():
            return self.has_transforms.copy()
        return self.has_transforms & self._equal_originals(self.tokens, self.lengths, self.sources)

    def _equal_originals(self, tokens: np.ndarray, lengths: np.ndarray, sources: np.ndarray) -> np.ndarray:
        """Return which rows of tokens are equal to their documents, bool [rows]."""
        original, whole = (array[sources] for array in self._originals)
        width = min(original.shape[1], tokens.shape[1])
        differs = (original[:, :width] != tokens[:, :width]) & (np.arange(width) < whole[:, None])
        return (whole == lengths) & ~differs.any(axis=1)

    @cached_property
    def _originals(self) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of each document without transforms, and their number."""
        return _execute(self.passages, Plan.of([[]] * len(self.passages)))

    def redraw(self, rows: np.ndarray, plan: Plan) -> np.ndarray:
        """Replace outputs by those of the first attempt that changes them. Return its number, or that of all if none does.

        The plan contains one or more attempts, one after another, each with one output for each of `rows`.
        """
        if not len(rows):
            return rows
        (tokens, lengths), has_transforms = _execute(self.passages, plan), _has_transforms(plan)
        same = has_transforms & self._equal_originals(tokens, lengths, plan.source.numpy()[plan.out.numpy()])
        changed = ~same.reshape(-1, len(rows))
        first = np.where(changed.any(axis=0), changed.argmax(axis=0), len(changed))
        taken = np.minimum(first, len(changed) - 1) * len(rows) + np.arange(len(rows))
        width = max(tokens.shape[1], self.tokens.shape[1])
        self.tokens = np.pad(self.tokens, ((0, 0), (0, width - self.tokens.shape[1])))
        self.tokens[rows, : tokens.shape[1]], self.lengths[rows] = tokens[taken], lengths[taken]
        self.has_transforms[rows] = has_transforms[taken]
        return first

    def to_inputs(self) -> Int64[Tensor, "M T"]:
        """Return the outputs with special tokens, padded to the longest, on the batch's device."""
        return to_device(
            torch.from_numpy(_add_special_tokens(self.passages.split, self.tokens, self.lengths)), self.passages.device
        )


def _has_transforms(plan: Plan) -> np.ndarray:
    """Return which outputs have a transform whose level is not 0, bool [M]."""
    rows = plan.out.numpy()
    return np.any((plan.ops.numpy()[rows] >= 0) & (plan.levels.numpy()[rows] > 0), axis=1)


def _execute(passages: Passages, plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of the rows `plan.out`, [rows, longest], and their number per row."""
    split, corpus = passages.split, passages.split.corpus
    documents = passages.rows[plan.source.numpy()[plan.out.numpy()]]
    if corpus.parts == 2:
        plan, documents = plan_of_parts(plan), np.stack([2 * documents, 2 * documents + 1], axis=1).reshape(-1)
    counts = corpus.starts[documents + 1] - corpus.starts[documents]
    columns = np.arange(int(counts.max(initial=0)))
    context = Context(counts, corpus.replacements, has_translations=corpus.has_translations)
    sentences = np.where(columns < counts[:, None], 2 * columns, -1)
    chosen = _run_stage("sentences", plan, sentences, context)
    positions, lengths = _positions(split, documents, chosen)
    bank = corpus.bank
    if "words" in _stages(plan) or (bank is not None and bank.sees_spaces and "sentences" in _stages(plan)):
        if bank is None:
            raise ValueError("operations on words need training documents, got documents for testing")
        units = run_words(plan, to_units(positions, lengths, bank.vocabulary), bank)
        positions, lengths = _truncated(split, units.rows, units.begin, units.end, len(documents))
    tokens = corpus.tokens[np.minimum(positions, len(corpus.tokens) - 1)] if len(corpus.tokens) else positions.astype(np.int32)
    if bank is not None and len(bank.tokens):
        inserted = positions >= len(corpus.tokens)
        tokens[inserted] = bank.tokens[positions[inserted] - len(corpus.tokens)]
    context = Context(lengths, corpus.replacements, positions, corpus.weights, corpus.has_translations, corpus.protected)
    tokens = _run_stage("tokens", plan, tokens, context)
    return (tokens, lengths) if corpus.parts == 1 else join_parts(tokens, lengths, corpus.tokenizer.between)


def _stages(plan: Plan) -> set[str]:
    """Return the stages of the transforms that a plan applies."""
    ops = np.unique(plan.ops.numpy()[plan.levels.numpy() > 0])
    return {TEXT_TRANSFORMS[plan.names[op]].stage for op in ops.tolist() if op >= 0}


def _run_stage(stage: str, plan: Plan, state: np.ndarray, context: Context) -> np.ndarray:
    """Apply the operations of a stage to the rows `plan.out`, step by step, in place. Level 0 changes nothing."""
    rows = plan.out.numpy()
    ops, levels, places = plan.ops.numpy()[rows], plan.levels.numpy()[rows], plan.places.numpy()[rows]
    transforms = [TEXT_TRANSFORMS[name] for name in plan.names]
    for step in range(ops.shape[1]):
        for op, transform in enumerate(transforms):
            at = np.flatnonzero((ops[:, step] == op) & (levels[:, step] > 0))
            if len(at) and transform.stage == stage:
                strength = transform.span * levels[at, step].astype(np.float64)
                state[at] = transform.function(state[at], context.take(at), strength, seeds_of(places[at, step]))
    return state


@dataclass(frozen=True)
class PadTokens:
    """The preprocessing of text: truncate documents, add special tokens, and pad them to one length."""

    transforms: ClassVar[Mapping[str, Transform]] = TEXT_TRANSFORMS  # those that it can apply

    def __call__(self, passages: Passages) -> Int64[Tensor, "B T"]:
        """Return the tokens of a batch without augmentation."""
        return self.execute(passages, Plan.of([[]] * len(passages)))

    def execute(self, passages: Passages, plan: Plan) -> Int64[Tensor, "M T"]:
        """Return the tokens of a batch augmented by a plan."""
        return self.augment(passages, plan).to_inputs()

    def augment(self, passages: Passages, plan: Plan) -> Augmented:
        """Return the tokens of a batch augmented by a plan, of which some may be drawn again."""
        self.check(passages)
        return Augmented(passages, plan)

    def check(self, inputs: object) -> None:
        """Raise a ValueError unless the inputs are a batch of documents."""
        if not isinstance(inputs, Passages):
            how = "pass train.inputs(batch), where train is what outspan.text.tokenize returns; for images use Normalize"
            raise ValueError(f"PadTokens is for batches of tokenized texts, got {describe(inputs)}: {how}")


def _positions(split: Encoded, documents: np.ndarray, sentences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the tokens of each row's sentences in the corpus, [rows, longest], and their number per row."""
    corpus = split.corpus
    rows, columns = np.nonzero(sentences >= 0)
    chosen = sentences[rows, columns]
    spans, other = corpus.spans[corpus.starts[documents][rows] + chosen // 2], chosen % 2 == 1
    begin, end = np.where(other, spans[:, 2], spans[:, 0]), np.where(other, spans[:, 3], spans[:, 1])
    return _truncated(split, rows, begin, end, len(documents))


def _truncated(
    split: Encoded, rows: np.ndarray, begin: np.ndarray, end: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions in spans of tokens, [rows, longest], truncated, and their number per row."""
    size = end - begin
    whole = np.bincount(rows, size, minlength=count).astype(np.int64)
    room = np.full(count, split.room) if split.corpus.parts == 1 else rooms_of_parts(whole, split.room)
    # The tokens of all rows in one line: the position of a token is the start of its span plus its index in it.
    ends = np.cumsum(size)
    line = np.arange(int(size.sum())) + np.repeat(begin - (ends - size), size)
    kept = np.minimum(whole, room)
    column = np.arange(int(kept.max(initial=0)))
    head = {"head": room, "tail": 0 * room, "head+tail": room // 4}[split.truncate]  # what is left out follows it
    at = (np.cumsum(whole) - whole)[:, None] + column + np.where(column >= head[:, None], (whole - kept)[:, None], 0)
    if not len(line):
        return np.zeros((count, 0), dtype=np.int64), kept
    return line.take(at, mode="clip"), kept  # padding has any position


def _add_special_tokens(split: Encoded, tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Add special tokens and padding: int64 [rows, T]."""
    tokenizer = split.corpus.tokenizer
    before, after = len(tokenizer.before), len(tokenizer.after)
    longest = int(lengths.max(initial=0))  # the tokens can be wider, if the longest row was drawn again
    width = before + longest + after
    width = min(-(-width // _MULTIPLE) * _MULTIPLE, split.length)
    out = np.full((len(tokens), width), tokenizer.padding, dtype=np.int64)
    out[:, :before] = tokenizer.before
    inside = np.arange(longest) < lengths[:, None]
    out[:, before : before + longest] = np.where(inside, tokens[:, :longest], tokenizer.padding)
    for i, token in enumerate(tokenizer.after):
        out[np.arange(len(out)), before + lengths + i] = token
    return out
