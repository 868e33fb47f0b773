"""Comparing runs."""

import numpy as np
import pytest

from outspan.figures.compare import read_honestly, said_of_chance, spread
from outspan.training.loop import Summary


def runs(*accuracies: float) -> list[Summary]:
    return [Summary(accuracy, 0.0, 1, 1.0, 0.5, []) for accuracy in accuracies]


def test_spread_by_hand():
    assert spread([1.0, 2.0, 3.0]) == (2.0, 1.0)
    assert spread([4.0]) == (4.0, 0.0)


def test_a_lead_is_called_one_only_beyond_its_noise():
    clear = {"none": runs(0.90, 0.91, 0.92), "uncertain": runs(0.95, 0.96, 0.97)}
    assert read_honestly(clear) == (
        "uncertain leads none by 5.00 points. The difference is significant (95 % margin: 2.27 points)."
    )
    close = {"none": runs(0.90, 0.95, 0.92), "uncertain": runs(0.93, 0.91, 0.96)}
    assert "The difference is not significant with 3 seeds" in read_honestly(close)
    assert "With one seed per policy the significance is unknown" in read_honestly({"none": runs(0.9), "uncertain": runs(0.95)})
    assert read_honestly({"none": runs(0.9)}) == "Only one policy: nothing to compare."


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_equal_policies_are_told_apart_once_in_twenty(seeds):
    draw = np.random.Generator(np.random.Philox(seeds))
    drawn = draw.normal(0.9, 0.01, (2000, 2, seeds))
    claims = [
        "The difference is significant" in read_honestly({"a": runs(*one), "b": runs(*other)}) for one, other in drawn.tolist()
    ]
    assert 0.025 < np.mean(claims) < 0.065


def test_the_order_of_policies_does_not_matter():
    a, b = runs(0.90, 0.91), runs(0.95, 0.96)
    assert read_honestly({"a": a, "b": b}) == read_honestly({"b": b, "a": a})
    assert pytest.approx(0.005, abs=1e-9) == spread([0.95, 0.96])[0] - 0.95


def test_what_learnt_nothing_is_named():
    assert said_of_chance({"none": runs(0.51, 0.5), "random": runs(0.9, 0.8)}) == ""
    said = said_of_chance({"none": runs(0.5, 0.4), "random": runs(0.9, 0.8), "uncertain": runs(0.5, 0.5)})
    assert said == "Not above the majority-class baseline (50.00 %): none, uncertain."
