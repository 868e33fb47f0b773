"""The cache that training reads: what engines made of sentences, as JSON lines. It grows, and a crash loses no whole line.

A line with an engine begins a section: the sentences after it were made by this engine. So one file can have the translations
of one engine, and the words that a masked language model proposes.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from outspan.files import Json

MASKED = "masked"  # the engine whose results are words, not translations
_AT_ONCE = 200  # number of sentences that are written together
OnBatch = Callable[[int, int], bool | None]


@runtime_checkable
class Engine(Protocol):
    """Makes something of each sentence, in order. The result is None for a sentence that failed."""

    def __call__(self, sentences: Sequence[str]) -> Iterator[Any]: ...

    def close(self) -> None: ...


def fill_cache(
    sentences: Iterable[str], out: Path, head: Mapping[str, str], open_engine: Callable[[], Engine], on_batch: OnBatch
) -> tuple[int, int]:
    """Add the sentences that the cache does not have. Return how many it has of this engine, and how many of them failed."""
    requested = list(dict.fromkeys(sentences))
    known = read_sentences(out, head) if out.exists() else {}
    missing = [sentence for sentence in requested if known.get(sentence) is None]
    done = len(requested) - len(missing)
    if missing:
        engine = open_engine()  # before the cache is created, because the engine may be refused
        out.parent.mkdir(parents=True, exist_ok=True)
        _repair(out, head)
        try:
            pairs = zip(missing, engine(missing), strict=True)
            while chunk := list(islice(pairs, _AT_ONCE)):
                _append(out, [{"text": text, "back": back} for text, back in chunk])
                known |= chunk
                done += len(chunk)
                if on_batch(done, len(requested)):
                    break
        finally:
            engine.close()
    return len(known), sum(back is None for back in known.values())


def read_sentences(path: Path, head: Mapping[str, str] | None = None, *, masked: bool = False) -> dict[str, Json]:
    """Return the sentences of a cache and their translations, or the words of a masked language model.

    With `head` they must be of that engine and pair. An incomplete line at the end is ignored.
    """
    masked = masked if head is None else head["engine"] == MASKED
    results: dict[str, Json] = {}
    for place, stored, row in _rows(path, head):
        if (stored["engine"] == MASKED) != masked:
            continue
        if head is not None and stored != dict(head):
            made, asked = (f"{one['engine']} for {one['pair']}" for one in (stored, head))
            raise ValueError(f"{place}: not a cache of back-translations (made by {made}, not by {asked})")
        if row is not None:
            results[str(row["text"])] = row["back"]
    return results


def _rows(path: Path, head: Mapping[str, str] | None) -> Iterator[tuple[str, dict[str, str], Mapping[str, Json] | None]]:
    """Return the place of each line, the engine of its section, and its sentence; None for the first line of a section."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; `outspan text backtranslate` makes a cache") from None
    if len(lines) == 1 and (head is None or not json.dumps(head).encode().startswith(lines[0])):
        raise ValueError(f"{path}: not a cache of back-translations (it has no whole line)")
    stored: dict[str, str] = {}
    for number, line in enumerate(lines[:-1], 1):
        place = f"{path}, line {number}"
        try:
            row = json.loads(line)
            if number == 1 or "engine" in row:
                stored, row = {"engine": str(row["engine"]), "pair": str(row["pair"])}, None
            elif not isinstance(row["back"], str | list | None) or not isinstance(row["text"], str):
                raise TypeError("text must be a string")
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{place}: not a cache of back-translations ({error})") from None
        yield place, stored, row


def _append(path: Path, rows: Iterable[Mapping[str, Json]]) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        file.flush()
        os.fsync(file.fileno())


def _repair(path: Path, head: Mapping[str, str]) -> None:
    """Remove the line that a crash left incomplete, and begin a section of this engine if the file does not end with one."""
    data = path.read_bytes() if path.exists() else b""
    size = data.rfind(b"\n") + 1
    if size < len(data):
        os.truncate(path, size)
    sections = [stored for _, stored, row in _rows(path, head) if row is None] if size else []
    if not sections or sections[-1] != dict(head):
        _append(path, [head])
