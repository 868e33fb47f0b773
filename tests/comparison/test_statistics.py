"""Statistics over seeds."""

import itertools
import math

import numpy as np
import pytest

from outspan.comparison.statistics import (
    compute_differences,
    compute_p_value,
    correct_p_values,
    describe_chance,
    describe_lead,
    mean_and_std,
)


def test_mean_and_std_by_hand():
    assert mean_and_std([1.0, 2.0, 3.0]) == (2.0, 1.0)
    assert mean_and_std([4.0]) == (4.0, 0.0)


COSTS = {"none": 1.0, "baseline": 1.5, "random": 2.0, "uncertain": 4.0}


def test_a_lead_is_significant_only_beyond_its_margin():
    clear = {"none": [0.90, 0.91, 0.92], "uncertain": [0.95, 0.97, 0.97]}
    assert describe_lead(clear, step_seconds=COSTS) == [
        "`uncertain` leads `none` by 5.33 ± 1.43 points (significant).",
        "Use `uncertain`: it is significantly better than all others.",
    ]
    close = {"none": [0.90, 0.95, 0.92], "uncertain": [0.93, 0.91, 0.96], "random": [0.5, 0.51, 0.5]}
    assert describe_lead(close, step_seconds=COSTS) == [
        "`uncertain` leads `none` by 1.00 ± 10.83 points (not significant).",
        "`random` trails `uncertain` by 43.00 ± 7.45 points (significant).",
        "Use `none`: `uncertain` and `none` are not significantly different with 3 seeds, and its steps are the cheapest.",
        "For a clearer answer run the same command with `--seeds 6`: finished runs are not repeated.",
    ]
    assert describe_lead(close, step_seconds=None)[2] == (
        "Use `uncertain`: `uncertain` and `none` are not significantly different with 3 seeds, and its mean is the best for "
        "this time."
    )
    assert describe_lead({"none": [0.9], "uncertain": [0.95], "random": [0.8]}, step_seconds=COSTS) == [
        "`uncertain` leads `none` by 5.00 points. With one seed per policy the significance is unknown.",
        "`random` trails `uncertain` by 15.00 points.",
    ]
    equal = {"none": [0.9, 0.8], "baseline": [0.9, 0.8], "random": [0.8, 0.9]}
    assert describe_lead(equal, step_seconds={**COSTS, "random": 0.5}, unit="fold") == [
        "`none` and `baseline` are equal.",
        "`none` and `random` are equal (0.00 ± 220.08 points).",
        "Use `random`: `none`, `baseline` and `random` are not significantly different with 2 folds, and its steps are the "
        "cheapest.",
        "For a clearer answer run the same command with more folds.",
    ]
    assert describe_lead({"none": [0.9]}, step_seconds=COSTS) == ["Only one policy: nothing to compare."]


@pytest.mark.parametrize("seeds", [2, 3, 8, 20])
def test_equal_policies_differ_significantly_in_five_percent_of_cases(seeds):
    draw = np.random.Generator(np.random.Philox(seeds))
    drawn = draw.normal(0.9, 0.01, (2000, 2, seeds))
    claims = [compute_differences({"a": one, "b": other})[0].significant for one, other in drawn.tolist()]
    assert 0.025 < np.mean(claims) < 0.065


def test_the_margin_is_computed_by_a_paired_t_test():
    """By hand: the differences 1, 2, 3 have mean 2 and standard deviation 1, and t is 4.30265 for 2 degrees of freedom."""
    (difference,) = compute_differences({"a": [0.0, 10.0, 5.0], "b": [1.0, 12.0, 8.0]})
    assert (difference.better, difference.worse) == ("b", "a")
    assert difference.mean == pytest.approx(2)
    assert difference.margin == pytest.approx(4.30265 / 3**0.5)
    t = 2 * 3**0.5
    assert difference.p == pytest.approx(1 - t / (2 + t * t) ** 0.5)  # the closed form for 2 degrees of freedom
    assert not difference.significant


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 10, 19, 30])
def test_p_values_are_the_integral_of_the_density(freedom):
    scale = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))
    for t in (0.0, 0.5, 2.0, 4.0, 12.0):
        x = (np.arange(20_000) + 0.5) / 20_000 * t
        inside = t * np.mean(scale * (1 + x * x / freedom) ** (-(freedom + 1) / 2))
        assert compute_p_value(t, freedom) == pytest.approx(1 - 2 * inside, abs=1e-8)
    assert compute_p_value(math.inf, freedom) == pytest.approx(0, abs=1e-12)


