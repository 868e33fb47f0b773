"""Tar shards in the layout of WebDataset: `key.jpg` and `key.cls` are a sample. No image is decoded here.

The offsets of all images are listed once and stored, so that any image can be read without reading those before it.
"""

import math
import re
import tarfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from outspan.data.folders import SUFFIXES
from outspan.data.listings import Entry, Stamp, recall, take_stamp
from outspan.data.members import Members
from outspan.files import check_regular
from outspan.messages import first_line, shown
from outspan.shapes import Int64

_RANGE = re.compile(r"\{([0-9]{1,18})\.\.([0-9]{1,18})\}")
_KEY = re.compile(r"((?:.*/)?[^./]+)\.([^/]*)", re.DOTALL)  # the key ends at the first dot, as in WebDataset
_MAX_SHARDS = 1_000_000
_MAX_DIGITS = 9  # of a class
_WORTH_STORING = 1_000  # images
# What tarfile raises on damaged files.
_TAR_ERRORS = (tarfile.TarError, OSError, EOFError, ValueError, LookupError, ArithmeticError, RecursionError, MemoryError)


def is_shards(path: Path) -> bool:
    """Return whether a path is that of a tar file, or of several, such as `shard-{000..099}.tar`."""
    return path.suffix == ".tar" and not path.is_dir()


def expand(path: Path) -> list[Path]:
    """Return the paths of a pattern with ranges, in order. A path without ranges, or of something that exists, is the only one.

    >>> [path.name for path in expand(Path("shard-{08..10}.tar"))]
    ['shard-08.tar', 'shard-09.tar', 'shard-10.tar']
    """
    if path.exists():
        return [path]
    literals = _RANGE.split(str(path))[::3]
    ends = _RANGE.findall(str(path))
    ranges = [range(int(first), int(last) + 1) for first, last in ends]
    if not 1 <= (count := math.prod(map(len, ranges))) <= _MAX_SHARDS:
        raise ValueError(f"{path}: must name 1 to {_MAX_SHARDS:,} shards, got {count:,}; write a range as {{000..099}}")
    # As in a shell, all numbers have the same width if one of the two begins with 0.
    widths = [max(map(len, pair)) if any(end[0] == "0" != end for end in pair) else 1 for pair in ends]
    numbers = product(*([f"{i:0{width}}" for i in row] for row, width in zip(ranges, widths, strict=True)))
    return [Path("".join(map("".join, zip(literals, (*row, ""), strict=True)))) for row in numbers]


class _Damaged(ValueError):
    """A shard that cannot be read to its end. `entry` has the complete samples before the damage."""

    def __init__(self, path: Path, reason: str, entry: Entry) -> None:
        super().__init__(f"{path}: cannot be read as a tar shard ({reason})")
        self.entry = entry


def list_shards(path: Path, *, skip_bad: int = 0) -> tuple[Members, Int64[Tensor, " N"]]:
    """Return the images of all shards in their order, and their labels. A shard that is missing or damaged is refused.

    Up to `skip_bad` shards may be damaged, such as truncated ones: their complete samples before the damage are used.
    """
    shards, damaged = expand(path), list[Path]()

    def read(shard: Path) -> Entry:
        try:
            return _read_shard(shard)
        except _Damaged as error:
            damaged.append(shard)
            count = len(error.entry.columns[0])
            if len(damaged) > skip_bad:
                how = f"--skip-bad {len(damaged)} uses the {count:,} complete samples before the damage"
                raise ValueError(f"{error}: repair the shard; {how}") from None
            warnings.warn(f"{error}: only the {count:,} complete samples before the damage are used", stacklevel=4)
            return error.entry  # without stamps it is not stored: the next start warns, too

    entries = recall(path, [str(shard.absolute()) for shard in shards], read, least=_WORTH_STORING)
    names, offsets, sizes, labels = ([value for entry in entries for value in entry.columns[i]] for i in range(4))
    if not names:
        raise ValueError(f"{path}: has no images; a sample is an image and its class, such as 000.jpg and 000.cls")
    numbers = torch.arange(len(shards)).repeat_interleave(torch.tensor([len(entry.columns[0]) for entry in entries]))
    members = Members(shards, numbers, names, torch.tensor(offsets), torch.tensor(sizes), len(damaged))
    return members, torch.tensor(labels)


@dataclass
class _Sample:
    """What is known of a sample while its shard is read."""

    image: tuple[str, int, int] | None = None  # name, offset and size
    label: int | None = None


def _read_shard(path: Path) -> Entry:
    """Return the names, offsets, sizes and labels of the images in a shard."""
    check_regular(path)
    samples = dict[str, _Sample]()
    try:
        stamps = {"": take_stamp(path)}
        with open(path, "rb") as file:
            for name, offset, size in _files_of(file):
                _add(samples, file, name, offset, size)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except _TAR_ERRORS as error:
        complete = (sample for sample in samples.values() if sample.image is not None and sample.label is not None)
        raise _Damaged(path, first_line(error), _entry({}, complete)) from None
    for key, sample in samples.items():
        if sample.image is None or sample.label is None:
            missing = f"class, {key}.cls" if sample.label is None else f"image, {key}.jpg or another of {', '.join(SUFFIXES)}"
            raise ValueError(f"{path}: the sample {shown(key)} has no {missing}")
    return _entry(stamps, samples.values())


def _entry(stamps: Mapping[str, Stamp], samples: Iterable[_Sample]) -> Entry:
    rows = [(*(sample.image or ()), sample.label) for sample in samples]
    return Entry(stamps, [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []])


def _files_of(file: BinaryIO) -> Iterator[tuple[str, int, int]]:
    """Return the name, offset and size of each regular file in a tar file, which must be complete."""
    total, end = file.seek(0, 2), 0
    file.seek(0)
    with tarfile.open(fileobj=file, mode="r:") as archive:
        while (member := archive.next()) is not None:
            archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue], they would fill the memory
            if member.size < 0 or member.offset_data < end or member.offset_data + member.size > total:
                raise ValueError(f"{shown(member.name)} is not completely inside the file")
            end = member.offset_data
            if member.issparse():
                raise ValueError(f"{shown(member.name)} is a sparse file")
            if member.isfile():
                yield member.name, member.offset_data, member.size
        file.seek(archive.offset)
        # tarfile takes a damaged header for the end, and a complete archive ends with blocks of zeros.
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise ValueError(f"it is truncated or damaged after byte {archive.offset:,}")


def _add(samples: dict[str, _Sample], file: BinaryIO, name: str, offset: int, size: int) -> None:
    """Add a file to its sample if it is an image or a class. Other files are ignored."""
    match = _KEY.fullmatch(name)
    suffix = f".{match[2].lower()}" if match else ""
    if match is None or not (suffix == ".cls" or suffix in SUFFIXES):
        return
    sample = samples.setdefault(match[1], _Sample())
    if (sample.label if suffix == ".cls" else sample.image) is not None:
        raise ValueError(f"the sample {shown(match[1])} has more than one {'class' if suffix == '.cls' else 'image'}")
    if suffix != ".cls":
        sample.image = name, offset, size
        return
    file.seek(offset)
    text = file.read(min(size, 32)).strip()
    if not text.isdigit() or len(text) > _MAX_DIGITS:
        raise ValueError(f"{shown(name)} must hold the number of a class, got {shown(text.decode('latin-1'))}")
    sample.label = int(text)
