"""Labelled texts read from CSV, TSV, JSONL and Parquet tables, folders of `datasets`, and folders of .txt files, as IMDb."""

import csv
import gzip
import io
import json
import math
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from outspan.data.arrow import dataset_rows, is_dataset, parquet_rows
from outspan.data.dividing import pick_test_rows
from outspan.data.table_labels import (
    Columns,
    Row,
    as_numbers,
    check_division,
    drop_bad_rows,
    encode_labels,
    find_classes,
    is_number,
    read_weights,
    show_names,
)
from outspan.files import Json, check_regular
from outspan.messages import shown
from outspan.text.documents import Documents
from outspan.text.segments import PAIR

TABLES = (".csv", ".tsv", ".jsonl", ".jsonl.gz", ".parquet")
_BREAK = re.compile(r"(?:<br\s*/?>\s*)+", re.IGNORECASE)  # IMDb's reviews keep their line breaks as HTML
_LIST = re.compile(
    r"""\[\s*(['"\d-].*)?\]|\{\s*(['"\d-].*)?\}""", re.DOTALL
)  # a list or an object, as JSON and Python write it
Read = tuple[Documents, Documents, tuple[str, ...]]  # train, test, and the classes


def is_text(path: Path) -> bool:
    """Return whether a path holds texts: a table, or a folder of tables or of class folders with .txt files."""
    if path.is_dir():
        return is_dataset(path) or _has_tables(path) or next(path.glob("train/*/*.txt"), None) is not None
    return is_table(path)


def read_documents(
    path: Path, *, text: str = "text", label: str = "label", separator: str = "", weight: str = "", skip_bad: int = 0
) -> Read:
    """Return train, test and the classes of a table, a folder with a train and a test table, or train/CLASS/*.txt folders.

    A table alone is divided: about a fifth of its rows, picked by their texts, is for testing. `text` and `label` are columns.
    With a `separator`, or several label columns, separated by commas, a text can have several labels. `weight` is the column of
    the weights of training texts. Up to `skip_bad` rows of a table may have no text or no label. They are left out, with a
    warning.
    """
    columns = Columns(text, label, separator, weight)
    if path.is_dir() and not _has_tables(path) and not is_dataset(path):
        names = [path / "train", next((path / name for name in ("test", "val") if (path / name).is_dir()), path / "test")]
        train, test = (list(_folder_rows(name)) for name in names)
        columns = Columns()
    else:
        train, test = split_rows(path, columns, skip_bad)
    classes, labels = label_rows(path, (train, test), columns)
    return _documents(train, labels[0], read_weights(train, columns)), _documents(test, labels[1]), classes


def split_rows(path: Path, columns: Columns, skip_bad: int = 0) -> tuple[list[Row], list[Row]]:
    """Return the train and test rows of a folder with two tables, or of one table, which is divided."""
    if path.is_dir() and not is_dataset(path):
        tables = [find_table(path, "train"), find_table(path, "test") or find_table(path, "validation")]
        names = (table or path / f"{name}.csv" for table, name in zip(tables, ("train", "test"), strict=True))
        by_table = zip(names, (columns, replace(columns, weight="")), strict=True)  # only training samples have weights
        train, test = (drop_bad_rows(table, list(_rows(table, own)), own, skip_bad) for table, own in by_table)
        return train, test
    rows = drop_bad_rows(path, list(_rows(path, columns)), columns, skip_bad)
    # Sets of labels may all be different, and a class with one row is always trained on.
    groups = ["" if columns.is_multi_label else row.label for row in rows]
    picked = pick_test_rows([row.content for row in rows], groups)
    train, test = ([row for i, row in enumerate(rows) if (i in picked) == testing] for testing in (False, True))
    return train, test


def label_rows(
    path: Path, splits: tuple[Sequence[Row], Sequence[Row]], columns: Columns
) -> tuple[tuple[str, ...], tuple[Tensor, Tensor]]:
    """Return the classes, and the labels of the train and the test rows."""
    train, test = splits
    if not columns.is_multi_label and all(is_number(row.label) for row in (*train, *test)):
        train, test = as_numbers(train), as_numbers(test)
    if path.is_dir():
        classes = find_classes(train, columns, path)
    else:  # the classes of train are those of the whole file
        classes = find_classes((*train, *test), columns, path)
        check_division(path, train, test, columns)
    return classes, (encode_labels(train, classes, columns), encode_labels(test, classes, columns))


def is_table(path: Path) -> bool:
    """Return whether a path has the suffix of a table."""
    return path.name.lower().endswith(TABLES)


def read_table(
    path: Path,
    classes: tuple[str, ...],
    *,
    text: str = "text",
    label: str = "label",
    separator: str = "",
    skip_bad: int = 0,
) -> Documents:
    """Return all texts of a table. Its labels must be among the classes, which need not all occur."""
    return _documents(*read_rows(path, classes, Columns(text, label, separator), skip_bad))


def read_rows(path: Path, classes: tuple[str, ...], columns: Columns, skip_bad: int = 0) -> tuple[list[Row], Tensor]:
    """Return all rows of a table and their labels. Their weights are not read."""
    columns = replace(columns, weight="")
    rows = drop_bad_rows(path, list(_rows(path, columns)), columns, skip_bad)
    if not rows:
        raise ValueError(f"{path}: the table has no rows")
    if not columns.is_multi_label and all(is_number(row.label) for row in rows) and all(map(is_number, classes)):
        rows = as_numbers(rows)
    return rows, encode_labels(rows, classes, columns)


