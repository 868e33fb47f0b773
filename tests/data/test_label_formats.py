"""Files with several labels per sample, Keras' names, tables of images, and what is no classification."""

import json
import re
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from PIL import Image

import outspan
from outspan.config import Recipe
from outspan.data import sets
from outspan.data.sets import load_for

IMAGES = np.arange(4 * 6 * 6 * 3, dtype=np.uint8).reshape(4, 6, 6, 3)


def save_keras(path, labels):
    np.savez(path, x_train=IMAGES, y_train=labels, x_test=IMAGES, y_test=labels)


def test_npz_with_the_names_of_keras(tmp_path):
    for labels in (np.array([0, 1, 1, 2]), np.array([[0], [1], [1], [2]]), np.eye(3)[[0, 1, 1, 2]]):
        save_keras(tmp_path / "a.npz", labels)
        data = sets.load(str(tmp_path / "a.npz"))
        assert data.train.labels.tolist() == [0, 1, 1, 2]
        assert data.train.shape == (3, 6, 6)


def test_npz_with_several_labels(tmp_path):
    save_keras(tmp_path / "a.npz", np.array([[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0]]))
    data = sets.load(str(tmp_path / "a.npz"))
    assert data.train.labels.dtype == torch.bool
    assert data.train.labels.sum(1).tolist() == [2, 0, 1, 1]
    assert data.classes == ("0", "1", "2")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            np.zeros((4, 6, 6), int),
            "y_train must have one or two axes, got int64 [4, 6, 6]: segmentation masks are not supported",
        ),
        (
            np.array([0.5, 1.5, 2.0, 3.0]),
            "y_train must be whole numbers of one axis, got float64 [4]: regression is not supported",
        ),
        (
            np.full((4, 3), 2),
            "y_train of two axes must be rows of 0 and 1, one column per class, got int64 [4, 3] with other values",
        ),
    ],
)
def test_npz_that_is_no_classification_is_refused(labels, message, tmp_path):
    save_keras(tmp_path / "a.npz", labels)
    with pytest.raises(ValueError, match=re.escape(message)):
        sets.load(str(tmp_path / "a.npz"))


def make_images(folder, count=40):
    (folder / "pictures").mkdir()
    for i in range(count):
        Image.new("RGB", (8, 8), (i, 0, 0)).save(folder / "pictures" / f"{i}.png")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_table_of_image_paths(name, tmp_path):
    make_images(tmp_path)
    rows = [{"file": f"pictures/{i}.png", "label": ["cat", "dog"][i % 2]} for i in range(40)]
    text = (
        "\n".join(map(json.dumps, rows))
        if name == "a.jsonl"
        else "file,label\n" + "\n".join(",".join(r.values()) for r in rows)
    )
    (tmp_path / name).write_text(text)
    data = load_for(Recipe(data=str(tmp_path / name), size=8))
    assert sets.noun_of(str(tmp_path / name)) == "images"
    assert data.classes == ("cat", "dog")
    assert len(data.train) + len(data.test) == 40
    inputs, labels = next(data.train.batches([torch.arange(len(data.train))], torch.device("cpu")))
    assert (inputs[:, 0, 0, 0] % 2).tolist() == labels.tolist()
    summary = outspan.train(data=str(tmp_path / name), size=8, model="mlp", epochs=1, batch=8, out=tmp_path / "run")
    assert summary.steps
    assert len(outspan.evaluate(tmp_path / "run", tmp_path / name).labels) == len(data.test)


