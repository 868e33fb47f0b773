"""Files that are written completely or not at all."""

import errno
import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from outspan.messages import shown

Json: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None  # a value decoded from JSON
PARTIAL = ".partial"  # the suffix of an incomplete file

_CHUNK = 1 << 18  # bytes that are read at once
_PACKAGE = Path(__file__).parent
# The folder of recipes/ and results/: inside an installed package, at the root of a clone.
HOME = _PACKAGE if (_PACKAGE / "recipes").is_dir() else _PACKAGE.parents[1]


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Call `write` on a temporary file, then move it to the path: it is complete or absent, also after a power failure."""
    partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        write(partial)
        with open(partial, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        raise ValueError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        partial.unlink(missing_ok=True)


def check_new_folder(path: Path) -> None:
    """Refuse the path of a file, or of a folder that is not empty."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path}: already exists; choose another folder, or remove it")


def write_folder(path: Path, write: Callable[[Path], Any]) -> None:
    """Call `write` on a temporary folder, then move it to the path, which must be new: it is complete or absent."""
    check_new_folder(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        partial.mkdir(parents=True)
        write(partial)
        for file in filter(Path.is_file, partial.rglob("*")):
            with open(file, "r+b") as written:
                os.fsync(written.fileno())
        os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        raise ValueError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder durable, if that is possible.

    Windows cannot open a folder, a writable folder may not be readable, and some network file systems refuse to sync one. The
    file itself is complete by then.
    """
    if os.name == "nt" or not os.access(folder, os.R_OK):
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(handle)


def check_regular(path: Path) -> None:
    """Refuse a FIFO, socket or device: opening or reading one may never end. Links are followed."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # opening it raises a better error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ValueError(f"{path}: not a regular file but a FIFO, socket or device; only regular files are read")


def remove_partials(folder: Path) -> None:
    """Remove what a killed `write_whole` or `write_folder` has left. Call it only if no other process writes to the folder."""
    for partial in folder.glob(f".*{PARTIAL}"):
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


def write_lines(path: Path, values: Iterable[Any]) -> None:
    """Write values as JSON, one per line."""
    write_whole(path, lambda partial: partial.write_text("".join(json.dumps(value) + "\n" for value in values)))


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON."""
    write_whole(path, lambda partial: partial.write_text(json.dumps(value, indent=2) + "\n"))


def digest_of(name: str | Path) -> str:
    """Return the SHA-256 of a file, or "" if there is no file."""
    if not os.path.isfile(name):
        return ""
    digest = hashlib.sha256()
    with open(name, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def expand_home(name: Path | str) -> Path:
    """Return a path with the home folder in place of a leading ~."""
    return Path(os.path.expanduser(name))  # Path.expanduser raises an error for an unknown user


def output_folder(out: Path | str) -> Path:
    """Return the path of a folder to write to, which may not exist yet. Anything else raises a ValueError."""
    if not isinstance(out, Path | str):
        raise ValueError(f"out must be the path of a folder, got {shown(out)}")
    folder = expand_home(out)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out must be the path of a folder, got the file {folder}: choose another path")
    return folder


def absolute(name: str) -> str:
    """Return the absolute path of a file or folder that exists; any other name unchanged."""
    path = expand_home(name)
    return str(path.resolve()) if name and path.exists() else name


def commit() -> str:
    """Return the git commit of this clone, or $COMMIT if it is set; "" without either."""
    if commit := os.environ.get("COMMIT"):
        return commit
    if not (HOME / ".git").exists():  # git would search the parent folders
        return ""
    try:
        command = ["git", "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, cwd=HOME).stdout.strip()  # noqa: S603, a fixed command
    except OSError:  # git is not installed
        return ""
