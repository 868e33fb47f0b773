"""Download a published data set: over https, resumable, verified, and complete or absent."""

import os
import shutil
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from outspan.data.sets import SETS
from outspan.downloads import download
from outspan.files import sync_folder
from outspan.messages import unknown


def fetch(name: str, root: Path, *, on_bytes: Callable[[str, int, int], None] = lambda *_: None) -> Path:
    """Download a data set into its folder under `root` and return the folder. A folder that is not empty is left alone.

    `on_bytes` is called with a file's name, the number of bytes downloaded and their total (0 if the server does not tell). An
    interrupted download stays beside the folder, and the next call resumes it.
    """
    published = [known for known, entry in SETS.items() if entry.sources]
    if name not in published:
        raise unknown("data set to fetch", name, published)
    entry = SETS[name]
    target, partial = root / entry.folder, root / f"{entry.folder}.partial"
    archives = [source.name for source in entry.sources if source.name.endswith(".tar.gz")]
    if not (target.exists() and any(target.iterdir())):
        partial.mkdir(parents=True, exist_ok=True)
        for source in entry.sources:
            download(source, partial / source.name, on_bytes)
        for archive in archives:
            _unpack(partial / archive)
        if hasattr(os, "sync"):
            os.sync()  # one call for all files: an archive may hold 100,000 of them
        os.replace(partial, target)
        sync_folder(root)
    for archive in archives:  # kept until now: a kill before the rename must not cost another download
        if (target / archive).exists():  # a read-only mount refuses to remove even a missing file
            (target / archive).unlink(missing_ok=True)
    return target


def _unpack(path: Path) -> None:
    """Extract the files of the archive's top folder into the folder of the archive. Links and outside paths are skipped."""
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                inside = PurePosixPath(member.name).parts[1:]
                content = archive.extractfile(member) if member.isfile() and inside and ".." not in inside else None
                if content is not None:
                    target = path.parent.joinpath(*inside)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with open(target, "wb") as file:
                        shutil.copyfileobj(content, file)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: not a complete archive ({error})") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be unpacked ({error.strerror or error}); run the command again to resume") from None
