"""Parts of the benchmarks that decide whether their comparisons are fair."""

import importlib
from pathlib import Path

import numpy as np

from outspan import rng

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_no_group_is_in_two_parts_of_the_data_that_auto_has_not_seen(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    unseen_data = importlib.import_module("unseen_data")
    groups = [f"group {number}" for number in rng.generator(0, "groups").integers(0, 200, 1_000)]
    parts = [rows.tolist() for rows in unseen_data.split_groups(groups)]
    assert sorted(row for rows in parts for row in rows) == list(range(1_000))  # every row once
    names = [{groups[row] for row in rows} for rows in parts]
    assert sum(map(len, names)) == len(set(groups))  # every group once
    np.testing.assert_allclose([len(part) / len(set(groups)) for part in names], unseen_data.PARTS, atol=0.01)
