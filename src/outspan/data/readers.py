"""Readers of the official files. They check sizes, counts and labels, and never unpickle."""

import gzip
import io
import os
import struct
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from outspan import rng
from outspan.files import check_regular
from outspan.messages import first_line, shown
from outspan.shapes import Int64, UInt8
from outspan.transforms.filter import crop_box

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".gif", ".tif", ".tiff"}
_MAX_PIXELS = 64 * 1024 * 1024
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # others would start programs of their own


def read_idx(path: Path, shape: tuple[int, ...]) -> UInt8[Tensor, "..."]:
    """Return the bytes of an IDX file, plain or .gz, which must hold exactly this shape."""
    zipped = path.with_name(path.name + ".gz")
    expected = 4 + 4 * len(shape) + int(np.prod(shape))
    if not path.exists() and zipped.exists():
        try:
            with gzip.open(zipped) as file:
                data = file.read(expected + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{zipped}: not a whole gzip file ({first_line(error)})") from None
    else:
        data = _read(path, expected)
    header = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)
    if len(data) != expected:
        raise ValueError(f"{path}: {len(data):,} bytes, expected {expected:,}")
    if data[: len(header)] != header:
        raise ValueError(f"{path}: its header does not announce bytes of shape {list(shape)}")
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=len(header)).reshape(shape).copy())


def read_cifar(paths: list[Path], *, label_bytes: int, records: int) -> tuple[UInt8[Tensor, "N 3 32 32"], Int64[Tensor, " N"]]:
    """Return the images and (fine) labels of CIFAR's binary files, each of so many records."""
    width = label_bytes + 3072
    data = b"".join(_read(path, records * width) for path in paths)
    array = np.frombuffer(data, np.uint8).reshape(-1, width)
    labels = torch.from_numpy(array[:, label_bytes - 1].astype(np.int64))
    classes = 10 if label_bytes == 1 else 100
    if int(labels.max()) >= classes:
        raise ValueError(f"{paths[0].parent}: labels must lie below {classes}, got {int(labels.max())}")
    return torch.from_numpy(array[:, label_bytes:].reshape(-1, 3, 32, 32).copy()), labels


def read_svhn(path: Path) -> tuple[UInt8[Tensor, "N 3 32 32"], Int64[Tensor, " N"]]:
    """Return the images and labels of an SVHN file (MATLAB 5); its label 10 is the digit 0."""
    arrays = read_mat(path)
    if not {"X", "y"} <= set(arrays):
        raise ValueError(f"{path}: must hold X and y, got {shown(sorted(arrays))}")
    images, labels = arrays["X"], arrays["y"].reshape(-1).astype(np.int64)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3) or images.shape[3] != len(labels):
        raise ValueError(f"{path}: X must be bytes [32, 32, 3, {len(labels)}], got {images.dtype} {list(images.shape)}")
    if labels.min() < 1 or labels.max() > 10:
        raise ValueError(f"{path}: labels must lie in [1, 10], got {labels.min()} to {labels.max()}")
    return torch.from_numpy(images.transpose(3, 2, 0, 1).copy()), torch.from_numpy(labels % 10)


_MAT_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}


def read_mat(path: Path) -> dict[str, np.ndarray]:
    """Return the numeric arrays of a MATLAB 5 file by name; compressed ones too."""
    data = _read(path)
    if len(data) < 128 or data[126:128] != b"IM":
        raise ValueError(f"{path}: not a little-endian MATLAB 5 file")
    try:
        return dict(_matrices(memoryview(data)[128:]))
    except (struct.error, zlib.error, KeyError, ValueError, IndexError) as error:
        raise ValueError(f"{path}: not a whole MATLAB 5 file ({first_line(error)})") from None


def _matrices(data: memoryview) -> list[tuple[str, np.ndarray]]:
    found = []
    for kind, body in _elements(data):
        if kind == 15:  # compressed
            found += _matrices(memoryview(zlib.decompress(body)))
        elif kind == 14:  # a matrix: flags, dimensions, name, numbers
            (_, _), (_, dimensions), (_, name), (form, numbers) = _elements(body)[:4]
            array = np.frombuffer(numbers, "<" + _MAT_TYPES[form])
            found.append((bytes(name).decode("latin-1"), array.reshape(np.frombuffer(dimensions, "<i4"), order="F")))
    return found


