"""Randomness by address: a draw depends on the seed and on its own name, never on a stream.

There is no state to save, lose or share: the same draws come out on every device, with any number of
workers, and after any restart.
"""

import hashlib
from operator import index
from typing import Any, SupportsIndex

import numpy as np
from numpy.random.bit_generator import ISeedSequence


def _digest(seed: SupportsIndex, address: tuple[str | SupportsIndex, ...]) -> bytes:
    # A number is its value whatever type it comes in: numpy's int64(7) prints otherwise than 7, and by version.
    parts = tuple(part if isinstance(part, str) else index(part) for part in (seed, *address))
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()


class _Key(ISeedSequence):
    """Hands a digest to a bit generator as it is; numpy's own seeding would ask the system for entropy first."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        return np.frombuffer(self._digest, dtype=dtype)[:n_words]


def derive(seed: SupportsIndex, *address: str | SupportsIndex) -> int:
    """Return the 63-bit seed that belongs to an address, for libraries that want a number.

    >>> derive(0, "model", 7) == derive(0, "model", 7) != derive(0, "model", 8)
    True
    """
    return int.from_bytes(_digest(seed, address)[:8], "little") >> 1


def generator(seed: SupportsIndex, *address: str | SupportsIndex) -> np.random.Generator:
    """Return a fresh generator for an address, keyed with 128 bits so that no two addresses meet.

    >>> float(generator(0, "order", 3).random()) == float(generator(0, "order", 3).random())
    True
    """
    key: Any = _Key(_digest(seed, address))  # numpy takes any ISeedSequence; its annotations know one of them
    return np.random.Generator(np.random.Philox(key))
