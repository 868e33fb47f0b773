"""Download a published data set: over https, resumable, verified, and complete or absent."""

import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path, PurePosixPath

from outspan.data.dataset import Source
from outspan.data.sets import SETS
from outspan.files import digest_of, sync_folder
from outspan.messages import unknown

_CHUNK = 1 << 18


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
            _download(source, partial / source.name, on_bytes)
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


def _download(source: Source, path: Path, on_bytes: Callable[[str, int, int], None]) -> None:
    """Download one file. It gets its name only when it is complete and verified."""
    if path.exists():
        return
    partial = path.with_name(path.name + ".partial")
    downloaded = partial.stat().st_size if partial.exists() else 0
    total = 0
    request = urllib.request.Request(source.url, headers={"Range": f"bytes={downloaded}-"} if downloaded else {})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310, the addresses are those of SETS
            resumes = response.status == 206
            downloaded = downloaded if resumes else 0
            total = downloaded + int(response.headers.get("Content-Length", -downloaded))
            with open(partial, "ab" if resumes else "wb") as file:
                while chunk := response.read(_CHUNK):
                    file.write(chunk)
                    downloaded += len(chunk)
                    on_bytes(source.name, downloaded, total)
                file.flush()
                os.fsync(file.fileno())
        if downloaded < total:
            raise HTTPException("the connection was closed")
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: all bytes were downloaded before; the digest is checked below
            raise ValueError(f"{source.url}: the server answered {error.code} {error.reason}") from None
    except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ValueError(
            f"{source.url}: download interrupted after {downloaded:,} bytes ({reason}); run the same command again to resume"
        ) from None
    except OSError as error:  # a full disk
        raise ValueError(f"{partial}: cannot be written ({error.strerror or error}); run the command again to resume") from None
    digest = digest_of(partial)
    if digest != source.sha256:
        partial.unlink()
        raise ValueError(f"{source.url}: its SHA-256 is {digest}, expected {source.sha256}; it was removed")
    os.replace(partial, path)


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
