"""Randomness by address: a draw depends on the seed and on its own name, never on a stream.

There is no state to save or to share: the draws are the same on every device, with any number of workers, and after a
restart.
"""

import hashlib
from operator import index
from typing import Any, SupportsIndex

import numpy as np
from numpy.random.bit_generator import ISeedSequence


def _digest(seed: SupportsIndex, address: tuple[str | SupportsIndex, ...]) -> bytes:
    # A number counts by its value, not its type: the repr of numpy's int64(7) is not "7" and depends on the version.
    parts = tuple(part if isinstance(part, str) else index(part) for part in (seed, *address))
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()


class _Key(ISeedSequence):
    """Passes a digest to a bit generator unchanged; numpy's own seeding would first ask the system for entropy."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        return np.frombuffer(self._digest, dtype=dtype)[:n_words]


def derive(seed: SupportsIndex, *address: str | SupportsIndex) -> int:
    """Return the 63-bit seed of an address, for libraries that take a number.

    >>> derive(0, "model", 7) == derive(0, "model", 7) != derive(0, "model", 8)
    True
    """
    return int.from_bytes(_digest(seed, address)[:8], "little") >> 1


def generator(seed: SupportsIndex, *address: str | SupportsIndex) -> np.random.Generator:
    """Return a new generator for an address. Its key has 128 bits, so that different addresses do not collide.

    >>> float(generator(0, "order", 3).random()) == float(generator(0, "order", 3).random())
    True
    """
    key: Any = _Key(_digest(seed, address))  # numpy accepts any ISeedSequence; its type annotations do not
    return np.random.Generator(np.random.Philox(key))
