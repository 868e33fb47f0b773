"""Margins, by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outspan.measurement.margins import compute_margins, histogram


def test_margins_by_hand():
    logits = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.45, 0.45]]).log()
    assert compute_margins(logits).tolist() == pytest.approx([0.5, 0.0], abs=1e-6)
    assert compute_margins(torch.zeros(2, 1)).tolist() == [1.0, 1.0]


@given(st.lists(st.lists(st.floats(-1e4, 1e4, width=32), min_size=4, max_size=4), max_size=5))
def test_margins_are_between_zero_and_one(rows):
    result = compute_margins(torch.tensor(rows).reshape(-1, 4))
    assert result.shape == (len(rows),)
    assert ((result >= 0) & (result <= 1)).all()


def test_histogram():
    assert histogram(torch.tensor([0.0, 0.05, 0.1, 0.55, 1.0])) == [2, 1, 0, 0, 0, 1, 0, 0, 0, 1]
    assert histogram(torch.tensor([])) == [0] * 10
