"""Tables of image paths and labels: CSV, TSV, JSONL or Parquet, and folders of `datasets` with images.

Paths are relative to the folder of the table.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from outspan.data.arrow import image_column, is_dataset, list_images
from outspan.data.members import ImageFile
from outspan.data.table_labels import IMAGE, Columns, Row, read_weights
from outspan.data.tables import TABLES, find_table, first_row, label_rows, read_rows, split_rows

Listed = tuple[Sequence[ImageFile], Tensor]


def is_image_table(path: Path) -> bool:
    """Return whether a path is a table of images, or a folder with such tables: its first row names an image file."""
    path = find_table(path, "train") or path
    if is_dataset(path):
        return _image_column(path) is not None
    return path.is_file() and path.name.lower().endswith(TABLES) and _image_column(path) is not None


def _image_column(path: Path) -> str | None:
    """Return the first column whose value in the first row is the name of an image; None if there is a column of texts."""
    try:
        if is_dataset(path):
            return image_column(path)
        row = first_row(path)
    except ValueError:  # reported when it is read
        return None
    if "text" in row:
        return None
    return next((name for name, value in row.items() if isinstance(value, str) and IMAGE.fullmatch(value.strip())), None)


def list_table(path: Path, columns: Columns, skip_bad: int) -> tuple[Listed, Listed, tuple[str, ...], Tensor | None]:
    """Return the image files and labels of train and test, the classes, and the weights of train, if there are any.

    A table alone is divided by its paths. Up to `skip_bad` files of a split may not exist.
    """
    table = find_table(path, "train") or path
    columns = replace(columns, text=_image_column(table) or columns.text)
    train, test = split_rows(path, columns)
    classes, labels = label_rows(path, (train, test), columns)
    of_test = find_table(path, "test") or find_table(path, "validation") or path
    files = [_files(where, rows, columns.text, skip_bad) for where, rows in ((table, train), (of_test, test))]
    return (files[0], labels[0]), (files[1], labels[1]), classes, read_weights(train, columns)


def list_whole_table(path: Path, classes: tuple[str, ...], columns: Columns, skip_bad: int) -> Listed:
    """Return all image files of a table, and their labels, which must be among the classes."""
    columns = replace(columns, text=_image_column(path) or columns.text)
    rows, labels = read_rows(path, classes, columns)
    return _files(path, rows, columns.text, skip_bad), labels


def _files(table: Path, rows: Sequence[Row], column: str, skip_bad: int) -> Sequence[ImageFile]:
    """Return the image of each row of a table. More than `skip_bad` that do not exist raise an error."""
    if is_dataset(table):
        images = list_images(table, column)
        return [images[int(row.content)] for row in rows]
    paths = [table.parent / row.content.strip() for row in rows]
    names: dict[Path, set[str]] = {}  # of each folder: listing a folder is faster than asking for each file
    missing = []
    for row, path in enumerate(paths):
        if path.parent not in names:
            names[path.parent] = {*os.listdir(path.parent)} if path.parent.is_dir() else set()
        if path.name not in names[path.parent] and not path.exists():  # a file system may ignore the case of names
            missing.append(row)
    if len(missing) > skip_bad:
        where, count = rows[missing[0]].where, f"{len(missing):,} of {len(rows):,} files do not exist"
        how = "paths are relative to the folder of the table"
        raise ValueError(f"{where}: {paths[missing[0]]}: no such file ({count}); {how}")
    return paths
