"""Images inside tar files, which are read by their offset."""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch


class _Status(NamedTuple):
    """The size of a member, and the modification time of its tar file."""

    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True)
class Member:
    """A file inside a tar file. It has those attributes of a path that readers of images use."""

    parent: Path  # the tar file
    name: str
    offset: int
    size: int

    def __str__(self) -> str:
        """Return the tar file and the name in it."""
        return f"{self.parent}/{self.name}"

    def stat(self) -> _Status:
        """Return its size and the modification time of the tar file."""
        return _Status(self.size, os.stat(self.parent).st_mtime_ns)

    def read_bytes(self) -> bytes:
        """Return its content."""
        with open(self.parent, "rb") as file:
            file.seek(self.offset)
            return file.read(self.size)

    def open(self) -> io.BytesIO:
        """Return its content as a file."""
        return io.BytesIO(self.read_bytes())


@dataclass(frozen=True, eq=False)
class Members(Sequence[Member]):
    """The images of many tar files. A `Member` is created when it is needed."""

    shards: Sequence[Path]
    numbers: torch.Tensor  # of the shard of each image
    names: Sequence[str]
    offsets: torch.Tensor
    sizes: torch.Tensor
    damaged: int = 0  # number of shards that could not be read to their end

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.names)

    def __getitem__(self, row: int) -> Member:  # pyright: ignore[reportIncompatibleMethodOverride], no slices
        """Return an image."""
        return Member(self.shards[int(self.numbers[row])], self.names[row], int(self.offsets[row]), int(self.sizes[row]))


ImageFile = Path | Member