def _elements(data: memoryview) -> list[tuple[int, memoryview]]:
    found, at = [], 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind >> 16:  # a small element: its size in the upper half, its body in place
            found.append((kind & 0xFFFF, data[at + 4 : at + 4 + (kind >> 16)]))
            at += 8
            continue
        if at + 8 + size > len(data):
            raise ValueError(f"an element of {size:,} bytes where {len(data) - at - 8:,} are left")
        found.append((kind, data[at + 8 : at + 8 + size]))
        at += 8 + size + (-size % 8 if kind != 15 else 0)
    return found


# An encrypted member, an unknown compression, a header that announces more than there is memory.
_RARE = (MemoryError, RuntimeError, NotImplementedError, TypeError, AttributeError)


def read_npz(path: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return train_images, train_labels, test_images, test_labels of an .npz file.

    Images are bytes [N, C, H, W], [N, H, W, C] or [N, H, W]; labels are whole numbers [N].
    """
    if _read(path, limit=2) != b"PK":
        raise ValueError(f"{path}: not an .npz file, which is a zip archive of arrays")
    found = []
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:  # on an error np.load leaves its own open
            for kind in ("train", "test"):
                for part in ("images", "labels"):
                    key = f"{kind}_{part}"
                    if key not in file:
                        raise ValueError(f"no array {key!r}, it has {', '.join(file.files) or 'none'}")
                    found.append(_images(key, file[key]) if part == "images" else _labels(key, file[key]))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, *_RARE) as error:
        raise ValueError(f"{path}: {first_line(error)}") from None
    return found[0], found[1], found[2], found[3]


def _images(key: str, array: np.ndarray) -> Tensor:
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        raise ValueError(f"{key} must be bytes of 3 or 4 axes, got {array.dtype} {list(array.shape)}")
    if array.ndim == 3:
        array = array[:, None]
    elif array.shape[1] not in (1, 3) and array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    if array.shape[1] not in (1, 3):
        raise ValueError(f"{key} must have 1 or 3 channels, got {list(array.shape)}")
    return torch.from_numpy(np.ascontiguousarray(array))


def _labels(key: str, array: np.ndarray) -> Tensor:
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{key} must be whole numbers of one axis, got {array.dtype} {list(array.shape)}")
    return torch.from_numpy(array.astype(np.int64))


Listed = tuple[list[Path], Int64[Tensor, "..."]]


_HELD_OUT = ("val", "valid", "validation")  # what a folder's second split is called; the third is test


def list_folder(path: Path) -> tuple[Listed, Listed, Listed | None, tuple[str, ...]]:
    """Return the files and labels of train, test and, where there are both, validation, and the classes.

    Each is a folder of class folders. Without a folder `test`, `val` is tested on; class folders alone are divided.
    """
    if is_undivided(path):
        classes = _classes(path)
        files, labels = _list_split(path, classes)
        tested = rng.for_testing([file.relative_to(path).as_posix() for file in files], labels.tolist())
        sides = [[i for i in range(len(files)) if (i in tested) == testing] for testing in (False, True)]
        train, test = (([files[i] for i in side], labels[side]) for side in sides)
        return train, test, None, classes
    held = next((path / name for name in _HELD_OUT if (path / name).is_dir()), None)
    tested = path / "test" if (path / "test").is_dir() else held or path / "val"
    for split in (path / "train", tested):
        if not split.is_dir():
            raise ValueError(
                f"{path}: needs the folders train and val, or test, each with a folder a class; {split} is missing"
                " (a folder of class folders alone will do, too)"
            )
    classes = _classes(path / "train")
    if not classes:
        raise ValueError(f"{path / 'train'}: has no class folders")
    splits = [path / "train", tested, *([held] if held not in (None, tested) else [])]
    for split in splits[1:]:
        if extra := sorted({*_classes(split)} - {*classes}):
            raise ValueError(f"{split}: class {extra[0]!r} is not among the train classes")
    train, test, *others = (_list_split(split, classes) for split in splits)
    return train, test, others[0] if others else None, classes


def list_tested(path: Path, classes: tuple[str, ...]) -> Listed:
    """Return the files and labels of a folder without a train split: of its test or val, or of its own class folders."""
    split = next((path / name for name in ("test", *_HELD_OUT) if (path / name).is_dir()), path)
    found = _classes(split)
    if extra := sorted({*found} - {*classes}):
        raise ValueError(f"{split}: class {extra[0]!r} is not among the run's, {', '.join(classes)}")
    if not found:
        raise ValueError(f"{split}: has no class folders")
    files, labels = _list_split(split, found)
    return files, torch.tensor([classes.index(name) for name in found])[labels]


def is_undivided(path: Path) -> bool:
    """Return whether a folder has class folders with images, and no splits, however these are called."""
    if not path.is_dir():
        return False
    classes = _classes(path)
    split = {name.casefold() for name in classes} & {"train", "training", "test", "testing", *_HELD_OUT}
    files = (file for name in classes for file in (path / name).iterdir())  # not deeper: splits hold classes, classes images
    return not split and any(file.suffix.lower() in SUFFIXES for file in files)


def _classes(split: Path) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in split.iterdir() if _is_class(entry)))


def has_images(path: Path) -> bool:
    """Return whether some class folder of train holds an image, at any depth: other files may lie beside."""
    kinds = filter(_is_class, (path / "train").iterdir()) if (path / "train").is_dir() else ()
    return any(True for kind in kinds for _ in files_below(kind, SUFFIXES))


def files_below(folder: Path, suffixes: Collection[str]) -> Iterator[Path]:
    """Return the files of some kinds at any depth below a folder, in no order; hidden ones are none."""
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] != "."]
        yield from (Path(at, name) for name in names if name[0] != "." and os.path.splitext(name)[1].lower() in suffixes)


def _is_class(entry: Path) -> bool:
    return entry.is_dir() and not entry.name.startswith(".")


def _list_split(split: Path, classes: tuple[str, ...]) -> Listed:
    files, labels = [], []
    for label, name in enumerate(classes):
        found = sorted(files_below(split / name, SUFFIXES))
        if not found:
            raise ValueError(
                f"{split / name}: an empty or missing class folder, expected images ({', '.join(sorted(SUFFIXES))})"
            )
        files += found
        labels += [label] * len(found)
    return files, torch.tensor(labels)


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """Open an image file that others made; whatever is wrong with it is a ValueError that names it."""
    check_regular(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what can be read is read; damaged metadata does not matter
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=_FORMATS) as file:
                if file.mode[0] in "IF":
                    raise ValueError(f"pixels of more than 8 bits, mode {file.mode!r}: convert it first")
                if file.width * file.height > _MAX_PIXELS:
                    raise ValueError(f"{file.width} x {file.height} pixels, at most {_MAX_PIXELS:,} are read")
                yield file
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: is a folder, not an image") from None
    except (
        OSError,
        ValueError,
        SyntaxError,
        EOFError,
        MemoryError,
        TypeError,  # Pillow's own decoders, on damaged TIFFs
        LookupError,
        AttributeError,
        ArithmeticError,
        struct.error,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise ValueError(f"{path}: cannot be read as an image ({first_line(error)})") from None


def centre_box(width: int, height: int, to_width: int, to_height: int) -> tuple[float, float, float, float]:
    """Return the largest box of the target's proportions about an image's centre: left, top, right, bottom."""
    scale = min(width / to_width, height / to_height)
    # A rounding error must not leave the image.
    half_x, half_y = min(scale * to_width, width) / 2, min(scale * to_height, height) / 2
    return width / 2 - half_x, height / 2 - half_y, width / 2 + half_x, height / 2 + half_y


def read_fitted(path: Path, height: int, width: int) -> UInt8[Tensor, "3 H W"]:
    """Return one image as RGB: the largest box of this shape about its centre, resized."""
    with opened(path) as file:
        box = centre_box(file.width, file.height, width, height)
        array = np.asarray(file.convert("RGB").resize((width, height), Image.Resampling.BILINEAR, box))
    return torch.from_numpy(array.transpose(2, 0, 1).copy())


def read_cropped(path: Path, size: int, place: list[float]) -> UInt8[Tensor, "3 H W"]:
    """Return one image as RGB: the box of a resized crop at this place in the whole image, resized."""
    with opened(path) as file:
        box = crop_box(place, file.width, file.height)
        array = np.asarray(file.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box))
    return torch.from_numpy(array.transpose(2, 0, 1).copy())


def _read(path: Path, expected: int | None = None, *, limit: int | None = None) -> bytes:
    """Return a file's bytes, of exactly the expected size; the error says what was found."""
    check_regular(path)
    try:
        found = path.stat().st_size
        if expected is not None and found != expected:
            raise ValueError(f"{path}: {found:,} bytes, expected {expected:,}")
        with io.FileIO(path) as file:
            return file.read() if limit is None else file.read(limit)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (PermissionError, IsADirectoryError, NotADirectoryError) as error:
        raise ValueError(f"{path}: {error.strerror}") from None
