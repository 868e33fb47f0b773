"""The labels of a table: one column with the class of each row, or several labels per row."""

import math
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from outspan.messages import shown
from outspan.shapes import Float64
from outspan.text.segments import PAIR

_MAX_CLASSES = 1_000
_MAX_NUMBERS = 50  # different numbers; more may be a quantity, and are one unless they are 0, 1, 2, …, or 1, 2, 3, …
EACH_A_CLASS = "each is a class of its own, and regression is not supported"
_WHOLE = re.compile(r"(?<=\d)\.0*$")  # the decimals of a whole number
_NEXT = "\0"  # separates the labels of a row; `clean` removes it from texts
_YES_AND_NO = {"1": True, "0": False, "1.0": True, "0.0": False, "true": True, "false": False, "": False}
IMAGE = re.compile(r".*\.(jpe?g|png|bmp|webp|pp?gm|ppm|gif|tiff?)", re.IGNORECASE | re.DOTALL)


class Row(NamedTuple):
    """A row of a table."""

    where: str  # its place, for error messages
    content: str  # the text, or the path of the image
    label: str  # several labels are separated by a NUL
    weight: Any = None  # what the weight column has, if there is one


@dataclass(frozen=True)
class Columns:
    """Which columns of a table have the text and the labels."""

    text: str = "text"
    label: str = "label"  # several, separated by commas, have 0 or 1 each and are the classes
    separator: str = ""  # between the labels in the column; "": one label
    weight: str = ""  # the weights of the training rows; "": none

    @property
    def texts(self) -> tuple[str, ...]:
        """The names of the columns with texts: two for pairs."""
        return text_columns(self.text)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the columns with labels."""
        return tuple(name.strip() for name in self.label.split(","))

    @property
    def is_multi_label(self) -> bool:
        """Whether a row can have several labels."""
        return bool(self.separator) or len(self.labels) > 1

    def options(self) -> list[tuple[str, str]]:
        """Return all columns, each with the option that names it."""
        options = {"text_column": self.texts, "label_column": self.labels, "weight_column": (self.weight,) * bool(self.weight)}
        return [(column, option) for option, columns in options.items() for column in columns]

    def join(self, where: str, row: Mapping[str, Any], label: str) -> str:
        """Return the labels of a row in one string. `label` is the text in the only column, if there is only one."""
        if len(self.labels) == 1:
            parts = label.split(self.separator) if self.separator else [label]
            return _NEXT.join(part.strip() for part in parts if part.strip()) if self.separator else label
        chosen = []
        for name in self.labels:
            value = str(row[name]).strip().lower()
            if value not in _YES_AND_NO:
                problem = f"the column {name!r} must hold 0 or 1, because label_column has several names"
                raise ValueError(f"{where}: {problem}, got {shown(row[name])}")
            chosen += [name] if _YES_AND_NO[value] else []
        return _NEXT.join(chosen)


def text_columns(names: str) -> tuple[str, ...]:
    """Return the column of the texts, or the two columns of pairs, which are separated by a comma."""
    columns = tuple(name.strip() for name in names.split(","))
    if len(columns) > 2 or not all(columns) or len({*columns}) < len(columns):
        raise ValueError(
            f"text_column must be one column, or the two columns of pairs, such as premise,hypothesis, got {shown(names)}"
        )
    return columns


def drop_bad_rows(path: Path, rows: list[Row], columns: Columns, skip_bad: int) -> list[Row]:
    """Return the rows that have a text and a label. More than `skip_bad` others raise one error that names them."""
    without = [(columns.label, [row for row in rows if not (row.label.strip() or columns.is_multi_label)])]
    for number, column in reversed([*enumerate(columns.texts)]):
        without.insert(0, (column, [row for row in rows if not row.content.split(PAIR)[number].strip()]))
    bad = {row.where for _, some in without for row in some}
    parts = []
    for column, some in without:
        lines = [row.where.rpartition(" ")[2] for row in some]
        parts += [
            f"{len(some):,} of {len(rows):,} rows have nothing in the column {column!r}, lines {show_names(lines)}"
        ] * bool(some)
    if len(bad) > skip_bad:
        how = f"add what is missing, or leave these rows out with --skip-bad {len(bad)}"
        raise ValueError(f"{path}: {'; '.join(parts)}; {how}")
    if bad:
        warnings.warn(f"{path}: {'; '.join(parts)}; these rows are left out", stacklevel=3)
    return [row for row in rows if row.where not in bad]


def find_classes(rows: Sequence[Row], columns: Columns, source: object) -> tuple[str, ...]:
    """Return the classes of the training rows, in order. Refuse a column of free text, of a quantity, or of one value."""
    if not rows:
        raise ValueError(f"{source}: there are no rows to train on")
    if len(columns.labels) > 1:
        return columns.labels
    if columns.separator:
        classes = sorted({part for row in rows for part in row.label.split(_NEXT) if part}, key=_sort_key)
        if not 2 <= len(classes) <= _MAX_CLASSES:
            problem = f"{len(classes)} different labels, separated by {columns.separator!r}, in {len(rows)} rows"
            raise ValueError(f"{source}: {problem}, expected 2 to {_MAX_CLASSES}; set label_column or label_separator")
        return tuple(classes)
    for row in rows:
        if not row.label.strip():
            raise ValueError(f"{row.where}: an empty label")
    classes = sorted({row.label for row in rows}, key=_sort_key)
    are_many = len(classes) > _MAX_NUMBERS
    are_numbers = len(classes) > 2 and all(map(is_number, classes))
    are_different = not 2 <= len(classes) <= _MAX_CLASSES or len(classes) > max(2, len(rows) // 2)
    between = f", from {classes[0]} to {classes[-1]}" if are_numbers else ""
    values = f"{len(classes)} different {'numbers' if are_numbers else 'values'} in {len(rows):,} rows{between}"
    if are_numbers and (are_different or (are_many and not _are_consecutive(classes))):
        how = "group them into classes, or set label_column to another column"
        raise ValueError(f"{source}: the labels are {values}: regression is not supported; {how}")
    if are_different:
        raise ValueError(f"{source}: the labels are {values}, not classes; set label_column to another column")
    if are_numbers and are_many:
        warnings.warn(f"{source}: the labels are {values}: {EACH_A_CLASS}", stacklevel=3)
    _warn_of_joined_labels(classes, source)
    if all(map(IMAGE.fullmatch, classes)):
        raise ValueError(f"{source}: the labels are images, e.g. {classes[0]}: segmentation masks are not supported")
    return tuple(classes)


def _warn_of_joined_labels(classes: Sequence[str], source: object) -> None:
    """Warn of classes such as "a;b" and "a": if splitting them leaves fewer classes, a row has several labels."""
    for separator in ";|,":
        joined = [name for name in classes if separator in name]
        alone = {*classes} - {*joined}
        parts = {part.strip() for name in joined for part in name.split(separator)} - {""}
        if parts & alone and len(parts | alone) < len(classes):
            problem = f"labels such as {shown(joined[0])} are classes of their own"
            how = f"if they are several labels of a row, set label_separator to {separator!r}"
            warnings.warn(
                f"{source}: {problem}: {how}, which gives {len(parts | alone)} classes, not {len(classes)}", stacklevel=4
            )


def check_division(path: Path, train: Sequence[Row], test: Sequence[Row], columns: Columns) -> None:
    """Refuse a file of which no row can be for testing. Warn of labels that only one row has: they are not tested."""
    if not test:
        why = "every label is in one row only" if len(train) > 1 else "it has one row"
        how = "add rows, or pass a folder with the files train.csv and test.csv"
        raise ValueError(f"{path}: no row can be held out for testing, because {why}: {how}")
    counts = Counter(row.label for row in (*train, *test))
    single = [label for label, count in counts.items() if count == 1 and not columns.is_multi_label]
    if single:
        names = f"{len(single)} label{'s' * (len(single) > 1)} with only one row: {show_names(single)}"
        warnings.warn(f"{path}: {names}; such a row is trained on, not tested", stacklevel=3)


def encode_labels(rows: Sequence[Row], classes: tuple[str, ...], columns: Columns) -> Tensor:
    """Return class indices [N], or multi-hot labels, bool [N, classes]. A label of no class is a ValueError."""
    number = {name: i for i, name in enumerate(classes)}
    parts = [[part for part in row.label.split(_NEXT) if part] if columns.is_multi_label else [row.label] for row in rows]
    for row, labels in zip(rows, parts, strict=True):
        for label in labels:
            if label not in number:
                raise ValueError(f"{row.where}: label {shown(label)} is not among the classes of train ({show_names(classes)})")
    if not columns.is_multi_label:
        return torch.tensor([number[label] for [label] in parts], dtype=torch.int64)
    result = torch.zeros(len(rows), len(classes), dtype=torch.bool)
    for i, labels in enumerate(parts):
        result[i, [number[label] for label in labels]] = True
    return result


def read_weights(rows: Sequence[Row], columns: Columns) -> Float64[Tensor, " N"] | None:
    """Return the weights in the weight column of training rows, None without such a column."""
    if not columns.weight:
        return None
    return torch.tensor([_read_weight(row, columns.weight) for row in rows], dtype=torch.float64)


def _read_weight(row: Row, column: str) -> float:
    value: Any = row.weight
    if value is None:
        raise ValueError(f"{row.where}: no weight in the column {column!r}; set weight_column to another column")
    try:
        weight = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        weight = math.nan
    if not 0 <= weight < math.inf:
        raise ValueError(f"{row.where}: the weight in the column {column!r} must be a number of at least 0, got {shown(value)}")
    return weight


def is_number(label: str) -> bool:
    """Return whether a label is a number, in the way of Python."""
    try:
        float(label)
    except ValueError:
        return False
    return True


def as_numbers(rows: Sequence[Row]) -> list[Row]:
    """Return rows whose labels are numbers. 1.0 becomes 1: pandas writes integer columns with missing values as 1.0."""
    for row in rows:
        if not math.isfinite(float(row.label)):
            raise ValueError(f"{row.where}: the label must be a number, as the others are, got {shown(row.label)}")
    return [row._replace(label=_WHOLE.sub("", row.label) if float(row.label) else "0") for row in rows]


def show_names(names: Sequence[Any]) -> str:
    """Return the first few names as an error message shows them."""
    plain = [name if isinstance(name, str) and name.isprintable() and len(name) < 30 else shown(name) for name in names[:10]]
    text = ", ".join(plain)
    return (text if len(text) <= 200 else f"{text[:197]}...") + (", …" if len(names) > 10 else "")


def _are_consecutive(classes: Sequence[str]) -> bool:
    """Return whether sorted numbers are 0, 1, 2, …, or begin at 1."""
    numbers = [float(name) for name in classes]
    return numbers[0] in (0, 1) and numbers == [numbers[0] + i for i in range(len(numbers))]


def _sort_key(label: str) -> tuple[float, str]:
    """Return the key that sorts labels: numbers first, then names."""
    try:
        number = float(label)
    except ValueError:
        return math.inf, label
    return (number if math.isfinite(number) else math.inf), label
