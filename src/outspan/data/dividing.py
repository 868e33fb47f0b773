"""Divide data without a test split by the name of each sample, so that no sample changes its split when others are added."""

from collections.abc import Hashable, Sequence

from outspan.rng import derive

_TEST_DIVISOR = 5  # about one sample in five is for testing


def pick_test_rows(names: Sequence[str], classes: Sequence[Hashable]) -> set[int]:
    """Return the rows of an undivided data set that are for testing: about a fifth, each picked by its own name.

    If all rows of a class would be picked, the class stays in train. If no row would be picked, one row is picked.
    """
    draws = [derive(0, "test", name) for name in names]
    members: dict[Hashable, list[int]] = {}
    for row, name in enumerate(classes):
        members.setdefault(name, []).append(row)
    picked = [(rows, {row for row in rows if draws[row] % _TEST_DIVISOR == 0}) for rows in members.values()]
    result = {row for rows, test in picked if len(test) < len(rows) for row in test}
    divisible = [row for rows in members.values() if len(rows) > 1 for row in rows]
    return result or {min(divisible, key=lambda row: draws[row])} if divisible else set()
