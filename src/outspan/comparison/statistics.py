"""Statistics over seeds: the mean, the standard deviation, and whether a difference is significant."""

import statistics
from collections.abc import Mapping, Sequence

# 97.5 % quantiles of Student's t for 1 to 10 degrees of freedom. The last one is also used for more.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation, which is 0 for a single value.

    >>> mean_and_std([1.0, 2.0, 3.0])
    (2.0, 1.0)
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def describe_lead(accuracies: Mapping[str, Sequence[float]]) -> str:
    """Return one line that names the best policy, its lead over the second, and whether the lead is significant.

    Args:
        accuracies: The test accuracies over seeds, by policy.
    """
    ranked = sorted(accuracies, key=lambda name: -mean_and_std(accuracies[name])[0])
    if len(ranked) < 2:
        return "Only one policy: nothing to compare."
    (best, best_std), (second, second_std) = (mean_and_std(accuracies[name]) for name in ranked[:2])
    count = min(len(accuracies[name]) for name in ranked[:2])
    lead = f"{ranked[0]} leads {ranked[1]} by {100 * (best - second):.2f} points"
    if count < 2:
        return f"{lead}. With one seed per policy the significance is unknown."
    margin = _T[min(2 * (count - 1), len(_T)) - 1] * ((best_std**2 + second_std**2) / count) ** 0.5
    if best - second > margin:
        return f"{lead}. The difference is significant (95 % margin: {100 * margin:.2f} points)."
    return f"{lead}. The difference is not significant with {count} seeds (95 % margin: {100 * margin:.2f} points)."


def describe_chance(accuracies: Mapping[str, Sequence[float]], chance: float) -> str:
    """Return one line that names the policies whose mean accuracy is not above `chance`, or "" if there are none.

    Args:
        accuracies: The test accuracies over seeds, by policy.
        chance: The accuracy of always predicting the most frequent class of the test split.
    """
    names = [f"`{name}`" for name, values in accuracies.items() if mean_and_std(values)[0] <= chance]
    return f"Not above the majority-class baseline ({100 * chance:.2f} %): {', '.join(names)}." if names else ""
