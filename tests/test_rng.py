"""Random generators that depend only on a seed and a name."""

import hashlib

import jaxtyping
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outspan import rng

addresses = st.lists(st.one_of(st.integers(-5, 5), st.text(max_size=3)), max_size=3)


@given(seed=st.integers(0, 3), a=addresses, b=addresses)
def test_only_equal_addresses_give_equal_numbers(seed, a, b):
    first, again = rng.generator(seed, *a).random(8), rng.generator(seed, *a).random(8)
    assert np.array_equal(first, again)
    assert np.array_equal(first, rng.generator(seed, *b).random(8)) == (a == b)
    assert (rng.derive(seed, *a) == rng.derive(seed, *b)) == (a == b)


def test_parts_of_an_address_are_separated():
    assert rng.derive(0, "a", "b") != rng.derive(0, "ab")
    assert rng.derive(1, 23) != rng.derive(12, 3)
    assert rng.derive(0, 1) != rng.derive(0, "1")


def test_equal_numbers_of_different_types_are_the_same_address():
    assert rng.derive(np.int64(3), np.int32(7)) == rng.derive(3, 7)
    with pytest.raises((TypeError, jaxtyping.TypeCheckError)):
        rng.derive(0, 1.5)  # pyright: ignore[reportArgumentType]


def test_derive_returns_a_valid_seed_of_torch():
    assert all(0 <= rng.derive(0, i) < 2**63 for i in range(100))


def test_draws_are_uniform():
    draws = np.concatenate([rng.generator(0, "step", i).random(16) for i in range(2000)])
    counts = np.histogram(draws, bins=20, range=(0, 1))[0]
    chi2 = ((counts - 1600) ** 2 / 1600).sum()
    assert chi2 < 50  # 19 degrees of freedom: p < 2e-4


def test_the_stream_is_philox_keyed_with_blake2b():
    """Computed by hand: a change of the stream would change the results of every stored seed."""
    digest = hashlib.blake2b(b"(7, 'order', 3)", digest_size=16).digest()
    by_hand = np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
    assert np.array_equal(rng.generator(7, "order", 3).random(8), by_hand.random(8))
    assert rng.derive(7, "order", 3) == int.from_bytes(digest[:8], "little") // 2
