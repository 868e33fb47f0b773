"""The result of a comparison: the runs of each policy, at one or several budgets."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from outspan.comparison.statistics import Difference, compute_differences, describe_chance, describe_lead, mean_and_std
from outspan.config import Recipe
from outspan.figures.markup import display, figure_bytes
from outspan.files import write_json
from outspan.messages import show_seconds
from outspan.training.run import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE = "comparison.json"
BUDGET_PREFIX = "budget-"  # of the folders of the runs of other budgets than the first
_TOLERANCE = 1.1  # of the longest training time to the shortest one


@dataclass(frozen=True)
class PolicyResult:
    """The runs of one policy with one budget."""

    accuracies: tuple[float, ...]  # on the test split after the last step, by seed or fold
    values: tuple[float, ...]  # of the metric of the comparison, by seed or fold; the accuracies by default
    mean: float  # of the values
    std: float  # the sample standard deviation over seeds or folds, 0 for one seed
    steps: int
    epochs: float
    seconds: float  # mean training time of a run, without evaluation
    curves: tuple[tuple[float, ...], ...] = field(repr=False)  # the test accuracy after each epoch, by seed or fold
    evaluated: tuple[int, ...] = field(repr=False)  # the steps after which it was computed


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`: the test accuracies of each policy, with the same recipe and the same seeds."""

    recipe: Recipe = field(repr=False)  # its policy and seed are not used
    budgets: Mapping[float, Mapping[str, PolicyResult]]  # by multiple of the recipe's length, and policy
    chance: float  # the accuracy of always predicting the most frequent class of the test split
    equal: str = "epochs"  # what all policies have in common: "epochs" or "time"
    metric: str = "accuracy"  # by which policies are compared, on the test split

    @property
    def unit(self) -> str:
        """What the runs of a policy differ in: "seed", or "fold" in a cross-validation."""
        return "fold" if self.recipe.folds else "seed"

    @property
    def policies(self) -> Mapping[str, PolicyResult]:
        """The results at the largest budget, by policy."""
        return self.budgets[max(self.budgets)]

    @property
    def differences(self) -> list[Difference]:
        """The difference of every two policies at the largest budget, paired by seed or fold."""
        return compute_differences({name: result.values for name, result in self.policies.items()}, unit=self.unit)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Sentences about the largest budget: which policy leads and which trail, by how much, and which to use."""
        accuracies = {name: result.accuracies for name, result in self.policies.items()}
        values = {name: result.values for name, result in self.policies.items()}
        budget = f"At budget {max(self.budgets):g}:" if len(self.budgets) > 1 else ""
        metric = f"By {self.metric}:" if self.metric != "accuracy" else ""
        costs = {name: result.seconds / max(result.steps, 1) for name, result in self.policies.items()}
        lead = describe_lead(values, step_seconds=None if self.equal == "time" else costs, unit=self.unit)
        lines = (budget, metric, *lead, describe_chance(accuracies, self.chance))
        return tuple(line for line in lines if line)

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each budget at which the policies did not train for the same time, although they should."""
        lines = []
        for multiple, results in sorted(self.budgets.items()):
            seconds = [result.seconds for result in results.values()]
            if self.equal == "time" and max(seconds) > _TOLERANCE * min(seconds):
                begin = f"At budget {multiple:g} the" if len(self.budgets) > 1 else "The"
                listed = ", ".join(f"`{name}` {result.seconds:.3g} s" for name, result in results.items())
                how = "Repeat it in another folder while no other program runs, or with more time"
                lines.append(f"{begin} training times differ by more than 10 % ({listed}): not a fair comparison. {how}.")
        return tuple(lines)

    def as_dict(self) -> dict[str, object]:
        """Return what comparison.json contains."""
        shared = {key: value for key, value in asdict(self.recipe).items() if key not in ("policy", "seed")}
        count = max(len(result.accuracies) for result in self.policies.values())
        return {
            "recipe": shared,
            "equal": self.equal,
            "metric": self.metric,
            "chance": self.chance,
            "seeds": list(range(count)),
            "policies": _as_dict(self.policies, self.metric),
            "budgets": {f"{multiple:g}": _as_dict(results, self.metric) for multiple, results in self.budgets.items()},
            "warnings": list(self.warnings),
            "differences": [asdict(one) | {"significant": one.significant} for one in self.differences],
        }

    def save(self, folder: Path) -> None:
        """Write comparison.json into a folder."""
        write_json(folder / FILE, self.as_dict())

    def figure(self) -> "Figure":
        """Return a figure of the test accuracy of each policy against epochs and seconds, at the largest budget."""
        from outspan.figures.compare import Curves, compare_figure

        curves = {}
        for name, result in self.policies.items():
            fractions = [step / result.steps for step in result.evaluated]
            epochs, seconds = ([total * fraction for fraction in fractions] for total in (result.epochs, result.seconds))
            curves[name] = Curves(result.curves, epochs, seconds)
        seconds = statistics.fmean(result.seconds for result in self.policies.values())
        return compare_figure(curves, f"{self._subject(seconds)}; mean and range over {self.unit}s")

    def frontier(self) -> "Figure":
        """Return a figure of the test accuracy after the last step against the training time, over all budgets."""
        from outspan.figures.compare import frontier_figure

        points: dict[str, list[tuple[float, float, float]]] = {name: [] for name in self.policies}
        for _, results in sorted(self.budgets.items()):
            for name, result in results.items():
                points[name].append((result.seconds, *mean_and_std(result.accuracies)))
        return frontier_figure(points, f"{self._subject()}; ± standard deviation")

    def _subject(self, seconds: float | None = None) -> str:
        """Return what was compared, for titles. `seconds` are those of a run, None if the figure shows several budgets."""
        same = "the same time" + (" at each budget" if seconds is None else f", {show_seconds(seconds)} s of training per run")
        equal = same if self.equal == "time" else f"{next(iter(self.policies.values())).epochs:g} epochs each"
        count = max(len(result.accuracies) for result in self.policies.values())
        return f"{self.recipe.data}, {self.recipe.model}: {equal}, {count} {self.unit}{'s' * (count > 1)}"

    def _repr_html_(self) -> str:
        """Return the table and the figure, for notebooks."""
        columns = ["policy", f"test {self.metric}, %", "std", "epochs", "seconds per run"]
        rows = [
            [name, f"{100 * one.mean:.2f}", f"± {100 * one.std:.2f}", f"{one.epochs:.4g}", show_seconds(one.seconds)]
            for name, one in self.policies.items()
        ]
        return display(columns, rows, " ".join(self.verdicts), self.figure())

    def _repr_png_(self) -> bytes:
        """Return the figure, for notebooks."""
        return figure_bytes(self.figure())