def _documents(rows: Sequence[Row], labels: Tensor, weights: Tensor | None = None) -> Documents:
    return Documents([row.content for row in rows], labels, weights)


def find_table(folder: Path, name: str) -> Path | None:
    """Return the table of a split in a folder, or None."""
    if is_dataset(folder / name):
        return folder / name
    return next((folder / f"{name}{suffix}" for suffix in TABLES if (folder / f"{name}{suffix}").is_file()), None)


def _has_tables(folder: Path) -> bool:
    return any(find_table(folder, name) for name in ("train", "test"))


def _folder_rows(folder: Path) -> Iterator[Row]:
    """Return the text files of class folders, without IMDb's folder of unlabelled reviews."""
    if not folder.is_dir():
        needs = "needs the folders train and test, each with one folder per class"
        raise ValueError(f"{folder.parent}: {needs}; {folder} is missing")
    classes = sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name != "unsup" and entry.name[0] != ".")
    for entry in classes:
        files = sorted(entry.glob("*.txt"))
        if not files:
            raise ValueError(f"{entry}: an empty class folder, expected .txt files")
        for file in files:
            yield Row(str(file), read_text(file), entry.name)


def read_text(path: Path) -> str:
    """Return the text of one UTF-8 file."""
    check_regular(path)
    try:
        text = clean(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 (byte {error.start}); convert it first") from None
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    if not text.strip():
        raise ValueError(f"{path}: an empty document")
    return text


def first_row(path: Path) -> dict[str, Json]:
    """Return the first row of a table, empty if there is none."""
    return next((row for _, row in raw_rows(path)), {})


def raw_rows(path: Path) -> Iterator[tuple[str, dict[str, Json]]]:
    """Return the rows of a table, each with its place for error messages."""
    if is_dataset(path):
        return dataset_rows(path)
    if path.name.lower().endswith(".parquet"):
        return parquet_rows(path)
    lines = _lines(path)
    return _json_rows(path, lines) if path.name.lower().endswith((".jsonl", ".jsonl.gz")) else _csv_rows(path, lines)


def _rows(path: Path, columns: Columns) -> Iterator[Row]:
    """Return the rows of a table, each with its place for error messages."""
    first = None
    for where, row in raw_rows(path):
        for column, option in columns.options():
            if column not in row:
                known = show_names(list(row)) or "none"
                raise ValueError(f"{where}: no column {shown(column)} (it has {known}); set {option} to another")
            if row[column] is None and columns.is_multi_label and column != columns.weight:
                raise ValueError(f"{where}: nothing in the column {column!r}")
        content, value = _join_texts(where, row, columns.texts), row[columns.labels[0]]
        value = "" if value is None else value
        if isinstance(value, list) and columns.separator:
            value = columns.separator.join(map(str, value))
        _check_label(where, columns.label, value)
        first = value if first in (None, "") else first
        if value != "" and isinstance(value, bool) != isinstance(first, bool):
            both = f"got {shown(value)}, and {shown(first)} in the first row"
            raise ValueError(f"{where}: the labels must be true and false in every row, or in none, {both}")
        try:
            f"{content}{value}".encode()
        except UnicodeEncodeError:  # possible in JSON
            raise ValueError(f"{where}: half a character (a lone surrogate)") from None
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # 1.0 is the same class as 1
        yield Row(where, content, columns.join(where, row, str(value).strip()), row.get(columns.weight))


def _join_texts(where: str, row: Mapping[str, Json], columns: Sequence[str]) -> str:
    """Return the text of a row, or both texts of a pair in one string."""
    for column in columns:
        if not isinstance(row[column], str | None):
            raise ValueError(f"{where}: the column {column!r} must be text, got {type(row[column]).__name__}")
    return PAIR.join(clean(str(row[column] or "")) for column in columns)


def _check_label(where: str, column: str, label: Json) -> None:
    """Refuse a label that is not one value: NaN, a list or an object, also if it is written as text."""
    listed = _LIST.fullmatch(label.strip()) is not None if isinstance(label, str) else isinstance(label, list | dict)
    if listed:
        raise ValueError(f"{where}: the column {column!r} must hold one label, text or a number, got the list {shown(label)}")
    if isinstance(label, float) and not math.isfinite(label):
        raise ValueError(f"{where}: the column {column!r} must be text or a finite number, got {label}")


def clean(text: str) -> str:
    """Return a text with HTML's line breaks replaced by line breaks, and null bytes by spaces."""
    return _BREAK.sub("\n", text).replace("\0", " ")


def _lines(path: Path) -> Iterator[str]:
    """Return the lines of a UTF-8 file, plain or .gz. Bytes that are not UTF-8 are an error that names the line."""
    check_regular(path)
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        raise ValueError(f"{path}: no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from None
    try:
        return io.StringIO(data.decode("utf-8-sig"), newline="")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 (byte {data[error.start]:#04x}); convert it first") from None


def _json_rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Json]]]:
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if not line.strip():
                continue
            raise ValueError(f"{path}, line {number}: not JSON ({error})") from None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: expected an object with a text and a label, got {type(row).__name__}")
        yield f"{path}, line {number}", row


def _csv_rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Json]]]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    reader = csv.DictReader(lines, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
    try:
        columns = reader.fieldnames or []
        if len(columns) == 1 and ";" in columns[0]:
            raise ValueError(f"{path}, line 1: its fields are separated by ';', expected ','")
        for row in reader:
            if row.get(None) is not None:
                raise ValueError(f"{path}, line {reader.reader.line_num}: more fields than the header has; quote the text")
            yield f"{path}, line {reader.line_num}", row
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.reader.line_num}: not CSV ({error})") from None