def test_holm_is_the_closure_of_bonferroni():
    """A hypothesis is rejected if Bonferroni rejects every set of hypotheses that contains it (Marcus et al., 1976)."""
    draw = np.random.Generator(np.random.Philox(3))
    for count in (1, 2, 5):
        values = (draw.random(count) ** 3).tolist()
        sets = [one for size in range(1, count + 1) for one in itertools.combinations(range(count), size)]
        bonferroni = {one: min(1.0, len(one) * min(values[i] for i in one)) for one in sets}
        expected = [max(p for one, p in bonferroni.items() if i in one) for i in range(count)]
        assert correct_p_values(values) == pytest.approx(expected)


@pytest.mark.parametrize(("policies", "seeds"), [(3, 3), (8, 3), (8, 5)])
def test_equal_policies_have_a_significant_difference_in_five_percent_of_comparisons(policies, seeds):
    """Without a correction it is 42 % of the comparisons of 8 policies with 3 seeds."""
    drawn = np.random.Generator(np.random.Philox(seeds)).normal(0.9, 0.01, (400, policies, seeds))
    costs = {str(i): 1.0 for i in range(policies)}
    lines = [describe_lead({str(i): v for i, v in enumerate(one)}, step_seconds=costs) for one in drawn.tolist()]
    false = np.mean([any("(significant)" in line for line in one) for one in lines])
    assert 0.01 < false < 0.08


def test_a_common_offset_of_a_seed_does_not_count():
    """The accuracies differ much more between seeds than between policies."""
    levels = np.random.Generator(np.random.Philox(0)).normal(0.8, 0.05, 3)
    (difference,) = compute_differences({"a": levels.tolist(), "b": (levels + np.array([0.010, 0.011, 0.012])).tolist()})
    assert difference.significant


def test_every_pair_of_policies_is_compared():
    pairs = compute_differences({"a": [1.0, 1.0], "b": [3.0, 3.0], "c": [2.0, 2.0]})
    assert [(pair.better, pair.worse) for pair in pairs] == [("b", "c"), ("b", "a"), ("c", "a")]


def test_the_order_of_policies_does_not_matter():
    a, b = [0.90, 0.91], [0.95, 0.96]
    costs = {"a": 1.0, "b": 2.0}
    assert describe_lead({"a": a, "b": b}, step_seconds=costs) == describe_lead({"b": b, "a": a}, step_seconds=costs)


def test_equal_differences_are_not_called_significant():
    """Accuracies on 1,000 samples are multiples of 0.001, so two seeds often have the same difference by chance."""
    none, random = [0.82, 0.81], [0.80, 0.79]
    assert none[0] - random[0] != none[1] - random[1]  # they differ by rounding only
    (difference,) = compute_differences({"none": none, "random": random})
    assert (difference.margin, difference.p, difference.significant) == (0.0, None, False)
    first, use, _ = describe_lead({"none": none, "random": random}, step_seconds=COSTS)
    assert first == (
        "`none` leads `random` by 2.00 points with every seed. Equal differences do not show whether it is significant."
    )
    assert use.startswith("Use `none`: `none` and `random` are not significantly different")
    # With few test samples, seeds of two equal policies often have equal differences.
    drawn = np.random.Generator(np.random.Philox(1)).binomial(20, 0.9, (2000, 2, 2)) / 20
    claims = [compute_differences({"a": one, "b": other})[0].significant for one, other in drawn.tolist()]
    assert np.mean(claims) < 0.05


def test_policies_that_learned_nothing_are_named():
    assert describe_chance({"none": [0.51, 0.5], "random": [0.9, 0.8]}, 0.5) == ""
    accuracies = {"none": [0.5, 0.4], "random": [0.9, 0.8], "uncertain": [0.5, 0.5]}
    assert describe_chance(accuracies, 0.5) == "Not above the majority-class baseline (50.00 %): `none`, `uncertain`."
