"""Several runs side by side: what each policy came to over its seeds."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from matplotlib.figure import Figure

from outspan.config import Recipe
from outspan.training.loop import Summary

# Student's t at 97.5 % for 1 to 10 degrees of freedom; more are taken for 10.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation, 0 of a single value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def numbers(recipe: Recipe, runs: Mapping[str, Sequence[Summary]]) -> dict[str, Any]:
    """Return what a comparison came to: the shared recipe, and each policy's accuracies by seed, their mean and std."""
    shared = {key: value for key, value in asdict(recipe).items() if key not in ("policy", "seed")}
    policies = {}
    for name, summaries in runs.items():
        accuracies = [run.accuracy for run in summaries]
        mean, std = spread(accuracies)
        seconds = spread([run.seconds for run in summaries])[0]
        policies[name] = {"test_accuracy": accuracies, "mean": mean, "std": std, "seconds": round(seconds, 1)}
    return {"recipe": shared, "seeds": list(range(max(map(len, runs.values())))), "policies": policies}


def read_honestly(runs: Mapping[str, Sequence[Summary]]) -> str:
    """Say in one line which policy came out ahead, and whether its lead is more than its noise."""
    ranked = sorted(runs, key=lambda name: -spread([run.accuracy for run in runs[name]])[0])
    if len(ranked) < 2:
        return "Only one policy: nothing to compare."
    (best, wide), (second, narrow) = (spread([run.accuracy for run in runs[name]]) for name in ranked[:2])
    count = min(len(runs[name]) for name in ranked[:2])
    lead = f"{ranked[0]} leads {ranked[1]} by {100 * (best - second):.2f} points"
    if count < 2:
        return f"{lead}. With one seed per policy the significance is unknown."
    noise = _T[min(2 * (count - 1), len(_T)) - 1] * ((wide**2 + narrow**2) / count) ** 0.5
    if best - second > noise:
        return f"{lead}. The difference is significant (95 % margin: {100 * noise:.2f} points)."
    return f"{lead}. The difference is not significant with {count} seeds (95 % margin: {100 * noise:.2f} points)."


def said_of_chance(runs: Mapping[str, Sequence[Summary]]) -> str:
    """Say which policies taught the model nothing: it is right no more often than always naming the largest class."""
    names = [name for name, some in runs.items() if spread([run.accuracy for run in some])[0] <= some[0].chance]
    if not names:
        return ""
    chance = max(some[0].chance for some in runs.values())
    return f"Not above the majority-class baseline ({100 * chance:.2f} %): {', '.join(names)}."


def compare_figure(runs: Mapping[str, Sequence[Summary]]) -> Figure:
    """Return the test accuracy over the epochs, a line a policy with its seeds as a band."""
    figure = Figure(figsize=(8, 4.5), dpi=150, facecolor="white", layout="constrained")
    axis = figure.subplots()
    for name, summaries in runs.items():
        curves = [[100 * row["test_accuracy"] for row in run.metrics] for run in summaries]
        epochs = range(1, len(curves[0]) + 1)
        middle = [statistics.fmean(column) for column in zip(*curves, strict=True)]
        (line,) = axis.plot(epochs, middle, label=name)
        low, high = ([end(column) for column in zip(*curves, strict=True)] for end in (min, max))
        axis.fill_between(epochs, low, high, alpha=0.2, color=line.get_color())
    axis.set_xlabel("epoch")
    axis.set_ylabel("test accuracy, %")
    finals = [100 * run.accuracy for summaries in runs.values() for run in summaries]
    axis.set_ylim(min(finals) - 4, min(100.0, max(finals) + 1))
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    return figure
