"""Statistics over seeds or folds: mean, standard deviation, and whether a difference between policies is significant."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_LEVEL = 0.05  # of significance
_EQUAL = 1e-9  # standard error below which the differences of all seeds are equal, apart from rounding


@dataclass(frozen=True)
class Difference:
    """The lead of one policy over another, with the same seeds or folds."""

    better: str
    worse: str
    mean: float  # of the differences by seed or fold, at least 0
    margin: float | None  # half the width of the 95 % confidence interval of this difference alone; None for one seed
    p: float | None  # of a paired t-test, corrected for the number of differences; None for one seed, or if all are equal

    @property
    def significant(self) -> bool:
        """Whether the corrected p-value is below 5 %."""
        return self.p is not None and self.p < _LEVEL

    def __str__(self) -> str:
        """Return the difference in points, e.g. "1.20 ± 0.40 points"."""
        margin = f" ± {100 * self.margin:.2f}" if self.margin else ""
        return f"{100 * self.mean:.2f}{margin} points"


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation, which is 0 for a single value.

    >>> mean_and_std([1.0, 2.0, 3.0])
    (2.0, 1.0)
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def compute_differences(accuracies: Mapping[str, Sequence[float]], *, unit: str = "seed") -> list[Difference]:
    """Return the difference of every two policies, paired by seed: first those of the best policy, then of the second, …

    The p-values are those of Student's t for the differences by seed, with Holm's correction for all pairs. The pairs with
    the best policy alone would not be enough, because the best policy was chosen among all.

    The models of K folds share training samples, so their differences are not independent. With `unit` "fold", the variance of
    the mean is s² (1/K + 1/(K - 1)) instead of s²/K: Nadeau and Bengio's correction (Machine Learning 52, 2003).

    If a difference is the same for every seed, its p-value is None. Accuracies are multiples of 1/(test samples), so a few
    seeds often give the same difference by chance. A variance of 0 would make every such difference significant.

    Args:
        accuracies: The accuracy for each seed or fold, by policy. The seeds of all policies are the same.
        unit: What the accuracies of a policy are of: "seed" or "fold".
    """
    ranked = sorted(accuracies, key=lambda name: -statistics.fmean(accuracies[name]))
    pairs = list(itertools.combinations(ranked, 2))
    by_seed = [[a - b for a, b in zip(accuracies[better], accuracies[worse], strict=True)] for better, worse in pairs]
    means = [max(statistics.fmean(values), 0.0) for values in by_seed]
    if min(map(len, by_seed), default=0) < 2:
        return [Difference(*pair, mean, None, None) for pair, mean in zip(pairs, means, strict=True)]
    freedom = len(by_seed[0]) - 1
    shared = 1 / freedom if unit == "fold" else 0.0
    # The standard errors of the means.
    errors = [mean_and_std(values)[1] * (1 / len(values) + shared) ** 0.5 for values in by_seed]
    errors = [error if error > _EQUAL else 0.0 for error in errors]
    ratios = [mean / error if error else 0.0 for mean, error in zip(means, errors, strict=True)]
    p_values = correct_p_values([compute_p_value(t, freedom) for t in ratios])
    quantile = _find_quantile(freedom)
    rows = zip(pairs, means, errors, p_values, strict=True)
    return [Difference(*pair, mean, quantile * error, p if error else None) for pair, mean, error, p in rows]


def compute_p_value(t: float, freedom: int) -> float:
    """Return the two-sided p-value of Student's t, exact for whole degrees of freedom (Abramowitz & Stegun 26.7.3, 26.7.4).

    >>> round(compute_p_value(4.303, 2), 4)
    0.05
    """
    angle, odd = math.atan(t / math.sqrt(freedom)), freedom % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= math.cos(angle) ** 2 * k / (k + 1)
    inside = math.sin(angle) * total
    return max(0.0, 1.0 - (2 / math.pi * (angle + inside) if odd else inside))


def _find_quantile(freedom: int) -> float:
    """Return the t whose two-sided p-value is 5 %."""
    low, high = 0.0, 13.0  # it is 12.706 for one degree of freedom, and smaller for more
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if compute_p_value(middle, freedom) > _LEVEL else (low, middle)
    return high


def correct_p_values(p_values: Sequence[float]) -> list[float]:
    """Return p-values with Holm's correction: the smallest of n times n, the next times n - 1, …, and never decreasing.

    >>> correct_p_values([0.02, 0.5, 0.01])
    [0.04, 0.5, 0.03]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


def describe_lead(
    accuracies: Mapping[str, Sequence[float]], *, step_seconds: Mapping[str, float] | None, unit: str = "seed"
) -> list[str]:
    """Return lines that compare the best policy with each other one, and say which to use.

    Args:
        accuracies: The test accuracy for each seed or fold, by policy.
        step_seconds: The training time per step, by policy: of policies that are not significantly different, the cheapest one
            is recommended. None if all trained for the same time: then the best one is.
        unit: "seed" or "fold".
    """
    if len(accuracies) < 2:
        return ["Only one policy: nothing to compare."]
    differences = compute_differences(accuracies, unit=unit)[: len(accuracies) - 1]  # those of the best policy
    best = differences[0].better
    if differences[0].margin is None:
        unknown = "With one seed per policy the significance is unknown."
        return [f"{_describe_first(differences[0])} {unknown}", *_describe_trailing(differences[1:])]
    level = [best, *(one.worse for one in differences if not one.significant)]
    lines = [_describe_first(differences[0]), *_describe_trailing(differences[1:])]
    if len(level) == 1:
        return [*lines, f"Use `{best}`: it is significantly better than all others."]
    names, count = [f"`{name}`" for name in level], len(accuracies[best])
    use = best if step_seconds is None else min(level, key=step_seconds.__getitem__)
    merit = "its mean is the best for this time" if step_seconds is None else "its steps are the cheapest"
    why = f"{', '.join(names[:-1])} and {names[-1]} are not significantly different with {count} {unit}s, and {merit}."
    more = f"`--seeds {max(5, 2 * count)}`: finished runs are not repeated" if unit == "seed" else f"more {unit}s"
    return [*lines, f"Use `{use}`: {why}", f"For a clearer answer run the same command with {more}."]


def _describe_first(first: Difference) -> str:
    return _describe_equal(first) or f"`{first.better}` leads `{first.worse}` by {first}{_verdict(first)}"


def _describe_trailing(differences: Sequence[Difference]) -> list[str]:
    return [_describe_equal(one) or f"`{one.worse}` trails `{one.better}` by {one}{_verdict(one)}" for one in differences]


def _describe_equal(one: Difference) -> str:
    """Return a sentence for two policies whose means are equal in hundredths of a point, and "" for others."""
    if round(100 * one.mean, 2):
        return ""
    return f"`{one.better}` and `{one.worse}` are equal{f' ({one})' if one.margin else ''}."


def _verdict(difference: Difference) -> str:
    if difference.margin is None:
        return "."
    if difference.p is None:
        return " with every seed. Equal differences do not show whether it is significant."
    return " (significant)." if difference.significant else " (not significant)."


def describe_chance(accuracies: Mapping[str, Sequence[float]], chance: float) -> str:
    """Return one line that names the policies whose mean accuracy is not above `chance`, or "" if there are none.

    Args:
        accuracies: The test accuracies over seeds, by policy.
        chance: The accuracy of always predicting the most frequent class of the test split.
    """
    names = [f"`{name}`" for name, values in accuracies.items() if mean_and_std(values)[0] <= chance]
    return f"Not above the majority-class baseline ({100 * chance:.2f} %): {', '.join(names)}." if names else ""
