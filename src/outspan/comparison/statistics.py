"""Statistics over seeds: the mean, the standard deviation, and whether a difference between policies is significant."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# 97.5 % quantiles of Student's t for 1 to 10 degrees of freedom. The last one is also used for more.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class Difference:
    """The lead of one policy over another, with the same seeds."""

    better: str
    worse: str
    mean: float  # of the differences by seed, at least 0
    margin: float | None  # half the width of the 95 % confidence interval; None for one seed

    @property
    def significant(self) -> bool:
        """Whether 0 lies outside the confidence interval."""
        return self.margin is not None and self.mean > self.margin

    def __str__(self) -> str:
        """Return the difference in points, e.g. "1.20 ± 0.40 points"."""
        margin = "" if self.margin is None else f" ± {100 * self.margin:.2f}"
        return f"{100 * self.mean:.2f}{margin} points"


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation, which is 0 for a single value.

    >>> mean_and_std([1.0, 2.0, 3.0])
    (2.0, 1.0)
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def compute_differences(accuracies: Mapping[str, Sequence[float]]) -> list[Difference]:
    """Return the difference of every two policies, paired by seed: first those of the best policy, then of the second, …

    The confidence interval is that of Student's t for the differences by seed. It is not corrected for the number of pairs.

    Args:
        accuracies: The accuracy for each seed, by policy. The seeds of all policies are the same.
    """
    ranked = sorted(accuracies, key=lambda name: -statistics.fmean(accuracies[name]))
    differences = []
    for better, worse in itertools.combinations(ranked, 2):
        by_seed = [a - b for a, b in zip(accuracies[better], accuracies[worse], strict=True)]
        mean, std = mean_and_std(by_seed)
        margin = _T[min(len(by_seed) - 1, len(_T)) - 1] * std / len(by_seed) ** 0.5 if len(by_seed) > 1 else None
        differences.append(Difference(better, worse, max(mean, 0.0), margin))
    return differences


def describe_lead(accuracies: Mapping[str, Sequence[float]]) -> list[str]:
    """Return lines that compare the best policy with each other one, and say which to use.

    Args:
        accuracies: The test accuracy for each seed, by policy.
    """
    if len(accuracies) < 2:
        return ["Only one policy: nothing to compare."]
    differences = compute_differences(accuracies)[: len(accuracies) - 1]  # those of the best policy
    best = differences[0].better
    if differences[0].margin is None:
        unknown = "With one seed per policy the significance is unknown."
        return [f"{_describe_first(differences[0])} {unknown}", *_describe_trailing(differences[1:])]
    level = [f"`{one.worse}`" for one in differences if not one.significant]
    seeds = len(accuracies[best])
    if level:
        advice = f"Use `{best}` or {' or '.join(level)}: they are not significantly different with {seeds} seeds."
    else:
        advice = f"Use `{best}`: it is significantly better than all others."
    return [_describe_first(differences[0]), *_describe_trailing(differences[1:]), advice]


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
    return " (significant)." if difference.significant else " (not significant)."


def describe_chance(accuracies: Mapping[str, Sequence[float]], chance: float) -> str:
    """Return one line that names the policies whose mean accuracy is not above `chance`, or "" if there are none.

    Args:
        accuracies: The test accuracies over seeds, by policy.
        chance: The accuracy of always predicting the most frequent class of the test split.
    """
    names = [f"`{name}`" for name, values in accuracies.items() if mean_and_std(values)[0] <= chance]
    return f"Not above the majority-class baseline ({100 * chance:.2f} %): {', '.join(names)}." if names else ""
