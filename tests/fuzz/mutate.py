"""Small changes to bytes, text and JSON values, all drawn from one generator."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

Draw = np.random.Generator
Item = TypeVar("Item")

NUMBERS = (
    "0", "-0", "1", "-1", "2", "7", "255", "256", "65536", "2147483647", "2147483648", "-2147483649", "9223372036854775807",
    "9223372036854775808", "-9223372036854775809", "18446744073709551616", "1" + "0" * 40, "1" + "0" * 400, "1" + "0" * 5000,
    "0.0", "-0.0", "0.5", "1.0000001", "1e-45", "5e-324", "3.5e38", "1.7e308", "-1.7e308", "1e309", "inf", "-inf", "nan",
    "1_000", "0x10", "1e", "٣", "", " 3 ", "true", "null", '"text"', "[]", "{}", "''",
)  # fmt: skip
PIECES = (
    b"\0", b"\n", b"\r", b"\r\n", b'"', b"'", b",", b";", b"[", b"]", b"{", b"}", b"=", b"#", b"\\", b"\xff", b"\xef\xbb\xbf",
    b"\xed\xa0\x80", "é\u2028".encode(), b"\x1b[31m", b"A" * 300, b"[" * 200, b"[" * 3000, b"{}" * 40,
)  # fmt: skip


def pick(draw: Draw, items: Sequence[Item]) -> Item:
    """Return one of the items, all with equal probability."""
    return items[int(draw.integers(len(items)))]


def mutate(data: bytes, draw: Draw, *, limit: int = 6) -> bytes:
    """Return bytes with a few changes."""
    changed = bytearray(data)
    for _ in range(int(draw.integers(1, limit + 1))):
        pick(draw, _CHANGES)(changed, draw)
    return bytes(changed[: 4 * len(data) + 4096])


def _span(data: bytearray, draw: Draw) -> tuple[int, int]:
    start = int(draw.integers(len(data) + 1))
    return start, min(len(data), start + int(2 ** draw.uniform(0, 8)))


def _flip(data: bytearray, draw: Draw) -> None:
    if data:
        data[int(draw.integers(len(data)))] ^= 1 << int(draw.integers(8))


def _set(data: bytearray, draw: Draw) -> None:
    if data:
        data[int(draw.integers(len(data)))] = int(draw.integers(256))


def _write_number(data: bytearray, draw: Draw) -> None:
    width = pick(draw, (1, 2, 4, 8))
    value = pick(draw, (0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)) % 2 ** (
        8 * width
    )
    start = int(draw.integers(len(data) + 1))
    data[start : start + width] = value.to_bytes(width, pick(draw, ("little", "big")))


def _cut(data: bytearray, draw: Draw) -> None:
    start, stop = _span(data, draw)
    del data[start:stop]


def _repeat(data: bytearray, draw: Draw) -> None:
    start, stop = _span(data, draw)
    data[start:start] = data[start:stop] * int(draw.integers(1, 4))


def _move(data: bytearray, draw: Draw) -> None:
    start, stop = _span(data, draw)
    part = data[start:stop]
    del data[start:stop]
    at = int(draw.integers(len(data) + 1))
    data[at:at] = part


def _end(data: bytearray, draw: Draw) -> None:
    del data[int(draw.integers(len(data) + 1)) :]


def _insert(data: bytearray, draw: Draw) -> None:
    at = int(draw.integers(len(data) + 1))
    data[at:at] = pick(draw, PIECES)


def _insert_number(data: bytearray, draw: Draw) -> None:
    """Replace a number in the data."""
    digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
    if digits:
        start = stop = pick(draw, digits)
        while stop < len(data) and 48 <= data[stop] <= 57:
            stop += 1
        data[start:stop] = pick(draw, NUMBERS).encode()


_CHANGES: Sequence[Callable[[bytearray, Draw], None]] = (
    _flip, _set, _write_number, _cut, _repeat, _move, _end, _insert, _insert_number,
)  # fmt: skip


def odd_value(draw: Draw) -> Any:
    """Return an unusual JSON value."""
    text = pick(draw, NUMBERS)
    try:
        return json.loads(text)
    except ValueError:
        return pick(draw, (text, None, True, False, [], {}, [[]], [None], {"": 0}, "x" * 3000, float("nan"), float("inf"), -1))


def mutate_json(value: Any, draw: Draw) -> Any:
    """Return a JSON value with one change somewhere in it."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = pick(draw, sorted(value))
        how = draw.random()
        rest = {k: v for k, v in value.items() if k != key}
        if how < 0.15:
            return rest
        if how < 0.25:
            return {**rest, pick(draw, ("", key + "x", "\0", "step")): value[key]}
        return {**value, key: mutate_json(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = int(draw.integers(len(value)))
        how = draw.random()
        if how < 0.15:
            return value[:at] + value[at + 1 :]
        if how < 0.3:
            return value[:at] + [value[at]] * int(draw.integers(2, 5)) + value[at + 1 :]
        return [*value[:at], mutate_json(value[at], draw), *value[at + 1 :]]
    return odd_value(draw)
