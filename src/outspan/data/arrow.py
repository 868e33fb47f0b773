"""Rows of Parquet files, and of folders that `save_to_disk` of Hugging Face's `datasets` writes. They need pyarrow."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from outspan.data.members import ImageFile, Member
from outspan.files import Json, check_regular
from outspan.messages import first_line, shown

STATE = "state.json"  # lists the files of a split
_INFO = "dataset_info.json"  # describes its columns
_BATCH = 1_000  # rows that are converted at once


def is_dataset(path: Path) -> bool:
    """Return whether a path is a folder with one split of `datasets`."""
    return (path / STATE).is_file() and (path / _INFO).is_file()


def image_column(folder: Path) -> str | None:
    """Return the first column of images of a split, None if there is none."""
    return next((name for name, feature in _features(folder).items() if feature.type == "Image"), None)


def parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, Json]]]:
    """Return the rows of a Parquet file, each with its place for error messages."""
    pyarrow = _import_pyarrow(path)
    check_regular(path)
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if images := [field.name for field in file.schema_arrow if pyarrow.types.is_struct(field.type)]:
                how = "write their paths, or the folder of save_to_disk of `datasets`"
                raise ValueError(f"the column {images[0]!r} has nested values; images inside Parquet files are not read: {how}")
            rows = (row for batch in file.iter_batches(_BATCH) for row in batch.to_pylist())
            yield from ((f"{path}, row {number}", row) for number, row in enumerate(rows, 1))
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read as Parquet ({first_line(error)})") from None


def dataset_rows(folder: Path) -> Iterator[tuple[str, dict[str, Json]]]:
    """Return the rows of a split, each with its place. A class has its name, and an image the number of its row."""
    features, number = _features(folder), 0
    for _, _, table in _tables(folder):
        columns = {name: features.get(name, _Feature("")) for name in table.column_names}
        images = [name for name, feature in columns.items() if feature.type == "Image"]
        for batch in table.drop_columns(images).to_batches(_BATCH):
            for row in batch.to_pylist():
                named = {name: columns[name].name(value) for name, value in row.items()}
                yield f"{folder}, row {number + 1}", named | dict.fromkeys(images, str(number))
                number += 1


def list_images(folder: Path, column: str) -> Sequence[ImageFile]:
    """Return the images of a split, row by row: parts of its files, which are read by their offset, or files of their own."""
    images: list[ImageFile] = []
    stored = _import_pyarrow(folder).struct({"bytes": "binary", "path": "string"})
    for path, memory, table in _tables(folder):
        if column not in table.column_names or table.schema.field(column).type != stored:
            raise ValueError(f"{path}: the column {column!r} must have images as save_to_disk of `datasets` writes them")
        for chunk in table.column(column).chunks:
            content, names = chunk.field("bytes"), chunk.field("path").to_pylist()
            _, offsets, values = content.buffers()
            ends = np.frombuffer(offsets, np.int32)[content.offset : content.offset + len(content) + 1].astype(np.int64)
            ends = ends + (0 if values is None else values.address - memory.address)
            if len(ends) and not 0 <= ends[0] <= ends[-1] <= memory.size:
                raise ValueError(f"{path}: is compressed; write it with save_to_disk of `datasets`")
            for row, (name, is_inside) in enumerate(zip(names, content.is_valid().to_pylist(), strict=True)):
                if is_inside:
                    images.append(Member(path, str(len(images)), int(ends[row]), int(ends[row + 1] - ends[row])))
                elif name:
                    images.append(folder / name)
                else:
                    raise ValueError(f"{folder}, row {len(images) + 1}: no image in the column {column!r}")
    return images


@dataclass(frozen=True)
class _Feature:
    """What `datasets` knows about a column."""

    type: str
    names: tuple[str, ...] = ()  # of the classes
    items: "_Feature | None" = None  # of a list

    @staticmethod
    def read(value: Any) -> "_Feature":
        """Return the feature of an entry of dataset_info.json. What is not known has the type ""."""
        value = value if isinstance(value, dict) else {}
        names = value.get("names")
        items = _Feature.read(value["feature"]) if "feature" in value else None
        return _Feature(str(value.get("_type", "")), tuple(map(str, names)) if isinstance(names, list) else (), items)

    def name(self, value: Any) -> Any:
        """Return the name of a class, or of several, None for a class that is not known, and any other value unchanged."""
        if isinstance(value, list) and self.items is not None:
            return [self.items.name(one) for one in value]
        if self.type != "ClassLabel" or not isinstance(value, int):
            return value
        return self.names[value] if 0 <= value < len(self.names) else None


def _features(folder: Path) -> dict[str, _Feature]:
    features = _read_entry(folder / _INFO, "features")
    return {name: _Feature.read(value) for name, value in features.items()} if isinstance(features, dict) else {}


def _tables(folder: Path) -> Iterator[tuple[Path, Any, Any]]:
    """Return the Arrow files of a split, each with its mapped memory and its table, which stays there."""
    pyarrow = _import_pyarrow(folder)
    files = _read_entry(folder / STATE, "_data_files")
    for entry in files if isinstance(files, list) else []:
        name = entry.get("filename") if isinstance(entry, dict) else None
        if not isinstance(name, str) or Path(name).name != name:
            raise ValueError(f"{folder / STATE}: names of files must have no folder, got {shown(name)}")
        path = folder / name
        check_regular(path)
        try:
            with pyarrow.memory_map(str(path)) as file:
                memory = file.read_buffer()
            table = pyarrow.ipc.open_stream(memory).read_all()
            table.validate(full=True)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise ValueError(f"{path}: cannot be read as an Arrow stream ({first_line(error)})") from None
        yield path, memory, table


def _read_entry(path: Path, key: str) -> Any:
    """Return an entry of a JSON file, None if it has none."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: cannot be read ({first_line(error)})") from None
    return value.get(key) if isinstance(value, dict) else None


def _import_pyarrow(path: Path) -> Any:
    try:
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise ValueError(f"{path}: reading it needs pyarrow: pip install 'outspan[datasets]'") from None
    return pyarrow
