"""Download a file: over https, resumable, verified, and complete or absent."""

import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from outspan.files import digest_of

_CHUNK = 1 << 18


def root() -> Path:
    """Return the folder that holds all data sets: $OUTSPAN_DATA, or ~/.cache/outspan."""
    return Path(os.environ.get("OUTSPAN_DATA") or Path.home() / ".cache" / "outspan")


@dataclass(frozen=True, slots=True)
class Source:
    """A file to download: its address and its SHA-256."""

    url: str
    sha256: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.url.rpartition("/")[2]


def download(source: Source, path: Path, on_bytes: Callable[[str, int, int], None] = lambda *_: None) -> None:
    """Download one file. It gets its name only when it is complete and verified."""
    if path.exists():
        return
    partial = path.with_name(path.name + ".partial")
    downloaded = partial.stat().st_size if partial.exists() else 0
    total = 0
    request = urllib.request.Request(source.url, headers={"Range": f"bytes={downloaded}-"} if downloaded else {})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310, the addresses are constants
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
