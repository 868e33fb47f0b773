"""Folders of image files: which splits and classes they have. No image is read here."""

import os
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from outspan.data.dividing import pick_test_rows
from outspan.data.listings import Entry, Stamp, recall, take_stamp
from outspan.data.members import ImageFile
from outspan.shapes import Bool, Int64

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".gif", ".tif", ".tiff"}
_HEIC = {".heic", ".heif"}  # the photographs of iPhones, which Pillow does not read
_CONVERT = "HEIC images are not read: convert them to JPEG"
Listing = tuple[Sequence[ImageFile], Int64[Tensor, "..."] | Bool[Tensor, "... classes"]]  # files and their labels
_WORTH_STORING = 10_000  # fewer files are listed faster than a user notices
_VALIDATION = ("val", "valid", "validation")  # names of the validation folder
_SPLITS = {"train", "training", "test", "testing", *_VALIDATION}


@dataclass(frozen=True, eq=False)
class Paths(Sequence[Path]):
    """Files below a folder. A path is created when it is needed: a million paths would take seconds."""

    folder: Path
    names: Sequence[str]

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self.names)

    def __getitem__(self, row: int) -> Path:  # pyright: ignore[reportIncompatibleMethodOverride], no slices
        """Return the path of a file."""
        return self.folder / self.names[row]


def list_folder(path: Path) -> tuple[Listing, Listing, Listing | None, tuple[str, ...]]:
    """Return the files and labels of the splits train, test and validation, and the classes.

    Each split is a folder of class folders. The validation split is None unless there are both `val` and `test`. Without
    `test`, `val` is the test split. Class folders alone are divided into train and test.
    """
    if is_undivided(path):
        classes = _classes(path)
        names, labels = _list_names(path, classes)
        picked = pick_test_rows(names, labels.tolist())
        sides = [[i for i in range(len(names)) if (i in picked) == testing] for testing in (False, True)]
        train, test = ((Paths(path, [names[i] for i in side]), labels[side]) for side in sides)
        return train, test, None, classes
    validation = next((path / name for name in _VALIDATION if (path / name).is_dir()), None)
    test_folder = path / "test" if (path / "test").is_dir() else validation or path / "val"
    for split in (path / "train", test_folder):
        if not split.is_dir():
            if any(files_below(path, _HEIC)):
                raise ValueError(f"{path}: {_CONVERT}")
            raise ValueError(
                f"{path}: needs the folders train and val (or test), each with one folder per class; {split} is missing"
                " (a folder of class folders alone is accepted, too)"
            )
    classes = _classes(path / "train")
    if not classes:
        raise ValueError(f"{path / 'train'}: has no class folders")
    splits = [path / "train", test_folder, *([validation] if validation not in (None, test_folder) else [])]
    for split in splits[1:]:
        _check_classes(split, classes, "the train classes")
    train, test, *others = (_list_split(split, classes) for split in splits)
    return train, test, others[0] if others else None, classes


def list_whole(path: Path, classes: tuple[str, ...]) -> Listing:
    """Return the files and labels of a folder without a train split: of its test or val folder, or of its class folders."""
    split = next((path / name for name in ("test", *_VALIDATION) if (path / name).is_dir()), path)
    present = _check_classes(split, classes, f"the classes of the run, {', '.join(classes)}")
    if not present:
        raise ValueError(f"{split}: has no class folders")
    files, labels = _list_split(split, present)
    return files, torch.tensor([classes.index(name) for name in present])[labels]


def is_undivided(path: Path) -> bool:
    """Return whether a folder has class folders with images, and no folders of splits."""
    if not path.is_dir():
        return False
    classes = _classes(path)
    return not {name.casefold() for name in classes} & _SPLITS and any(_has_image(path / name) for name in classes)


def has_images(path: Path) -> bool:
    """Return whether a class folder of `train` holds an image, at any depth. Other files may be there, too."""
    folders = filter(_is_class, (path / "train").iterdir()) if (path / "train").is_dir() else ()
    return any(True for folder in folders for _ in files_below(folder, SUFFIXES))


def files_below(folder: Path, suffixes: Collection[str]) -> Iterator[Path]:
    """Return the files with these suffixes at any depth below a folder, in no order, without hidden ones."""
    return (folder / name for name in _names_below(folder, suffixes, {}))


def _names_below(folder: Path, suffixes: Collection[str], stamps: dict[str, Stamp]) -> Iterator[str]:
    """Return the same files as relative names. The stamp of each folder is added before the folder is listed."""
    parents = [""]
    while parents:
        parent = parents.pop()
        try:
            stamps[parent] = take_stamp(folder / parent)
            with os.scandir(folder / parent) as entries:
                for entry in entries:
                    if entry.name[0] == ".":
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        parents.append(f"{parent}{entry.name}/")
                    elif _is_image(entry.name, suffixes) and not (entry.is_symlink() and os.path.isdir(entry)):
                        yield parent + entry.name
        except (FileNotFoundError, NotADirectoryError):  # the caller refuses a class without images
            continue
        except OSError as error:
            raise ValueError(f"{folder / parent}: cannot be listed ({error.strerror})") from None


def _is_image(name: str, suffixes: Collection[str] = SUFFIXES) -> bool:
    return os.path.splitext(name)[1].lower() in suffixes


def _has_image(folder: Path) -> bool:
    """Return whether an image is in a folder itself, not deeper: a split contains class folders."""
    with os.scandir(folder) as entries:
        return any(_is_image(entry.name) for entry in entries)


def _check_classes(split: Path, known: tuple[str, ...], title: str) -> tuple[str, ...]:
    """Return the classes of a split. A class that is not known is a ValueError; `title` says what the known classes are."""
    classes = _classes(split)
    if extra := sorted({*classes} - {*known}):
        raise ValueError(f"{split}: class {extra[0]!r} is not among {title}")
    return classes


def _classes(split: Path) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in split.iterdir() if _is_class(entry)))


def _is_class(entry: Path) -> bool:
    return entry.is_dir() and not entry.name.startswith(".")


def _list_split(split: Path, classes: tuple[str, ...]) -> Listing:
    names, labels = _list_names(split, classes)
    return Paths(split, names), labels


def _list_names(split: Path, classes: tuple[str, ...]) -> tuple[list[str], Int64[Tensor, "..."]]:
    """Return the names of the files of a split, such as "cat/1.png", class by class, and their labels."""
    names, counts = [], []
    for name, entry in zip(classes, recall(split, classes, _read_class, least=_WORTH_STORING), strict=True):
        [members] = entry.columns
        if not members:
            raise ValueError(
                f"{split / name}: an empty or missing class folder, expected images ({', '.join(sorted(SUFFIXES))})"
            )
        names += [f"{name}/{member}" for member in members]
        counts.append(len(members))
    return names, torch.arange(len(classes)).repeat_interleave(torch.tensor(counts))


def _read_class(folder: Path) -> Entry:
    """Return the files of a class folder in the order of their paths, part by part: a NUL is in no name and sorts first."""
    stamps: dict[str, Stamp] = {}
    every = list(_names_below(folder, SUFFIXES | _HEIC, stamps))
    names = sorted((name for name in every if _is_image(name)), key=lambda name: name.replace("/", "\0"))
    if left_out := len(every) - len(names):
        if not names:
            raise ValueError(f"{folder}: {_CONVERT}")
        warnings.warn(f"{folder}: {left_out} of {len(every)} files are left out: {_CONVERT}", stacklevel=3)
    return Entry(stamps, [names])
