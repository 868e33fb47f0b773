"""Tables of texts and array files: CSV, TSV, JSONL, npz, IDX, MATLAB and CIFAR. The first line of an input is its suffix."""

import csv
import gzip
import io
import json
from pathlib import Path

import numpy as np

from fuzz.contract import attempt, expect
from fuzz.mutate import Draw, mutate, mutate_json, odd_value, pick
from made import idx, mat
from outspan.data import readers
from outspan.data.tables import read_documents, read_text
from outspan.text.segments import sentences

WORDS = ("good", "bad", "Mr. Bean", "it's\nodd", '"quoted"', "a,b", "<br />", "naïve", "…", "!!!", " ", "\0", "9.5", "\u2028")


def make(draw: Draw) -> bytes:
    """Return a file, mostly damaged, after a line with its suffix."""
    suffix = pick(draw, (".csv", ".tsv", ".jsonl", ".jsonl.gz", ".txt", ".npz", ".idx", ".idx.gz", ".mat", ".bin"))
    data = _whole(suffix, draw)
    if suffix.endswith(".gz"):
        data = mutate(data, draw) if draw.random() < 0.6 else data
        data = gzip.compress(data, 1)
    if draw.random() < (0.4 if suffix.endswith((".gz", ".npz")) else 0.9):
        data = mutate(data, draw)
    return suffix.encode() + b"\n" + data


def _whole(suffix: str, draw: Draw) -> bytes:
    if suffix == ".npz":
        return _npz(draw)
    if suffix.startswith(".idx"):
        return idx(draw.integers(0, 256, (4, 3, 2), dtype=np.uint8))
    if suffix == ".mat":
        arrays = {"X": draw.integers(0, 256, (32, 32, 3, 2), dtype=np.uint8), "y": np.array([[1], [10]], dtype=np.uint8)}
        return mat(arrays, packed=bool(draw.random() < 0.5))
    if suffix == ".bin":
        return draw.integers(0, 12, 2 * 3073, dtype=np.uint8).tobytes()
    rows = [
        {"text": " ".join(pick(draw, WORDS) for _ in range(4)), "label": pick(draw, ("0", "1", "1.0", "x"))} for _ in range(9)
    ]
    if suffix == ".txt":
        return " ".join(row["text"] for row in rows).encode()
    if "jsonl" in suffix:
        changed = [mutate_json(row, draw) if draw.random() < 0.1 else row for row in rows]
        return "\n".join(json.dumps(row) for row in changed).encode()
    file = io.StringIO()
    writer = csv.DictWriter(file, ["text", "label"], delimiter="\t" if suffix == ".tsv" else ",")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def _npz(draw: Draw) -> bytes:
    arrays: dict[str, np.ndarray] = {}
    for part, count in (("train", 5), ("test", 3)):
        arrays[f"{part}_images"] = draw.integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
        arrays[f"{part}_labels"] = np.arange(count)
    if draw.random() < 0.6:
        name = pick(draw, sorted(arrays))
        odd = pick(
            draw, (np.zeros(0), np.zeros((2, 0, 3, 1), np.uint8), np.float32(3), np.array(["a"]), np.zeros((9, 9), "<u8"))
        )
        arrays[name] = (
            odd if draw.random() < 0.5 else arrays[name].astype(pick(draw, ("i1", "f8", "?", ">i4", "M8[s]", "u8", "c8")))
        )
    if draw.random() < 0.1:
        arrays[str(odd_value(draw))[:20]] = np.zeros(1)
    file = io.BytesIO()
    (np.savez if draw.random() < 0.5 else np.savez_compressed)(file, **arrays)  # type: ignore[operator]
    data = bytearray(file.getvalue())
    if draw.random() < 0.5 and (at := data.find(b"'shape': (")) > 0:  # a shape that does not match the data
        data[at + 10 : at + 11] = pick(draw, (b"9", b"-", b"0", b"(", b"T"))
    return bytes(data)


def check(data: bytes, folder: Path) -> None:
    """Read a file by its suffix."""
    suffix, _, body = data.partition(b"\n")
    name = suffix.decode("ascii", "replace")
    path = folder / f"file{name}"
    path.write_bytes(body)
    if name == ".npz":
        arrays = attempt(readers.read_npz, path)
        expect(arrays is None or len(arrays) == 5, "an npz file has four arrays, and weights or None")
    elif name.startswith(".idx"):
        attempt(readers.read_idx, folder / "file.idx", (4, 3, 2))
    elif name == ".mat":
        attempt(readers.read_mat, path)
        attempt(readers.read_svhn, path)
    elif name == ".bin":
        attempt(readers.read_cifar, [path], label_bytes=1, records=2)
    elif name == ".txt":
        attempt(read_text, path)
        sentences(body.decode(errors="replace"))
    else:
        read = attempt(read_documents, path)
        expect(read is None or len(read[2]) >= 2, "documents have classes")
    path.unlink()
