"""The class probabilities that a trained model predicts for inputs without labels."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor, nn

from outspan.config import Recipe
from outspan.data.inputs import Place, list_files, make_inputs, read_files
from outspan.data.splits import Split
from outspan.figures.markup import display
from outspan.files import expand_home, write_lines, write_whole
from outspan.limits import check_whole
from outspan.models.evaluating import on_device
from outspan.models.precision import in_precision
from outspan.policies.objectives import objective_for
from outspan.shapes import Float32, describe
from outspan.training.logits import compute_logits
from outspan.transforms.normalize import Preprocess

_SHOWN = 20  # inputs that a notebook shows
_FILES_AT_ONCE = 256  # read before their classes are computed
Record: TypeAlias = dict[str, Any]  # a line of the output


@dataclass(frozen=True, eq=False)
class Predicted:
    """The class probabilities of inputs."""

    probabilities: Float32[Tensor, "N classes"]
    class_names: tuple[str, ...]
    multi_label: bool = False  # whether an input can have several labels: then the probabilities do not sum to 1
    files: tuple[Path, ...] = ()  # the file of each sample, if the inputs are files
    rows: tuple[int, ...] = ()  # the row of each sample in its table or list, counted from 1; 0 for a file that is one sample
    texts: tuple[str, ...] = ()  # the text of each sample, if the inputs are texts

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
        names = [*map(str, self.files[:_SHOWN])] or [*self.texts[:_SHOWN]] or [*map(str, range(len(shown)))]
        rows = []
        for name, likely in zip(names, shown.top(3), strict=True):
            rows.append((name, ", ".join(f"{label} {100 * value:.1f} %" for label, value in likely.items())))
        return display(["input", "most likely classes"], rows, f"{len(self):,} inputs, the first {len(shown)}")

    def records(self, *, top: int | None = None, threshold: float = 0.5) -> list[Record]:
        """Return for each input its place, the most likely class and the `top` highest probabilities, None: all.

        If an input can have several labels, they are those above `threshold`, and with `top` only their probabilities.
        """
        whole = [dict(zip(self.class_names, values, strict=True)) for values in self.probabilities.tolist()]
        labels = self.labels(threshold)
        best = whole if top is None else labels if self.multi_label else self.top(top)
        names = [[*row] for row in labels] if self.multi_label else self.classes
        records = []
        for i, (name, probabilities) in enumerate(zip(names, best, strict=True)):
            file, row = str(self.files[i]) if self.files else "", self.rows[i] if self.rows else i + 1
            record: Record = {"file": file, "row": row or None} | ({"text": self.texts[i]} if self.texts else {})
            records.append(record | {"labels" if self.multi_label else "class": name, "probabilities": probabilities})
        return records

    def save(self, path: Path | str, *, threshold: float = 0.5) -> None:
        """Write a line per input to a .csv or .jsonl file: its file, its row, its text if the inputs are texts, the most likely
        class, and all probabilities.

        If an input can have several labels, a line has all classes above `threshold` (in .csv separated by ";") instead of one.
        """
        path, records = expand_home(path), self.records(threshold=threshold)
        suffix = path.suffix.lower()
        if suffix not in (".csv", ".jsonl"):
            raise ValueError(f"{path}: predictions are written as .csv or .jsonl, got {suffix or 'no suffix'!r}")
        if suffix == ".jsonl":
            return write_lines(path, records)
        text, places = io.StringIO(newline=""), ["file", "row"] + ["text"] * bool(self.texts)
        column = "labels" if self.multi_label else "class"
        writer = csv.writer(text)
        writer.writerow([*places, column, *(f"p({name})" for name in self.class_names)])
        for record in records:
            shown = ";".join(record[column]) if self.multi_label else record[column]
            writer.writerow([*(record[place] for place in places), shown, *record["probabilities"].values()])
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
    skip_bad: int = 0,
    on_error: Callable[[ValueError], object] | None = None,
    on_batch: Callable[[Predicted], object] = lambda predicted: None,
) -> Predicted:
    """Return the class probabilities of inputs; see `outspan.predict`."""
    parts, objective = [], objective_for(multi_label=run.multi_label)
    with on_device(run.model, device) as model:
        model = in_precision(model, run.recipe.precision)
        for split, places in _read(run, inputs, on_error or _raise, skip_bad):
            probabilities = objective.probabilities(compute_logits(model, split, run.preprocess, device))
            parts.append(Predicted(probabilities, run.classes, run.multi_label, *_columns(places)))
            on_batch(parts[-1])
    if not parts:
        return Predicted(torch.zeros(0, len(run.classes)), run.classes, run.multi_label)
    where = (tuple(value for part in parts for value in getattr(part, name)) for name in ("files", "rows", "texts"))
    return Predicted(torch.cat([part.probabilities for part in parts]), run.classes, run.multi_label, *where)


def _columns(places: Sequence[Place]) -> tuple[tuple[Path, ...], tuple[int, ...], tuple[str, ...]]:
    """Return the files, the rows and the texts of places. Samples in memory have no files, and those of files no texts."""
    files = tuple(place.file for place in places if place.file is not None)
    return files, tuple(place.row for place in places), tuple(place.text for place in places if place.text is not None)


def _read(
    run: Predictor, inputs: Any, on_error: Callable[[ValueError], object], skip_bad: int
) -> Iterator[tuple[Split, Sequence[Place]]]:
    """Return the inputs as splits, each with the places of its samples."""
    places, split = make_inputs(inputs, run.noun, run.shape, run.recipe)
    if split is not None:
        yield split, places
        return
    files, skip_bad = list_files(_as_paths(inputs, run.noun), run.noun), check_whole("skip_bad", skip_bad, 0)
    for start in range(0, len(files), _FILES_AT_ONCE):
        some = files[start : start + _FILES_AT_ONCE]
        readable, split = read_files(some, run.noun, run.shape, run.recipe, on_error, skip_bad)
        if split is not None:
            yield split, readable


def _as_paths(inputs: Any, noun: str) -> list[Path]:
    paths = list(inputs) if isinstance(inputs, Iterable) and not isinstance(inputs, str) else [inputs]
    if not all(isinstance(path, str | Path) for path in paths):
        raise ValueError(f"inputs must be paths, or one batch of {noun}, got {describe(inputs)}")
    return [expand_home(path) for path in paths]


def _raise(error: ValueError) -> None:
    raise error
