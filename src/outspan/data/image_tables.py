"""Tables of image paths and labels: CSV, TSV or JSONL. Paths are relative to the folder of the table."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from outspan.data.table_labels import IMAGE, Columns, Row, read_weights
from outspan.data.tables import TABLES, find_table, first_row, label_rows, read_rows, split_rows

Listed = tuple[list[Path], Tensor]


def is_image_table(path: Path) -> bool:
    """Return whether a path is a table of images, or a folder with such tables: its first row names an image file."""
    if path.is_dir():
        path = find_table(path, "train") or path
    return path.is_file() and path.name.lower().endswith(TABLES) and _image_column(path) is not None


def _image_column(path: Path) -> str | None:
    """Return the first column whose value in the first row is the name of an image; None if there is a column of texts."""
    try:
        row = first_row(path)
    except ValueError:  # reported when it is read
        return None
    if "text" in row:
        return None
    return next((name for name, value in row.items() if isinstance(value, str) and IMAGE.fullmatch(value.strip())), None)


def list_table(path: Path, columns: Columns) -> tuple[Listed, Listed, tuple[str, ...], Tensor | None]:
    """Return the image files and labels of train and test, the classes, and the weights of train, if there are any.

    A table alone is divided by its paths.
    """
    table = (find_table(path, "train") or path) if path.is_dir() else path
    columns = replace(columns, text=_image_column(table) or columns.text)
    train, test = split_rows(path, columns)
    classes, labels = label_rows(path, (train, test), columns)
    return (_paths(path, train), labels[0]), (_paths(path, test), labels[1]), classes, read_weights(train, columns)


def list_whole_table(path: Path, classes: tuple[str, ...], columns: Columns) -> Listed:
    """Return all image files of a table, and their labels, which must be among the classes."""
    columns = replace(columns, text=_image_column(path) or columns.text)
    rows, labels = read_rows(path, classes, columns)
    return _paths(path, rows), labels


def _paths(path: Path, rows: Sequence[Row]) -> list[Path]:
    folder = path if path.is_dir() else path.parent
    return [folder / row.content.strip() for row in rows]