def summarize(runs: Sequence[Summary], values: Sequence[float]) -> PolicyResult:
    """Return the result of the runs of one policy, one per seed or fold. `values` are those of the metric of the comparison."""
    accuracies = tuple(run.accuracy for run in runs)
    curves = tuple(tuple(row["test_accuracy"] for row in run.metrics) for run in runs)
    seconds = mean_and_std([run.seconds for run in runs])[0]
    evaluated = tuple(int(row["step"]) for row in runs[0].metrics)
    return PolicyResult(
        accuracies, tuple(values), *mean_and_std(values), runs[0].steps, runs[0].epochs, seconds, curves, evaluated
    )


def _as_dict(results: Mapping[str, PolicyResult], metric: str) -> dict[str, object]:
    return {
        name: {
            "test_accuracy": list(result.accuracies),
            f"test_{metric}": list(result.values),
            "mean": result.mean,
            "std": result.std,
            "steps": result.steps,
            "epochs": round(result.epochs, 2),
            "seconds": result.seconds,
        }
        for name, result in results.items()
    }


def run_folder(out: Path, multiple: float, policy: str, number: int) -> Path:
    """Return the folder of a run, by its seed or fold. Those of other budgets than the first are in a folder of their own."""
    return (out if multiple == 1 else out / f"{BUDGET_PREFIX}{multiple:g}") / f"{policy}-{number}"
