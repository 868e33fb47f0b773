"""Tables of texts without labels: their text column, which is predicted, and their rows, to which transforms are applied."""

import csv
import io
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outspan.data.arrow import is_dataset
from outspan.data.table_labels import show_names, text_columns
from outspan.data.tables import clean, find_table, is_table, raw_rows, read_text
from outspan.files import Json, write_lines, write_whole
from outspan.messages import shown
from outspan.text.segments import PAIR

_DELIMITERS: Mapping[str, str] = {".csv": ",", ".tsv": "\t"}
_WRITTEN = (*_DELIMITERS, ".jsonl", ".txt")


def read_text_column(path: Path, column: str, *, how: str, skip_bad: int | None = None) -> dict[int, str]:
    """Return the texts of a table by the number of their row, from 1. Its labels are not read.

    All rows without a text are named in one error. Up to `skip_bad` of them are left out, with a warning. `how` tells what to
    do if the table does not have the column.
    """
    texts, bad, columns = {}, [], text_columns(column)
    for number, (where, row) in enumerate(raw_rows(path), 1):
        if missing := [name for name in columns if name not in row]:
            raise ValueError(f"{where}: no column {shown(missing[0])} (it has {show_names(list(row)) or 'none'}); {how}")
        parts = [clean(text) if isinstance(text := row[name], str) else "" for name in columns]
        if all(part.strip() for part in parts):
            texts[number] = PAIR.join(parts)
        else:
            bad.append(where.rpartition(" ")[2])
    if bad:
        count, lines = len(texts) + len(bad), ", ".join(bad[:10]) + (", …" if len(bad) > 10 else "")
        problem = f"{path}: {len(bad):,} of {count:,} rows have no text in the column {column!r}: lines {lines}"
        if len(bad) > (skip_bad or 0):
            skip = "" if skip_bad is None else f", or leave these rows out with --skip-bad {len(bad)}"
            raise ValueError(f"{problem}; add what is missing{skip}")
        warnings.warn(f"{problem}; these rows are left out", stacklevel=3)
    if not texts:
        raise ValueError(f"{path}: the table has no rows")
    return texts


@dataclass(frozen=True)
class TextRows:
    """The texts of a file, and for each its row with all columns."""

    texts: list[str]
    rows: list[dict[str, Json]]
    column: str

    def labels(self, column: str) -> list[Json] | None:
        """Return the labels of the texts, None if the rows do not have this column."""
        return [row[column] for row in self.rows] if column in self.rows[0] else None

    def write(self, path: Path, texts: Sequence[str]) -> None:
        """Write the rows with other texts: as a table with all columns, or to a .txt file with a text per line."""
        suffix = check_written(path)
        rows = [{**row, self.column: text} for row, text in zip(self.rows, texts, strict=True)]
        if suffix == ".jsonl":
            return write_lines(path, rows)
        if suffix == ".txt":
            content = "".join(f"{' '.join(text.split())}\n" for text in texts)
        else:
            buffer = io.StringIO(newline="")
            writer = csv.DictWriter(buffer, [*rows[0]], delimiter=_DELIMITERS[suffix])
            writer.writeheader()
            writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
            content = buffer.getvalue()
        return write_whole(path, lambda partial: partial.write_text(content, encoding="utf-8", newline=""))


def find_text_table(path: Path) -> Path | None:
    """Return the table at a path, or that of the train split of a folder; None for anything else."""
    return path if is_table(path) or is_dataset(path) else find_table(path, "train")


def read_rows_with_texts(path: Path, column: str) -> TextRows:
    """Return the texts of a .txt file, which is one, of a table, or of the train table of a folder."""
    table = find_text_table(path)
    if table is None:
        text = read_text(path)
        return TextRows([text], [{column: text}], column)
    texts = read_text_column(table, column, how="name another with --text-column")
    return TextRows([*texts.values()], [row for _, row in raw_rows(table)], column)


def check_written(path: Path) -> str:
    """Return the suffix of a file to which texts are written. Refuse another one."""
    suffix = path.suffix.lower()
    if suffix not in _WRITTEN:
        raise ValueError(f"{path}: texts are written as {', '.join(_WRITTEN[:-1])} or .txt, got {suffix or 'no suffix'!r}")
    return suffix


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
