"""Files without labels, which a trained model classifies: images, or texts in .txt files and tables."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from outspan.config import Recipe
from outspan.data.decode import Pixels, read_fitted
from outspan.data.folders import SUFFIXES, files_below
from outspan.data.splits import InMemory, Samples, Split
from outspan.data.table_labels import text_columns
from outspan.data.tables import TABLES, is_table, read_text
from outspan.data.text_rows import find_text_table, read_text_column
from outspan.messages import shown
from outspan.text.documents import Documents
from outspan.text.segments import PAIR

_LONGEST_NAME = 256  # of a file


class Place(NamedTuple):
    """Where a sample is: a file and a row in a table, or a row in a list; counted from 1; 0 for a file that is one sample."""

    file: Path | None  # None for samples in memory
    row: int
    text: str | None = None  # of a text in memory


@dataclass(frozen=True)
class _Format:
    """How files of one noun are recognized, read and collected."""

    suffixes: Collection[str]
    # The samples of a file by their row, for a model with this input shape; the last argument is `skip_bad`.
    read: Callable[[Path, tuple[int, ...], Recipe, int], Mapping[int, Any]]
    collect: Callable[[list[Any], Tensor], Samples]  # makes samples of what was read, and of labels
    convert: Callable[[Any, tuple[int, ...]], list[Any] | None]  # returns samples in memory; None for paths


def _read_texts(path: Path, shape: tuple[int, ...], recipe: Recipe, skip_bad: int) -> dict[int, str]:
    if is_table(path):
        how = "rename the column of the texts: the run was trained with this name"
        return read_text_column(path, recipe.text_column, how=how, skip_bad=skip_bad)
    if len(text_columns(recipe.text_column)) == 2:
        raise ValueError(f"{path}: the model takes pairs of texts: use a table with the columns {recipe.text_column}")
    if path.suffix.lower() == ".json":
        raise ValueError(f"{path}: not a table that predict reads: write JSON lines (.jsonl), CSV or TSV")
    return {0: read_text(path)}


def _read_image(path: Path, shape: tuple[int, ...], recipe: Recipe, skip_bad: int) -> dict[int, Tensor]:
    channels, height, width = shape
    return {0: read_fitted(path, height, width, Pixels(channels, recipe.background))}


def _collect_images(images: list[Tensor], labels: Tensor) -> InMemory:
    return InMemory(torch.stack(images), labels)


def _convert_images(inputs: Any, shape: tuple[int, ...]) -> list[Tensor] | None:
    """Return a batch of images, a tensor or an array, as a list; None for anything else."""
    if not isinstance(inputs, Tensor | np.ndarray):
        return None
    images = torch.as_tensor(inputs)
    if images.dtype != torch.uint8 or images.ndim != 4 or tuple(images.shape[1:]) != shape:
        expected = f"uint8 [B, {', '.join(map(str, shape))}]"
        raise ValueError(f"images must be {expected}, as the model was trained on, got {images.dtype} {list(images.shape)}")
    return list(images.cpu())


def _convert_texts(inputs: Any, shape: tuple[int, ...]) -> list[str] | None:
    """Return texts as a list; None for paths."""
    inputs = inputs.to_list() if hasattr(inputs, "to_list") else inputs  # a series of pandas
    if isinstance(inputs, str | Path) or not isinstance(inputs, Sequence):
        if isinstance(inputs, str | Tensor | np.ndarray):
            raise ValueError(f"texts must be a list of strings, or paths of .txt files, got {type(inputs).__name__}")
        return None
    if not inputs or isinstance(inputs[0], Path):
        return None
    texts = []
    for i, text in enumerate(inputs):
        parts = [text] if isinstance(text, str) else list(text) if isinstance(text, tuple | list) and len(text) == 2 else [""]
        if not all(isinstance(part, str) and part.strip() for part in parts):
            raise ValueError(f"texts must be strings that are not empty, or pairs of them, got {shown(text)} at position {i}")
        if _is_file(parts[0]):
            raise ValueError(f"texts must not be names of files, got {text!r} at position {i}: pass Path({text!r}) to read it")
        texts.append(PAIR.join(part.replace(PAIR, " ") for part in parts))
    return texts


def _is_file(text: str) -> bool:
    """Return whether a text is the name of a file that `predict` would read."""
    has_suffix = len(text) < _LONGEST_NAME and text.lower().endswith((*TABLES, ".txt"))
    return has_suffix and Path(text).is_file()


_FORMATS: Mapping[str, _Format] = MappingProxyType(
    {
        "images": _Format(SUFFIXES, _read_image, _collect_images, _convert_images),
        "texts": _Format({".txt"}, _read_texts, partial(Documents, stores_tokens=False), _convert_texts),
    }
)


def noun_of_file(path: Path) -> str:
    """Return what a file or a folder with tables holds, by its name: "texts" for .txt files and tables, else "images"."""
    return ("images", "texts")[path.suffix.lower() in _FORMATS["texts"].suffixes or find_text_table(path) is not None]


def list_files(paths: Sequence[Path], noun: str) -> list[Path]:
    """Return the files of paths: a path that is a file, and all "images" or "texts" below a folder, sorted by name."""
    file_format, result = _FORMATS[noun], []
    for path in paths:
        files = sorted(filter(Path.is_file, files_below(path, file_format.suffixes))) if path.is_dir() else [path]
        if not files:
            raise ValueError(f"{path}: no supported files in this folder, expected {', '.join(sorted(file_format.suffixes))}")
        result += files
    return result


def read_files(
    paths: Sequence[Path],
    noun: str,
    shape: tuple[int, ...],
    recipe: Recipe,
    on_error: Callable[[ValueError], object],
    skip_bad: int = 0,
) -> tuple[list[Place], Split | None]:
    """Return where each sample of the readable files is, and the samples as a split for a model of this shape, or None.

    `on_error` is called with the error of each unreadable file.
    """
    file_format, readable, items = _FORMATS[noun], [], []
    for path in paths:
        try:
            samples = file_format.read(path, shape, recipe, skip_bad)
        except ValueError as error:
            on_error(error)
            continue
        readable += [Place(path, row) for row in samples]
        items += samples.values()
    if not readable:
        return [], None
    labels = torch.zeros(len(readable), dtype=torch.int64)
    return readable, file_format.collect(items, labels).prepared(recipe)


def make_inputs(inputs: Any, noun: str, shape: tuple[int, ...], recipe: Recipe) -> tuple[list[Place], Split | None]:
    """Return the places of samples in memory, a batch of images or a list of texts, and a split; None if they are paths."""
    file_format = _FORMATS[noun]
    samples = file_format.convert(inputs, shape)
    if not samples:
        return [], None
    texts = (sample.replace(PAIR, "\t") if isinstance(sample, str) else None for sample in samples)
    places = [Place(None, row, text) for row, text in enumerate(texts, 1)]
    return places, file_format.collect(samples, torch.zeros(len(samples), dtype=torch.int64)).prepared(recipe)