def test_missing_files_of_a_table_of_images_are_named_with_their_line(tmp_path):
    make_images(tmp_path, 20)
    rows = "".join(f"pictures/{name}.png,{label}\n" for name, label in [*((i, "ab"[i % 2]) for i in range(20)), ("x", "a")])
    (tmp_path / "a.csv").write_text(f"file,label\n{rows}")
    (tmp_path / "train.csv").write_text(f"file,label\n{rows}../y.png,b\n")
    (tmp_path / "test.csv").write_text("file,label\npictures/0.png,a\n")
    message = r"train.csv, line 22: .*x.png: no such file \(2 of 22 files do not exist\); paths are relative to the folder"
    with pytest.raises(ValueError, match=message):
        load_for(Recipe(data=str(tmp_path), size=8), skip_bad=1)
    assert len(load_for(Recipe(data=str(tmp_path), size=8), skip_bad=2).train) == 22


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        ("file,label\n", {"label_separator": "|"}),
        ("file,dog,cat\n", {"label_column": "dog,cat"}),
    ],
)
def test_a_table_of_images_with_several_labels(table, keys, tmp_path):
    make_images(tmp_path)
    by_row = [["cat"], ["cat", "dog"], [], ["dog"]]
    for i in range(40):
        labels = by_row[i % 4]
        values = (
            "|".join(labels) if "label_separator" in keys else ",".join(str(int(name in labels)) for name in ("dog", "cat"))
        )
        table += f"pictures/{i}.png,{values}\n"
    (tmp_path / "a.csv").write_text(table)
    data = load_for(Recipe(data=str(tmp_path / "a.csv"), size=8, **keys))
    inputs, labels = next(data.train.batches([torch.arange(len(data.train))], torch.device("cpu")))
    for image, row in zip(inputs, labels.tolist(), strict=True):
        assert sorted(name for name, has in zip(data.classes, row, strict=True) if has) == by_row[int(image[0, 0, 0]) % 4]


def test_texts_with_several_labels(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"words {i},{['a;b', 'b', ''][i % 3]}\n" for i in range(30)))
    data = load_for(Recipe(data=str(tmp_path / "a.csv"), label_separator=";"))
    assert data.train.noun == "texts"
    assert data.classes == ("a", "b")
    assert {tuple(row) for row in data.train.labels.tolist()} == {(True, True), (False, True), (False, False)}


@pytest.mark.parametrize(
    ("rows", "keys", "message"),
    [
        (
            [f"t{i},{i * 1.5}" for i in range(500)] * 4,
            {},
            "the labels are 500 different numbers in 2,000 rows, from 0 to 748.5: regression is not",
        ),
        ([f"t{i},{i % 500}" for i in range(630)], {}, "500 different numbers in 630 rows, from 0 to 499: regression is not"),
        ([f"t{i},{i % 12 * 1.5}" for i in range(20)], {}, "12 different numbers in 20 rows, from 0 to 16.5: regression is not"),
        ([f"t{i},0" for i in range(9)], {}, "the labels are 1 different values in 9 rows, not classes"),
        (
            [f"t{i},{i % 2}.png" for i in range(9)],
            {},
            "the labels are images, e.g. 0.png: segmentation masks are not supported",
        ),
        ([f"t{i},{i}" for i in range(9)], {"label_column": "label,label"}, "the column 'label' must hold 0 or 1"),
    ],
)
def test_a_table_that_is_no_classification_is_refused(rows, keys, message, tmp_path):
    (tmp_path / "a.csv").write_text("text,label\n" + "\n".join(rows))
    with pytest.raises(ValueError, match=message):
        load_for(Recipe(data=str(tmp_path / "a.csv"), **keys))


@pytest.mark.parametrize("classes", [50, 60])
def test_many_consecutive_numbers_are_classes_with_a_warning(classes, tmp_path):
    (tmp_path / "a.csv").write_text("text,label\n" + "\n".join(f"words {i},{i % classes}" for i in range(600)))
    message = "the labels are 60 different numbers in 600 rows, from 0 to 59: each is a class of its own, and regression is not"
    with pytest.warns(UserWarning, match=message) if classes > 50 else nullcontext():
        assert len(load_for(Recipe(data=str(tmp_path / "a.csv"))).classes) == classes


@pytest.mark.parametrize(
    ("labels", "separator"),
    [
        (("a", "b", "c", "a;b", "b;c", "a; c"), ";"),
        (("a", "b", "c", "a|b", "b|c", "a|c"), "|"),
        (("a", "b; c"), None),  # splitting it leaves more classes
        (("Smith; A", "Smith; B", "Jones; A", "Jones; B", "Day; A", "Day; B"), None),  # no part is alone
    ],
)
def test_several_labels_without_a_separator_are_classes_with_a_warning(labels, separator, tmp_path):
    rows = "\n".join(f"words {i}\t{labels[i % len(labels)]}" for i in range(60))
    (tmp_path / "a.tsv").write_text(f"text\tlabel\n{rows}")
    message = re.escape(f"set label_separator to {separator!r}, which gives 3 classes, not 6")
    with pytest.warns(UserWarning, match=message) if separator else nullcontext():
        assert len(load_for(Recipe(data=str(tmp_path / "a.tsv"))).classes) == len(labels)
