"""The formats of data at a path, `FORMATS`: tables, texts, an .npz file of images, tar shards and a folder of images."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from outspan.data import folders, image_tables, published, shards, tables
from outspan.data.arrow import is_dataset
from outspan.data.dataset import Data, ReadOptions
from outspan.data.image_files import Files
from outspan.data.splits import Samples
from outspan.data.table_labels import Columns
from outspan.text.documents import Documents


@dataclass(frozen=True)
class PathFormat:
    """How data of a format is recognized and read."""

    noun: str
    matches: Callable[[Path], bool]
    read: Callable[[str, Path, ReadOptions], Data]  # the first argument is the name of the data
    is_undivided: Callable[[Path], bool] = lambda path: False  # whether it has no test split of its own
    has_test_only: Callable[[Path], bool] = lambda path: False  # whether it has no training split
    # All samples of undivided data, or those of the only split. The classes are those of a run.
    read_whole: Callable[[Path, tuple[str, ...], ReadOptions], Samples] | None = None


def _read_texts(name: str, path: Path, options: ReadOptions) -> Data:
    columns = _columns(options)
    names = {"text": columns.text, "label": columns.label, "separator": columns.separator, "weight": columns.weight}
    return Data(name, *tables.read_documents(path, **names, skip_bad=options.skip_bad))


def _read_whole_table(path: Path, classes: tuple[str, ...], options: ReadOptions) -> Documents:
    columns = _columns(options)
    names = {"text": columns.text, "label": columns.label, "separator": columns.separator}
    return tables.read_table(path, classes, **names, skip_bad=options.skip_bad)


def _columns(options: ReadOptions) -> Columns:
    return Columns(options.text_column, options.label_column, options.label_separator, options.weight_column)


def _read_image_table(name: str, path: Path, options: ReadOptions) -> Data:
    train, (paths, labels), classes, weights = image_tables.list_table(path, _columns(options), options.skip_bad)
    first = published.make_files(train, options)
    return Data(name, replace(first, weights=weights), replace(first, paths=paths, labels=labels), classes)


def _read_whole_image_table(path: Path, classes: tuple[str, ...], options: ReadOptions) -> Files:
    return published.make_files(image_tables.list_whole_table(path, classes, _columns(options), options.skip_bad), options)


def _read_whole_folder(path: Path, classes: tuple[str, ...], options: ReadOptions) -> Files:
    return published.make_files(folders.list_whole(path, classes), options)


def _read_whole_shards(path: Path, classes: tuple[str, ...], options: ReadOptions) -> Files:
    return published.read_whole_shards(path, options)[1]


def _is_one_table(path: Path) -> bool:
    return path.is_file() or is_dataset(path)


_IMAGE_FOLDER = PathFormat(
    "images",
    Path.is_dir,
    published.read_folder,
    is_undivided=folders.is_undivided,
    has_test_only=lambda path: not (path / "train").is_dir(),
    read_whole=_read_whole_folder,
)
# The first format that matches a path is used. Class folders with images come first, because they may also contain tables.
FORMATS = (
    replace(_IMAGE_FOLDER, matches=folders.has_images),
    PathFormat(
        "images",
        image_tables.is_image_table,
        _read_image_table,
        is_undivided=_is_one_table,
        read_whole=_read_whole_image_table,
    ),
    PathFormat("texts", tables.is_text, _read_texts, is_undivided=_is_one_table, read_whole=_read_whole_table),
    PathFormat("images", lambda path: path.suffix == ".npz", lambda name, path, options: published.read_arrays(name, path)),
    PathFormat(
        "images", shards.is_shards, published.read_shards, is_undivided=lambda path: True, read_whole=_read_whole_shards
    ),
    _IMAGE_FOLDER,
)


def find_format(path: Path) -> PathFormat | None:
    """Return the format of data at a path, or None if there is no such data."""
    return next((path_format for path_format in FORMATS if path_format.matches(path)), None)
