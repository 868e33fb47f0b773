"""Listings of large folders and of tar files, stored for the next start. They are a cache and may be deleted at any time."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outspan.downloads import root
from outspan.files import write_whole

Stamp = list[int]  # when a file or folder was modified and changed, in ns, and its size
_HEADER = "outspan listing 1"
# Rule: an entry is stored only if nothing in it was modified in the last 10 s before it was listed. Some file systems store
# times in steps of 1 or 2 s, and the clock of a file server may be off. A second change in the same step would not be noticed.
_SETTLED = 10 * 10**9


@dataclass(frozen=True)
class Entry:
    """What was listed at a path: the stamps of what must not have changed since, by relative path, and columns of values."""

    stamps: Mapping[str, Stamp]
    columns: Sequence[Sequence[Any]]

    def is_current(self, path: Path) -> bool:
        """Return whether nothing has changed since."""
        try:
            return bool(self.stamps) and all(take_stamp(path / name) == then for name, then in self.stamps.items())
        except OSError:
            return False

    def is_settled(self, start: int) -> bool:
        """Return whether a later change will be noticed. `start` is when the listing began, in ns."""
        times = [(modified, changed) for modified, changed, _ in self.stamps.values()]
        # Mounts of object stores may have no times of folders, and report 0.
        return bool(times) and all(modified > 0 and max(modified, changed) < start - _SETTLED for modified, changed in times)


def take_stamp(path: Path) -> Stamp:
    """Return what changes with a file, or with the list of names in a folder."""
    status = os.stat(path)
    return [status.st_mtime_ns, status.st_ctime_ns, status.st_size]


def recall(folder: Path, names: Sequence[str], read: Callable[[Path], Entry], *, least: int) -> list[Entry]:
    """Return the entry of each name in a folder: the stored one if it is current, otherwise the one that `read` returns.

    New entries are stored if all entries together have at least this number of values.
    """
    start = time.time_ns()
    folder = folder.resolve()
    stored = _load(folder)
    kept = {name: stored[name] for name in names if name in stored and stored[name].is_current(folder / name)}
    entries = {name: kept.get(name) or read(folder / name) for name in names}
    added = {name: entry for name, entry in entries.items() if name not in kept and entry.is_settled(start)}
    if added and sum(len(entry.columns[0]) for entry in entries.values()) >= least:
        _store(folder, kept | added)
    return [entries[name] for name in names]


def _files(folder: Path) -> Iterator[Path]:
    """Return where the listing of a folder may be stored. The folder of the data sets may be read-only."""
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]
    with suppress(RuntimeError):  # there is no home folder
        yield root() / "listings" / name
        yield Path.home() / ".cache" / "outspan" / "listings" / name


def _load(folder: Path) -> dict[str, Entry]:
    """Return the stored entries of a folder. A file that is damaged, or of another folder or format, is ignored."""
    for path in _files(folder):
        with suppress(OSError):
            digest, _, body = path.read_bytes().partition(b"\n")
            if digest == _digest(folder, body):
                return {name: Entry(*entry) for name, entry in json.loads(body).items()}
    return {}


def _store(folder: Path, entries: Mapping[str, Entry]) -> None:
    """Store the entries where it is possible. Of two processes that do so at once, the last one wins."""
    body = json.dumps({name: (entry.stamps, entry.columns) for name, entry in entries.items()}).encode()
    for path in _files(folder):
        with suppress(OSError, ValueError):  # a read-only or full disk
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, lambda partial: partial.write_bytes(_digest(folder, body) + b"\n" + body))
            return


def _digest(folder: Path, body: bytes) -> bytes:
    digest = hashlib.sha256(f"{_HEADER}\n".encode() + os.fsencode(folder) + b"\n")
    digest.update(body)
    return digest.hexdigest().encode()
