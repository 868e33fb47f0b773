"""Statistics over seeds."""

import numpy as np
import pytest

from outspan.comparison.statistics import describe_chance, describe_lead, mean_and_std


def test_mean_and_std_by_hand():
    assert mean_and_std([1.0, 2.0, 3.0]) == (2.0, 1.0)
    assert mean_and_std([4.0]) == (4.0, 0.0)


def test_a_lead_is_significant_only_beyond_its_margin():
    clear = {"none": [0.90, 0.91, 0.92], "uncertain": [0.95, 0.96, 0.97]}
    assert describe_lead(clear) == (
        "uncertain leads none by 5.00 points. The difference is significant (95 % margin: 2.27 points)."
    )
    close = {"none": [0.90, 0.95, 0.92], "uncertain": [0.93, 0.91, 0.96]}
    assert "The difference is not significant with 3 seeds" in describe_lead(close)
    assert "With one seed per policy the significance is unknown" in describe_lead({"none": [0.9], "uncertain": [0.95]})
    assert describe_lead({"none": [0.9]}) == "Only one policy: nothing to compare."


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_equal_policies_differ_significantly_once_in_twenty(seeds):
    draw = np.random.Generator(np.random.Philox(seeds))
    drawn = draw.normal(0.9, 0.01, (2000, 2, seeds))
    claims = ["The difference is significant" in describe_lead({"a": one, "b": other}) for one, other in drawn.tolist()]
    assert 0.025 < np.mean(claims) < 0.065


def test_the_order_of_policies_does_not_matter():
    a, b = [0.90, 0.91], [0.95, 0.96]
    assert describe_lead({"a": a, "b": b}) == describe_lead({"b": b, "a": a})


def test_policies_that_learned_nothing_are_named():
    assert describe_chance({"none": [0.51, 0.5], "random": [0.9, 0.8]}, 0.5) == ""
    accuracies = {"none": [0.5, 0.4], "random": [0.9, 0.8], "uncertain": [0.5, 0.5]}
    assert describe_chance(accuracies, 0.5) == "Not above the majority-class baseline (50.00 %): `none`, `uncertain`."
