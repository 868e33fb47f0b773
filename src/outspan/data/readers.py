"""Readers of the official binary files. They check sizes, counts and labels, and never unpickle."""

import gzip
import io
import struct
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from outspan.files import check_regular
from outspan.messages import first_line, shown
from outspan.shapes import Int64, UInt8


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
    """Return the images and (fine) labels of CIFAR's binary files, each with this number of records."""
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
        raise ValueError(f"{path}: X must be uint8 [32, 32, 3, {len(labels)}], got {images.dtype} {list(images.shape)}")
    if labels.min() < 1 or labels.max() > 10:
        raise ValueError(f"{path}: labels must lie in [1, 10], got {labels.min()} to {labels.max()}")
    return torch.from_numpy(images.transpose(3, 2, 0, 1).copy()), torch.from_numpy(labels % 10)


_MATRIX, _COMPRESSED = 14, 15  # types of elements
_MAT_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}


def read_mat(path: Path) -> dict[str, np.ndarray]:
    """Return the numeric arrays of a MATLAB 5 file by name. They may be compressed."""
    data = _read(path)
    if len(data) < 128 or data[126:128] != b"IM":
        raise ValueError(f"{path}: not a little-endian MATLAB 5 file")
    try:
        return dict(_matrices(memoryview(data)[128:]))
    except (struct.error, zlib.error, KeyError, ValueError, IndexError) as error:
        raise ValueError(f"{path}: not a whole MATLAB 5 file ({first_line(error)})") from None


def _matrices(data: memoryview) -> list[tuple[str, np.ndarray]]:
    matrices = []
    for type_, body in _elements(data):
        if type_ == _COMPRESSED:
            matrices += _matrices(memoryview(zlib.decompress(body)))
        elif type_ == _MATRIX:  # flags, dimensions, name, numbers
            (_, _), (_, dimensions), (_, name), (dtype, numbers) = _elements(body)[:4]
            array = np.frombuffer(numbers, "<" + _MAT_TYPES[dtype])
            matrices.append((bytes(name).decode("latin-1"), array.reshape(np.frombuffer(dimensions, "<i4"), order="F")))
    return matrices


def _elements(data: memoryview) -> list[tuple[int, memoryview]]:
    elements, at = [], 0
    while at + 8 <= len(data):
        type_, size = struct.unpack_from("<II", data, at)
        if type_ >> 16:  # a small element: its size is in the upper half, and its body follows at once
            elements.append((type_ & 0xFFFF, data[at + 4 : at + 4 + (type_ >> 16)]))
            at += 8
            continue
        if at + 8 + size > len(data):
            raise ValueError(f"an element has {size:,} bytes, but only {len(data) - at - 8:,} are left")
        elements.append((type_, data[at + 8 : at + 8 + size]))
        at += 8 + size + (-size % 8 if type_ != _COMPRESSED else 0)
    return elements


# Errors of np.load on an encrypted member, an unknown compression, or a header that announces more than fits in memory.
_LOAD_ERRORS = (MemoryError, RuntimeError, NotImplementedError, TypeError, AttributeError)


def read_npz(path: Path) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Return train_images, train_labels, test_images, test_labels and train_weights, if it has them, of an .npz file.

    Keras' names, x_train etc., are allowed.

    Images are bytes [N, C, H, W], [N, H, W, C] or [N, H, W]. Labels are integers [N] or [N, 1], or rows of 0 and 1, one column
    per class.
    If all of these rows have a single 1, they are returned as integers, otherwise as bool.
    """
    if _read(path, limit=2) != b"PK":
        raise ValueError(f"{path}: not an .npz file, which is a zip archive of arrays")
    arrays, weights = [], None
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:  # on an error np.load leaves its own open
            for key, (other, read) in _ARRAYS.items():
                name = next((name for name in (key, other) if name in file), None)
                if name is None:
                    raise ValueError(f"no array {key!r} or {other!r}, it has {', '.join(file.files) or 'none'}")
                arrays.append(read(name, file[name]))
            if _WEIGHTS_NAME in file:
                weights = _weights(_WEIGHTS_NAME, file[_WEIGHTS_NAME], len(arrays[1]))
            known = {_WEIGHTS_NAME, *_ARRAYS, *(name for name, _ in _ARRAYS.values())}
            unused = [name for name in file.files if name not in known]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, *_LOAD_ERRORS) as error:
        raise ValueError(f"{path}: {first_line(error)}") from None
    if unused:
        others = f"the weights of training images are called {_WEIGHTS_NAME!r}"
        warnings.warn(f"{path}: arrays that are not used: {', '.join(unused)} ({others})", stacklevel=3)
    train_images, train_labels, test_images, test_labels = arrays
    if all(labels.ndim == 2 and bool((labels.sum(1) == 1).all()) for labels in (train_labels, test_labels)):
        train_labels, test_labels = train_labels.long().argmax(1), test_labels.long().argmax(1)
    return train_images, train_labels, test_images, test_labels, weights


def _images(key: str, array: np.ndarray) -> Tensor:
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        hint = ": store the bytes from 0 to 255 before they are scaled" if array.dtype.kind == "f" else ""
        raise ValueError(
            f"{key} must be uint8 images [N, H, W], [N, C, H, W] or [N, H, W, C], got {array.dtype} {list(array.shape)}{hint}"
        )
    if array.ndim == 3:
        array = array[:, None]
    elif array.shape[1] not in (1, 3) and array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    if array.shape[1] not in (1, 3):
        raise ValueError(f"{key} must have 1 or 3 channels, got {list(array.shape)}")
    return torch.from_numpy(np.ascontiguousarray(array))


def _labels(key: str, array: np.ndarray) -> Tensor:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    shown_as = f"got {array.dtype} {list(array.shape)}"
    if array.ndim > 2:
        raise ValueError(f"{key} must have one or two axes, {shown_as}: segmentation masks are not supported")
    if array.ndim == 2:
        if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
            raise ValueError(f"{key} of two axes must be rows of 0 and 1, one column per class, {shown_as} with other values")
        return torch.from_numpy(array.astype(bool))
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        regression = ": regression is not supported" if array.dtype.kind == "f" else ""
        raise ValueError(f"{key} must be whole numbers of one axis, {shown_as}{regression}")
    return torch.from_numpy(array.astype(np.int64))


def _weights(key: str, array: np.ndarray, count: int) -> Tensor:
    if array.shape != (count,) or array.dtype.kind not in "iuf":
        raise ValueError(f"{key} must be one number per training image, [{count}], got {array.dtype} {list(array.shape)}")
    return torch.from_numpy(array.astype(np.float64))


_WEIGHTS_NAME = "train_weights"
# The arrays of an .npz file: their names here and in Keras, and their readers.
_ARRAYS = {
    "train_images": ("x_train", _images),
    "train_labels": ("y_train", _labels),
    "test_images": ("x_test", _images),
    "test_labels": ("y_test", _labels),
}


def _read(path: Path, expected: int | None = None, *, limit: int | None = None) -> bytes:
    """Return the bytes of a file, up to `limit`. Its size must be the expected one."""
    check_regular(path)
    try:
        size = path.stat().st_size
        if expected is not None and size != expected:
            raise ValueError(f"{path}: {size:,} bytes, expected {expected:,}")
        with io.FileIO(path) as file:
            return file.read() if limit is None else file.read(limit)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (PermissionError, IsADirectoryError, NotADirectoryError) as error:
        raise ValueError(f"{path}: {error.strerror}") from None
