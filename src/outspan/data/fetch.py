"""Bring a published data set here: over https, resumed where it broke off, checked, and whole or not there."""

import hashlib
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from outspan.files import sync_folder
from outspan.messages import unknown

_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Source:
    """One file of a data set: where it is published and what it must be."""

    url: str
    sha256: str

    @property
    def name(self) -> str:
        """The file's name."""
        return self.url.rpartition("/")[2]


_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist"  # the authors' page names no other that still answers
_CIFAR = "https://www.cs.toronto.edu/~kriz"
_SVHN = "https://ufldl.stanford.edu/housenumbers"
_IMDB = "https://ai.stanford.edu/~amaas/data/sentiment"
# The folder that a set lives in, and the files that fill it; an archive is unpacked there.
SOURCES: Mapping[str, tuple[str, tuple[Source, ...]]] = MappingProxyType(
    {
        "mnist": (
            "mnist",
            (
                Source(
                    f"{_MNIST}/train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
                ),
                Source(
                    f"{_MNIST}/train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
                ),
                Source(
                    f"{_MNIST}/t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
                ),
                Source(
                    f"{_MNIST}/t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
                ),
            ),
        ),
        "cifar10": (
            "cifar-10-batches-bin",
            (Source(f"{_CIFAR}/cifar-10-binary.tar.gz", "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),),
        ),
        "cifar100": (
            "cifar-100-binary",
            (Source(f"{_CIFAR}/cifar-100-binary.tar.gz", "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),),
        ),
        "svhn": (
            "svhn",
            (
                Source(f"{_SVHN}/train_32x32.mat", "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
                Source(f"{_SVHN}/test_32x32.mat", "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
            ),
        ),
        "imdb": (
            "aclImdb",
            (Source(f"{_IMDB}/aclImdb_v1.tar.gz", "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"),),
        ),
    }
)


def fetch(name: str, root: Path, *, on_bytes: Callable[[str, int, int], None] = lambda *_: None) -> Path:
    """Download a data set into its folder under `root` and return that; a set that is there is left alone.

    `on_bytes` is told a file's name, how many of its bytes are here and how many there are (0: the server does not say).
    What breaks off stays beside the folder, and the next call goes on from there.
    """
    if name not in SOURCES:
        raise unknown("data set to fetch", name, SOURCES)
    folder, sources = SOURCES[name]
    target, partial = root / folder, root / f"{folder}.partial"
    archives = [source.name for source in sources if source.name.endswith(".tar.gz")]
    if not (target.exists() and any(target.iterdir())):
        partial.mkdir(parents=True, exist_ok=True)
        for source in sources:
            _download(source, partial / source.name, on_bytes)
        for archive in archives:
            _unpack(partial / archive)
        if hasattr(os, "sync"):
            os.sync()  # one call for all files: an archive may hold 100,000 of them
        os.replace(partial, target)
        sync_folder(root)
    for archive in archives:  # kept until now: a kill before the rename must not cost another download
        if (target / archive).exists():  # a read-only mount refuses to remove even what is not there
            (target / archive).unlink(missing_ok=True)
    return target


def _download(source: Source, path: Path, on_bytes: Callable[[str, int, int], None]) -> None:
    """Bring one file; it has its name only once it is whole and what it should be."""
    if path.exists():
        return
    partial = path.with_name(path.name + ".partial")
    here = partial.stat().st_size if partial.exists() else 0
    total = 0
    request = urllib.request.Request(source.url, headers={"Range": f"bytes={here}-"} if here else {})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310, the addresses are ours
            resumes = answer.status == 206
            here = here if resumes else 0
            total = here + int(answer.headers.get("Content-Length", -here))
            with open(partial, "ab" if resumes else "wb") as file:
                while chunk := answer.read(_CHUNK):
                    file.write(chunk)
                    here += len(chunk)
                    on_bytes(source.name, here, total)
                file.flush()
                os.fsync(file.fileno())
        if here < total:
            raise HTTPException("the connection was closed")
    except urllib.error.HTTPError as error:
        if error.code != 416:  # there is nothing beyond what is here: the digest says whether it is the file
            raise ValueError(f"{source.url}: the server answered {error.code} {error.reason}") from None
    except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ValueError(
            f"{source.url}: download interrupted after {here:,} bytes ({reason}); run the same command again to resume"
        ) from None
    except OSError as error:  # a full disk
        raise ValueError(f"{partial}: cannot be written ({error.strerror or error}); run the command again to resume") from None
    found = _sha256(partial)
    if found != source.sha256:
        partial.unlink()
        raise ValueError(f"{source.url}: its SHA-256 is {found}, expected {source.sha256}; it was removed")
    os.replace(partial, path)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _unpack(path: Path) -> None:
    """Put the files of an archive's one folder beside it; links and what points elsewhere are left out."""
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
        raise ValueError(f"{path}: not a whole archive ({error})") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be unpacked ({error.strerror or error}); run the command again to resume") from None
