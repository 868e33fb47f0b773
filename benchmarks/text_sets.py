"""The four text sets of text_study.py, as files that are small enough to take to a machine without the network.

    OUTSPAN_DATA=folder OUTSPAN_PACKAGES=folder python benchmarks/text_sets.py --model FOLDER build/text-payload

- imdb: all reviews of IMDb, of each the last 510 words: of a longer review the model reads the end.
- imdb-2000: 2,000 of them to train on.
- sentences: one random sentence of each review. The class is that of the review.
- packages: short descriptions of Debian packages. The class is one of ten sections (unseen_data.py).

2,500 to 5,000 train texts are held out for validation. The splits are drawn once. FOLDER has config.json, tokenizer.json and
the weights, *.safetensors.
"""

import argparse
import bz2
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from unseen_data import make_packages

from outspan import rng
from outspan.data.dataset import Data
from outspan.data.sets import load
from outspan.data.stratify import hold_out
from outspan.text.documents import Documents
from outspan.text.segments import sentences

WORDS = 510  # of a review; a word is at least one token
SHORTEST = 4  # words of a sentence
SPLITS = ("train", "validation", "test")


def some_of(documents: Documents, count: int) -> Documents:
    """Return random documents with the class shares of all."""
    part = hold_out(documents, count, seed=1)[1] if count < len(documents) else documents
    assert isinstance(part, Documents)
    return part


def make_imdb(train: int | None = None, validation: int = 2_500, test: int = 25_000) -> Data:
    """Return reviews of IMDb: the numbers of texts of each split, or all to train on that are left."""
    data = load("imdb")
    left, held_out = hold_out(data.train, validation, seed=0)
    assert isinstance(left, Documents)
    assert isinstance(held_out, Documents)
    assert isinstance(data.test, Documents)
    parts = [some_of(left, train or len(left)), held_out, some_of(data.test, test)]
    cut = [Documents([" ".join(text.split(" ")[-WORDS:]) for text in part.texts], part.labels) for part in parts]
    return Data("imdb", cut[0], cut[2], data.classes, cut[1])


def make_sentences() -> Data:
    """Return one random sentence of each review of IMDb that has one of four words or more."""
    whole = make_imdb(validation=5_000)

    def cut(documents: Documents, name: str) -> Documents:
        texts, rows = [], []
        for row, text in enumerate(documents.texts):
            if long := [one for one in sentences(text) if len(one.split()) >= SHORTEST]:
                texts.append(long[int(rng.generator(0, "sentence", name, row).integers(len(long)))])
                rows.append(row)
        return Documents(texts, documents.labels[rows])

    train, validation, test = (cut(part, name) for part, name in zip(parts_of(whole), SPLITS, strict=True))
    return Data("sentences", train, test, whole.classes, validation)


def parts_of(data: Data) -> list[Documents]:
    """Return the three splits."""
    parts = [data.train, data.validation, data.test]
    assert all(isinstance(part, Documents) for part in parts)
    return parts  # pyright: ignore[reportReturnType]


SETS: dict[str, Callable[[], Data]] = {
    "packages": lambda: make_packages(tested=5_000),
    "imdb-2000": lambda: make_imdb(2_000, 5_000, 10_000),
    "sentences": make_sentences,
    "imdb": make_imdb,
}


def write_set(path: Path, data: Data) -> None:
    """Write a set as compressed JSON."""
    parts = {name: [[*part.texts], part.labels.tolist()] for name, part in zip(SPLITS, parts_of(data), strict=True)}
    path.write_bytes(bz2.compress(json.dumps({"classes": data.classes, **parts}, ensure_ascii=False).encode()))


def read_set(path: Path) -> Data:
    """Read a set."""
    stored = json.loads(bz2.decompress(path.read_bytes()))
    train, validation, test = (Documents(stored[name][0], torch.tensor(stored[name][1])) for name in SPLITS)
    return Data(path.name.removesuffix(".json.bz2"), train, test, tuple(stored["classes"]), validation)


def main() -> None:
    """Write the sets and the model to a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    options = parser.parse_args()
    model = options.folder / "model"
    model.mkdir(parents=True, exist_ok=True)
    [weights] = options.model.glob("*.safetensors")
    for source, name in (
        (weights, "model.safetensors"),
        *((options.model / one, one) for one in ("config.json", "tokenizer.json")),
    ):
        shutil.copyfile(source, model / name)
    for name in options.sets:
        data = SETS[name]()
        write_set(options.folder / f"{name}.json.bz2", data)
        sizes = ", ".join(f"{len(part):,} {split}" for part, split in zip(parts_of(data), SPLITS, strict=True))
        print(f"{name}: {sizes}, {(options.folder / f'{name}.json.bz2').stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
