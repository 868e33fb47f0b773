"""Folders of image files: which splits and classes they have. No image is read here."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

import torch
from torch import Tensor

from outspan.data.dividing import pick_test_rows
from outspan.shapes import Int64

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".gif", ".tif", ".tiff"}
Listing = tuple[list[Path], Int64[Tensor, "..."]]  # files and their labels
_VALIDATION = ("val", "valid", "validation")  # names of the validation folder
_SPLITS = {"train", "training", "test", "testing", *_VALIDATION}


def list_folder(path: Path) -> tuple[Listing, Listing, Listing | None, tuple[str, ...]]:
    """Return the files and labels of the splits train, test and validation, and the classes.

    Each split is a folder of class folders. The validation split is None unless there are both `val` and `test`. Without
    `test`, `val` is the test split. Class folders alone are divided into train and test.
    """
    if is_undivided(path):
        classes = _classes(path)
        files, labels = _list_split(path, classes)
        picked = pick_test_rows([file.relative_to(path).as_posix() for file in files], labels.tolist())
        sides = [[i for i in range(len(files)) if (i in picked) == testing] for testing in (False, True)]
        train, test = (([files[i] for i in side], labels[side]) for side in sides)
        return train, test, None, classes
    validation = next((path / name for name in _VALIDATION if (path / name).is_dir()), None)
    test_folder = path / "test" if (path / "test").is_dir() else validation or path / "val"
    for split in (path / "train", test_folder):
        if not split.is_dir():
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
    files = (file for name in classes for file in (path / name).iterdir())  # not deeper: a split contains class folders
    return not {name.casefold() for name in classes} & _SPLITS and any(file.suffix.lower() in SUFFIXES for file in files)


def has_images(path: Path) -> bool:
    """Return whether a class folder of `train` holds an image, at any depth. Other files may be there, too."""
    folders = filter(_is_class, (path / "train").iterdir()) if (path / "train").is_dir() else ()
    return any(True for folder in folders for _ in files_below(folder, SUFFIXES))


def files_below(folder: Path, suffixes: Collection[str]) -> Iterator[Path]:
    """Return the files with these suffixes at any depth below a folder, in no order, without hidden ones."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] != "."]
        yield from (Path(parent, name) for name in names if name[0] != "." and os.path.splitext(name)[1].lower() in suffixes)


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
    files, labels = [], []
    for label, name in enumerate(classes):
        members = sorted(files_below(split / name, SUFFIXES))
        if not members:
            raise ValueError(
                f"{split / name}: an empty or missing class folder, expected images ({', '.join(sorted(SUFFIXES))})"
            )
        files += members
        labels += [label] * len(members)
    return files, torch.tensor(labels)
