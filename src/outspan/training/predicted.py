"""The class probabilities that a trained model predicts for inputs without labels."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from outspan.config import Recipe
from outspan.data.inputs import Place, list_files, make_inputs, read_files
from outspan.data.splits import Split
from outspan.figures.markup import display
from outspan.files import expand_home, write_lines, write_whole
from outspan.models.evaluating import on_device
from outspan.models.precision import in_precision
from outspan.policies.objectives import objective_for
from outspan.shapes import Float32, describe
from outspan.training.logits import compute_logits
from outspan.transforms.normalize import Preprocess

_SHOWN = 20  # inputs that a notebook shows
_FILES_AT_ONCE = 256  # read before their classes are computed


@dataclass(frozen=True, eq=False)
class Predicted:
    """The class probabilities of inputs."""

    probabilities: Float32[Tensor, "N classes"]
    class_names: tuple[str, ...]
    multi_label: bool = False  # whether an input can have several labels: then the probabilities do not sum to 1
    files: tuple[Path, ...] = ()  # the file of each sample, if the inputs are files
    rows: tuple[int, ...] = ()  # the row of each sample in its table, counted from 1; 0 for a file that is one sample

    def __len__(self) -> int:
        """Return the number of inputs."""
        return len(self.probabilities)

    @property
    def classes(self) -> list[str]:
        """The most likely class of each input."""
        return [self.class_names[i] for i in self.probabilities.argmax(1).tolist()]

    def labels(self, threshold: float = 0.5) -> list[dict[str, float]]:
        """Return the classes of each input whose probability is above a threshold, the most likely first."""
        return [{name: p for name, p in row.items() if p > threshold} for row in self.top(len(self.class_names))]

    def top(self, count: int) -> list[dict[str, float]]:
        """Return the `count` most likely classes of each input with their probabilities, the most likely first."""
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        best = self.probabilities.topk(min(count, len(self.class_names)))
        rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [{self.class_names[i]: value for i, value in zip(*row, strict=True)} for row in rows]

    def _repr_html_(self) -> str:
        """Return the most likely classes of the first inputs, for notebooks."""
        shown = Predicted(self.probabilities[:_SHOWN], self.class_names, self.multi_label)
        names = [str(path) for path in self.files[:_SHOWN]] or list(map(str, range(len(shown))))
        rows = []
        for name, likely in zip(names, shown.top(3), strict=True):
            rows.append((name, ", ".join(f"{label} {100 * value:.1f} %" for label, value in likely.items())))
        return display(["input", "most likely classes"], rows, f"{len(self):,} inputs, the first {len(shown)}")

    def save(self, path: Path | str, *, threshold: float = 0.5) -> None:
        """Write a line per input to a .csv or .jsonl file: its file, its row, the most likely class and all probabilities.

        If an input can have several labels, a line has all classes above `threshold` (in .csv separated by ";") instead of one.
        """
        path = expand_home(path)
        places = zip(self.files or [""] * len(self), self.rows or range(1, len(self) + 1), strict=True)
        column, names = ("labels", [[*row] for row in self.labels(threshold)]) if self.multi_label else ("class", self.classes)
        lines = [
            {"file": str(file), "row": row, column: name, "probabilities": dict(zip(self.class_names, values, strict=True))}
            for (file, row), name, values in zip(places, names, self.probabilities.tolist(), strict=True)
        ]
        suffix = path.suffix.lower()
        if suffix not in (".csv", ".jsonl"):
            raise ValueError(f"{path}: predictions are written as .csv or .jsonl, got {suffix or 'no suffix'!r}")
        if suffix == ".jsonl":
            return write_lines(path, lines)
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(["file", "row", column, *(f"p({name})" for name in self.class_names)])
        for line in lines:
            shown = ";".join(line[column]) if self.multi_label else line[column]
            writer.writerow([line["file"], line["row"], shown, *line["probabilities"].values()])
        return write_whole(path, lambda partial: partial.write_text(text.getvalue(), encoding="utf-8", newline=""))


@runtime_checkable
class Predictor(Protocol):
    """What is needed to predict: a model, and what its inputs and outputs are. See `Trained`."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def preprocess(self) -> Preprocess: ...

    @property
    def recipe(self) -> Recipe: ...

    @property
    def noun(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def multi_label(self) -> bool: ...


def predict_inputs(
    run: Predictor,
    inputs: Any,
    device: torch.device,
    *,
    on_error: Callable[[ValueError], object] | None = None,
    on_batch: Callable[[Predicted], object] = lambda predicted: None,
) -> Predicted:
    """Return the class probabilities of inputs; see `outspan.predict`."""
    parts, objective = [], objective_for(multi_label=run.multi_label)
    with on_device(run.model, device) as model:
        model = in_precision(model, run.recipe.precision)
        for split, places in _read(run, inputs, on_error or _raise):
            probabilities = objective.probabilities(compute_logits(model, split, run.preprocess, device))
            files, rows = tuple(place.file for place in places), tuple(place.row for place in places)
            parts.append(Predicted(probabilities, run.classes, run.multi_label, files, rows))
            on_batch(parts[-1])
    if not parts:
        return Predicted(torch.zeros(0, len(run.classes)), run.classes, run.multi_label)
    files, rows = tuple(path for part in parts for path in part.files), tuple(row for part in parts for row in part.rows)
    return Predicted(torch.cat([part.probabilities for part in parts]), run.classes, run.multi_label, files, rows)


def _read(run: Predictor, inputs: Any, on_error: Callable[[ValueError], object]) -> Iterator[tuple[Split, Sequence[Place]]]:
    """Return the inputs as splits, each with the places of its samples."""
    split = make_inputs(inputs, run.noun, run.shape, run.recipe)
    if split is not None:
        yield split, ()
        return
    files = list_files(_as_paths(inputs, run.noun), run.noun)
    for start in range(0, len(files), _FILES_AT_ONCE):
        readable, split = read_files(files[start : start + _FILES_AT_ONCE], run.noun, run.shape, run.recipe, on_error)
        if split is not None:
            yield split, readable


def _as_paths(inputs: Any, noun: str) -> list[Path]:
    paths = list(inputs) if isinstance(inputs, Iterable) and not isinstance(inputs, str) else [inputs]
    if not all(isinstance(path, str | Path) for path in paths):
        raise ValueError(f"inputs must be paths, or one batch of {noun}, got {describe(inputs)}")
    return [expand_home(path) for path in paths]


def _raise(error: ValueError) -> None:
    raise error
