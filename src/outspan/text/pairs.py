"""Pairs of texts, such as premise and hypothesis: each part is augmented by itself, and both are joined by special tokens."""

import numpy as np
import torch
from torch import Tensor

from outspan.plan import Plan
from outspan.shapes import Int64


def plan_of_parts(plan: Plan) -> Plan:
    """Return the plan of both parts of each output: the same transforms and levels, with draws of their own."""
    rows = plan.out.repeat_interleave(2)
    places = plan.places[rows]
    places[1::2] = (places[1::2] + 0.5) % 1
    every = torch.arange(len(rows))
    partners = torch.full(plan.ops[rows].shape, -1, dtype=torch.int64)
    return Plan(plan.names, plan.ops[rows], plan.levels[rows], places, partners, every, every)


def rooms_of_parts(lengths: np.ndarray, room: int) -> np.ndarray:
    """Return how many tokens of each part are kept, int64 [2 rows]: the longer part is truncated first, as by transformers."""
    first, second = lengths.reshape(-1, 2).T
    small, large = np.minimum(first, second), np.maximum(first, second)
    large = np.minimum(large, np.maximum(small, room - small))
    is_half = small + large > room
    small, large = np.where(is_half, room // 2, small), np.where(is_half, room // 2 + room % 2, large)
    is_swapped = first > second
    return np.stack([np.where(is_swapped, large, small), np.where(is_swapped, small, large)], axis=1).reshape(-1)


def join_parts(tokens: np.ndarray, lengths: np.ndarray, between: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of both parts of each row with the special tokens between them, and their number."""
    first, second = lengths.reshape(-1, 2).T
    begin, sizes = first + len(between), first + len(between) + second
    out = np.zeros((len(sizes), int(sizes.max(initial=0))), dtype=tokens.dtype)
    columns, own = np.arange(out.shape[1]), np.arange(tokens.shape[1])
    out[columns < first[:, None]] = tokens[0::2][own < first[:, None]]
    out[(columns >= begin[:, None]) & (columns < sizes[:, None])] = tokens[1::2][own < second[:, None]]
    for i, token in enumerate(between):
        out[np.arange(len(out)), first + i] = token
    return out, sizes


def part_types(tokens: Int64[Tensor, "B T"], separator: int, padding: int) -> Int64[Tensor, "B T"]:
    """Return the token types of BERT: 1 after the first separator, else 0; 0 for padding."""
    is_separator = tokens == separator
    return ((is_separator.cumsum(1) - is_separator.long() > 0) & (tokens != padding)).long()
