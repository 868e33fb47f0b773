"""Tokens of large sets of texts in files, so that the second start of a run need not tokenize them again."""

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from outspan.downloads import root
from outspan.files import write_whole
from outspan.messages import first_line
from outspan.text.tokens import Tokenizer
from outspan.text.words import VocabularyBuilder

_FORMAT = 1  # to be raised when the tokens or words of a text change
_LEAST = 1_000_000  # characters of all texts: fewer are tokenized in a second
_FILES = 8  # that are kept: those that were used last
Tokens = tuple[np.ndarray, np.ndarray, np.ndarray]  # as a tokenizer returns them


def tokenize(tokenizer: Tokenizer, texts: Sequence[str], builder: VocabularyBuilder | None = None) -> Tokens:
    """Return what `tokenizer(texts, builder)` returns, for many texts from a file if there is one, or write it.

    The name of the file is a digest of the tokenizer and the texts. A file that is damaged is written again, with a warning.
    """
    if sum(map(len, texts)) < _LEAST:
        return tokenizer(texts, builder)
    path = root() / "tokens" / f"{_digest(tokenizer, texts)}-{'train' if builder else 'test'}.safetensors"
    try:
        arrays = _read(path)
        with contextlib.suppress(OSError):
            os.utime(path)  # it was used
    except FileNotFoundError:
        arrays = None
    except (OSError, ValueError, LookupError, SafetensorError) as error:
        warnings.warn(f"{path}: damaged ({first_line(error)}); the texts are tokenized again", stacklevel=2)
        arrays = None
    if arrays is None:
        tokens, starts, whole = tokenizer(texts, builder)
        arrays = {"tokens": tokens, "starts": starts, "whole": whole, **(builder.state() if builder else {})}
        _write(path, arrays)
    elif builder is not None:
        builder.restore(arrays)
    return arrays["tokens"], arrays["starts"], arrays["whole"]


def _digest(tokenizer: Tokenizer, texts: Sequence[str]) -> str:
    about = [_FORMAT, version("tokenizers"), tokenizer.backend.to_str(), tokenizer.before, tokenizer.after]
    digest = hashlib.sha256(json.dumps(about).encode())
    for text in texts:
        data = text.encode(errors="surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


def _read(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file. Damage is a ValueError."""
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no mapping
        stored = (file.metadata() or {}).get("sha256")
    if stored != _digest_arrays(arrays):
        raise ValueError("its digest is wrong")
    return arrays


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write a file, and remove those that were not used for longest. A folder that cannot be written to costs only time."""
    metadata = {"sha256": _digest_arrays(arrays)}
    with contextlib.suppress(OSError, ValueError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda partial: save_file(arrays, partial, metadata))
        used = sorted(path.parent.glob("*.safetensors"), key=lambda file: -file.stat().st_mtime)
        for file in used[_FILES:]:
            file.unlink()


def _digest_arrays(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()
