"""A run as a report reads it from its folder: whatever is there, and why the rest is missing."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outspan.comparison.result import BUDGET_PREFIX
from outspan.comparison.result import FILE as COMPARISON_FILE
from outspan.config import Recipe, read_recipe, stored_recipe
from outspan.messages import first_line
from outspan.training import checkpoint, compositions
from outspan.training.evaluate import Evaluation, LabelEvaluation, evaluate
from outspan.training.evaluation_data import EvaluationData, load_evaluation_data
from outspan.training.metadata import RunMetadata
from outspan.training.trained import Trained, load

METRICS_FILE = "metrics.jsonl"
_POLICY = "policy."  # prefix of the tensors of the policy in a checkpoint
MOST_SAMPLES = 10_000  # that are evaluated for a report; more are evenly spaced among all


@dataclass(frozen=True)
class Detail:
    """How many samples a report shows for each run. A page about several results shows fewer, so that it stays small."""

    wrong: int = 48  # misclassified test samples
    compositions: int = 5  # that are chosen most often, and least often
    candidates: int = 8  # training samples whose candidates are shown
    augmented: int = 12  # training samples that are shown before and after a policy that keeps all candidates


FEW = Detail(wrong=12, compositions=2, candidates=3, augmented=4)


@dataclass(frozen=True)
class Metrics:
    """The rows of a run's metrics, one per epoch, and the lines of the file that are damaged.

    If lines are damaged and there is a checkpoint, the rows are those of the checkpoint.
    """

    rows: list[dict[str, float]] = field(default_factory=list)
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class RunResult:
    """A run on disk. What cannot be read is None, and `no_model` or `no_data` says why."""

    folder: Path
    recipe: Recipe
    metrics: Metrics
    lines: list[compositions.Line]  # which compositions were chosen, by epoch
    no_lines: str  # why there are none
    metadata: RunMetadata | None  # of the newest checkpoint
    trained: Trained | None
    tested: EvaluationData | None
    evaluation: Evaluation | LabelEvaluation | None
    policy_state: Mapping[str, Tensor] = field(default_factory=dict)  # of a policy that learns, from the newest checkpoint
    no_model: str = ""
    no_data: str = ""

    @property
    def remedy(self) -> str:
        """How to add what is missing. Code is in backticks."""
        if self.trained is None:
            return "The page needs the weights of the run: train it again with the recipe below."
        return f"Run `outspan report {self.folder} --data PATH` with the path of its data."

    @property
    def accuracy(self) -> float | None:
        """The last test accuracy, None if there is none."""
        return self.metrics.rows[-1].get("test_accuracy") if self.metrics.rows else None

    @property
    def seconds(self) -> float | None:
        """The time of the training, None without a checkpoint."""
        return None if self.metadata is None else self.metadata["seconds"]


def find_comparison(folder: Path) -> tuple[Path, str] | None:
    """Return the folder of the comparison that the run in a folder belongs to, and its budget, "" for the first one."""
    folder = folder.resolve()
    is_other = folder.parent.name.startswith(BUDGET_PREFIX)
    where = folder.parent.parent if is_other else folder.parent
    budget = folder.parent.name.removeprefix(BUDGET_PREFIX) if is_other else ""
    return (where, budget) if (where / COMPARISON_FILE).is_file() else None


def is_run(folder: Path) -> bool:
    """Return whether a folder is that of a run."""
    return checkpoint.has_checkpoints(folder) or ((folder / "recipe.toml").exists() and (folder / METRICS_FILE).exists())


def read_run(folder: Path, data: str = "") -> RunResult:
    """Return a run and its evaluation, on `data` instead of its own if it is given. A run without a recipe is a ValueError."""
    metadata, trained, no_model, policy_state = None, None, "", {}
    try:
        stored = checkpoint.load(folder)
        if stored is not None:
            metadata = stored.metadata
            policy = {name: tensor for name, tensor in stored.tensors.items() if name.startswith(_POLICY)}
            policy_state = {name.removeprefix(_POLICY): tensor for name, tensor in policy.items()}
        trained = load(folder)
    except ValueError as error:
        no_model = first_line(error)
    if metadata is None and not (folder / "recipe.toml").exists():
        raise ValueError(f"{folder}: contains no run that can be read ({no_model})")
    recipe = read_recipe(folder / "recipe.toml") if metadata is None else stored_recipe(metadata["recipe"])
    lines, no_lines = [], ""
    try:
        lines = compositions.read(folder)
    except ValueError as error:
        no_lines = first_line(error)
    tested, evaluation, no_data = None, None, ""
    if trained is not None:
        try:
            tested = load_evaluation_data(trained, data)
            evaluation = _evaluate(trained, tested)
        except ValueError as error:
            no_data = first_line(error)
    metrics = read_metrics(folder / METRICS_FILE)
    if metrics.damaged and metadata is not None:
        metrics = replace(metrics, rows=metadata["metrics"])
    shared = (folder, recipe, metrics, lines, no_lines, metadata, trained, tested, evaluation)
    return RunResult(*shared, policy_state, no_model=no_model, no_data=no_data or no_model)


def read_metrics(path: Path) -> Metrics:
    """Return the rows of a file of metrics. Lines that are damaged are left out and reported."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        return Metrics([], (f"{path.name}: {error.strerror or error}",))
    rows, damaged = [], []
    for number, line in enumerate(lines, 1):
        row = _read_row(line)
        if row is None:
            damaged.append(f"{path.name}, line {number}: {line[:80].decode(errors='replace')}")
        else:
            rows.append(row)
    return Metrics(rows, tuple(damaged))


def _read_row(line: bytes) -> dict[str, float] | None:
    """Return a row of metrics; None if the line is damaged."""
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not {"epoch", "step", "test_accuracy"} <= row.keys():
        return None
    is_whole = all(type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value) for value in row.values())
    return row if is_whole else None


def _evaluate(trained: Trained, tested: EvaluationData) -> Evaluation | LabelEvaluation:
    """Evaluate a run on its test data, or on evenly spaced samples of large test data."""
    data, count = tested.data, len(tested.data.test)
    if count > MOST_SAMPLES:
        rows = torch.linspace(0, count - 1, MOST_SAMPLES).round().long()
        data = replace(data, test=data.test.take(rows))
    return evaluate(trained, splits=data)
