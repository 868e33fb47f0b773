"""Parquet files as pyarrow writes them, and folders as `save_to_disk` of `datasets` writes them."""

import io
import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import outspan
from outspan.config import Recipe
from outspan.data.decode import read_fitted
from outspan.data.formats import find_format
from outspan.data.sets import load, load_for, noun_of

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
datasets = pytest.importorskip("datasets")
datasets.disable_progress_bars()

NAMES = ["cat", "dog", "eel"]


def pictures(count):
    draw = np.random.Generator(np.random.Philox(3))
    return [Image.fromarray(draw.integers(0, 256, (12, 9 + i % 4, 3), dtype=np.uint8)) for i in range(count)]


def image_set(count=24):
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    return datasets.Dataset.from_dict({"image": pictures(count), "label": [i % 3 for i in range(count)]}, features=features)


def text_set(count=30):
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=NAMES)})
    return datasets.Dataset.from_dict(
        {"text": [f"text {i}" for i in range(count)], "label": [i % 3 for i in range(count)]}, features
    )


def pixels(split, row):
    [(images, _)] = split.batches([torch.tensor([row])], torch.device("cpu"))
    return images[0]


@pytest.mark.parametrize("shards", [1, 3])
def test_the_images_of_a_saved_dataset_are_those_of_datasets(shards, tmp_path):
    parts = datasets.DatasetDict({"train": image_set(), "test": image_set().select(range(6))})
    parts.save_to_disk(str(tmp_path / "d"), num_shards={"train": shards, "test": 1})
    assert noun_of(str(tmp_path / "d")) == "images"
    data = load(str(tmp_path / "d"), size=8)
    assert data.classes == tuple(NAMES)
    saved = datasets.load_from_disk(str(tmp_path / "d"))
    for title, split in (("train", data.train), ("test", data.test)):
        assert len(split) == len(saved[title])
        for row, item in enumerate(saved[title]):
            item["image"].save(tmp_path / "one.png")
            assert torch.equal(pixels(split, row), read_fitted(tmp_path / "one.png", 8, 8))
            assert int(split.labels[row]) == item["label"]
    assert len(set(data.train.keys())) == 24


@pytest.mark.slow
def test_a_dataset_without_splits_is_divided_and_evaluated(tmp_path):
    image_set(60).save_to_disk(str(tmp_path / "d"))
    keys = {"data": str(tmp_path / "d"), "model": "mlp", "size": 8, "epochs": 1, "batch": 16, "policy": "random"}
    summary = outspan.train(out=tmp_path / "run", **keys)
    evaluation = outspan.evaluate(tmp_path / "run")
    assert evaluation.metrics.accuracy == summary.accuracy
    data = load_for(Recipe(**keys))
    assert len(data.train) + len(data.test) == 60
    assert 5 <= len(data.test) <= 20
    image_set(9).save_to_disk(str(tmp_path / "other"))
    assert int(outspan.evaluate(tmp_path / "run", str(tmp_path / "other")).confusion.sum()) == 9


def test_images_may_be_named_by_their_paths(tmp_path):
    for i, picture in enumerate(pictures(20)):
        picture.save(tmp_path / f"{i}.png")
    table = {
        "file": [f"{i}.png" for i in range(20)],
        "label": [NAMES[i % 2] for i in range(20)],
        "w": [i / 2 for i in range(20)],
    }
    pq.write_table(pa.table(table), tmp_path / "photos.parquet", row_group_size=7)
    data = load_for(Recipe(data=str(tmp_path / "photos.parquet"), size=8, weight_column="w"))
    (tmp_path / "photos.csv").write_text("file,label,w\n" + "".join(f"{i}.png,{NAMES[i % 2]},{i / 2}\n" for i in range(20)))
    same = load_for(Recipe(data=str(tmp_path / "photos.csv"), size=8, weight_column="w"))
    assert list(map(str, data.train.paths)) == list(map(str, same.train.paths))
    assert torch.equal(data.train.labels, same.train.labels)
    assert torch.equal(data.train.weights, same.train.weights)


def test_texts_are_those_of_the_table(tmp_path):
    rows = [{"text": f"text {i}", "label": NAMES[i % 3]} for i in range(30)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    expected = load(str(tmp_path / "a.jsonl"))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    text_set().save_to_disk(str(tmp_path / "a"))
    for name in ("a.parquet", "a"):
        data = load(str(tmp_path / name))
        assert noun_of(str(tmp_path / name)) == "texts"
        assert (list(data.train.texts), list(data.test.texts)) == (list(expected.train.texts), list(expected.test.texts))
        assert torch.equal(data.train.labels, expected.train.labels)
        assert data.classes == expected.classes
    parts = datasets.DatasetDict({"train": text_set(), "validation": text_set(5)})
    parts.save_to_disk(str(tmp_path / "two"))
    data = load(str(tmp_path / "two"))
    assert (len(data.train), list(data.test.texts)) == (30, [f"text {i}" for i in range(5)])


def test_several_labels_are_lists_of_classes(tmp_path):
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.Sequence(datasets.ClassLabel(names=NAMES))}
    )
    rows = {"text": [f"text {i}" for i in range(20)], "label": [[0], [1, 2], [], [0, 1, 2]] * 5}
    parts = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": parts, "test": parts}).save_to_disk(str(tmp_path / "d"))
    data = load_for(Recipe(data=str(tmp_path / "d"), label_separator=";"))
    assert data.classes == tuple(NAMES)
    assert data.train.labels[:4].int().tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1]]


def test_wrong_files_are_refused(tmp_path, monkeypatch):
    def refused(path, problem, **keys):
        with pytest.raises(ValueError, match=problem):
            load_for(Recipe(data=str(path), **keys))

    (tmp_path / "a.parquet").write_bytes(b"PAR1 not parquet")
    refused(tmp_path / "a.parquet", "a.parquet: cannot be read as Parquet")
    picture = io.BytesIO()
    pictures(1)[0].save(picture, "PNG")
    pq.write_table(pa.table({"image": [{"bytes": picture.getvalue(), "path": "a"}], "label": [0]}), tmp_path / "b.parquet")
    refused(tmp_path / "b.parquet", "the column 'image' has nested values; images inside Parquet files are not read: write")
    text_set().save_to_disk(str(tmp_path / "d"))
    refused(tmp_path / "d", r"row 1: no column 'review' \(it has text, label\)", text_column="review")
    unknown = text_set().map(lambda row: {"label": -1})
    unknown.save_to_disk(str(tmp_path / "unknown"))
    refused(tmp_path / "unknown", "30 of 30 rows have nothing in the column 'label', lines 1, 2")
    arrow = tmp_path / "d" / "data-00000-of-00001.arrow"
    whole = arrow.read_bytes()
    for size in range(0, len(whole), 97):
        arrow.write_bytes(whole[:size])
        refused(tmp_path / "d", "cannot be read as an Arrow stream|there are no rows|no column")
    state = tmp_path / "d" / "state.json"
    state.write_text(json.dumps({"_data_files": [{"filename": "../x.arrow"}]}))
    refused(tmp_path / "d", "names of files must have no folder, got '../x.arrow'")
    state.write_text("[")
    refused(tmp_path / "d", "state.json: cannot be read")
    image_set().save_to_disk(str(tmp_path / "e"))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow.ipc", None)
    refused(tmp_path / "b.parquet", r"needs pyarrow: pip install 'outspan\[datasets\]'")
    refused(tmp_path / "e", r"needs pyarrow: pip install 'outspan\[datasets\]'")
    assert find_format(tmp_path / "e") is not None
