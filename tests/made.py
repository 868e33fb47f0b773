"""Write small files in the official formats of the data sets."""

import io
import struct
import tarfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

DRAW = np.random.Generator(np.random.Philox(7))


def idx(array: np.ndarray) -> bytes:
    """Return an array as an IDX file."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def mat_element(code: int, body: bytes) -> bytes:
    """Return an element of a MATLAB 5 file."""
    if 0 < len(body) <= 4:
        return struct.pack("<HH", code, len(body)) + body.ljust(4, b"\0")
    return struct.pack("<II", code, len(body)) + body + b"\0" * (-len(body) % 8)


def mat(arrays: dict[str, np.ndarray], *, packed: bool = True) -> bytes:
    """Return arrays as a MATLAB 5 file."""
    out = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    for name, array in arrays.items():
        array_class, code = {"uint8": (9, 2), "float64": (6, 9)}[str(array.dtype)]
        body = (
            mat_element(6, struct.pack("<II", array_class, 0))
            + mat_element(5, struct.pack(f"<{array.ndim}i", *array.shape))
            + mat_element(1, name.encode())
            + mat_element(code, array.tobytes(order="F"))
        )
        matrix = struct.pack("<II", 14, len(body)) + body
        if packed:
            squeezed = zlib.compress(matrix)
            matrix = struct.pack("<II", 15, len(squeezed)) + squeezed
        out += matrix
    return out


def make_official(name: str, root: Path) -> None:
    """Write the files of a data set with the sizes that its reader expects. The images are noise."""
    folder = root / {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}.get(name, name)
    folder.mkdir(parents=True)
    if name == "mnist":
        for split, count in (("train", 60_000), ("t10k", 10_000)):
            (folder / f"{split}-images-idx3-ubyte").write_bytes(idx(np.resize(_bytes(28 * 28 * 97), (count, 28, 28))))
            (folder / f"{split}-labels-idx1-ubyte").write_bytes(idx(np.arange(count, dtype=np.uint8) % 10))
    elif name.startswith("cifar"):
        labels, fine = (1, 10) if name == "cifar10" else (2, 100)
        ten = {"test_batch": 10_000, **{f"data_batch_{i}": 10_000 for i in range(1, 6)}}
        for file, count in (ten if name == "cifar10" else {"train": 50_000, "test": 10_000}).items():
            records = np.zeros((count, labels + 3072), np.uint8)
            records[:, labels - 1] = np.arange(count) % fine
            records[:, labels:] = np.resize(_bytes(3072 * 97), (count, 3072))
            (folder / f"{file}.bin").write_bytes(records.tobytes())
    elif name == "svhn":
        for split, count in (("train", 600), ("test", 300)):
            images = DRAW.integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
            arrays = {"X": images, "y": (np.arange(count) % 10 + 1).astype(np.float64)[:, None]}
            (folder / f"{split}_32x32.mat").write_bytes(mat(arrays))
    else:
        make_folder(folder)


def make_folder(folder: Path, *, classes: tuple[str, ...] = ("n01440764", "n01443537"), train: int = 3, test: int = 2) -> None:
    """Write an image folder like ImageNet: train/CLASS/*.JPEG and val/CLASS/*.JPEG, with images of different sizes."""
    for split, count in (("train", train), ("val", test)):
        for name in classes:
            (folder / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = DRAW.integers(0, 256, (40 + 7 * i, 60 - 5 * i, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{name}_{i}.JPEG")


def write_shard(path: Path, files: Sequence[tuple[str, bytes]], **options: Any) -> Path:
    """Write a tar file with these names and contents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", **options) as archive:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def png(number: int) -> bytes:
    """Return a small image as a PNG file. The number determines its size and its pixels."""
    draw = np.random.Generator(np.random.Philox(number))
    file = io.BytesIO()
    Image.fromarray(draw.integers(0, 256, (9 + number % 4, 8 + number % 3, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def samples(numbers: Iterable[int]) -> list[tuple[str, bytes]]:
    """Return the files of samples of three classes as in a shard of WebDataset."""
    return [file for i in numbers for file in ((f"{i:06}.png", png(i)), (f"{i:06}.cls", b"%d\n" % (i % 3)))]


def make_shards(root: Path, count: int = 60, shards: int = 3) -> str:
    """Write a number of samples of three classes to shards and return their pattern."""
    each = count // shards
    for i in range(shards):
        write_shard(root / f"shard-{i:03}.tar", samples(range(i * each, (i + 1) * each)))
    return str(root / f"shard-{{000..{shards - 1:03}}}.tar")


def _bytes(count: int) -> np.ndarray:
    return DRAW.integers(0, 256, count, dtype=np.uint8)


def pixels(path: Path) -> np.ndarray:
    """Return the pixels of an image file."""
    with Image.open(path) as image:
        return np.array(image)
