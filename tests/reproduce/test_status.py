"""The status of each table and figure follows from the files in results/ and the data folder."""

import json

import pytest

from outspan.files import HOME
from outspan.reproduce import status as module
from outspan.reproduce.paper import PAPER
from outspan.reproduce.status import missing_data, status


def test_the_status_follows_from_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "HOME", tmp_path)
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path / "data"))
    item = PAPER["figure-4"]
    assert status(item).startswith("needs data that is not available: ")
    assert "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz" in status(item)
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "test_batch.bin").touch()
    half = f"{folder}/data_batch_1.bin (remove {folder}, then outspan data fetch cifar10, from https://"
    assert status(item).startswith(f"needs data that is not available: {half}")
    for i in range(1, 6):
        (folder / f"data_batch_{i}.bin").touch()
    assert status(item).startswith("runnable (without cifar100, not available): outspan reproduce figure-4")
    (tmp_path / "results").mkdir()
    cells = [{"row": row, "method": method, "accuracies": [0.9]} for row, numbers in item.cells.items() for method in numbers]
    for stored, expected in (
        (cells, "results/figure-4.json ("),
        (cells[1:2], "in part: results/figure-4.json (cifar10/wrn-28-10 uncertain)"),
    ):
        (tmp_path / "results" / "figure-4.json").write_text(json.dumps({"scale": 1.0, "cells": stored}))
        assert status(item).startswith(f"measured here: {expected}")
    for scale, stored in ((0.1, cells), (1.0, [cells[1] | {"accuracies": []}])):  # no result at full scale
        (tmp_path / "results" / "figure-4.json").write_text(json.dumps({"scale": scale, "cells": stored}))
        assert status(item).startswith("runnable (without cifar100, not available)")
    for damaged in ("{", "[1]", '{"cells": [{"row": "a"}]}', '{"settings": {}}'):
        (tmp_path / "results" / "figure-4.json").write_text(damaged)
        with pytest.raises(ValueError, match=r"results/figure-4\.json: not a result file of outspan"):
            status(item)
    measure = {"settings": {"model": "wide_resnet-28-2", "epochs": 30}, "seeds": [0, 1, 2]}
    (tmp_path / "results" / "cifar10-mixup.json").write_text(json.dumps(measure))
    file = "results/cifar10-mixup.json (wide_resnet-28-2, 30 epochs, 3 seeds)"
    assert status(PAPER["table-7"]).startswith(f"measured here: in part: {file};")  # the result of MNIST is missing
    assert status(PAPER["figure-6"]) == f"measured here: {file}; compared with the paper in docs/measured.md"
    assert status(PAPER["imdb"]).startswith(
        f"needs data that is not available: {tmp_path}/data/aclImdb (outspan data fetch imdb, from"
    )
    (tmp_path / "data" / "imdb").mkdir()
    assert status(PAPER["imdb"]).startswith("runnable: outspan text backtranslate imdb")
    (tmp_path / "results" / "imdb-minilm.json").write_text(json.dumps({"recipe": {"model": "minilm", "epochs": 3}}))
    assert status(PAPER["imdb"]).startswith("measured here: in part: results/imdb-minilm.json (minilm, 3 epochs); compared")
    assert "image-net.org" in str(missing_data("imagenet"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "imagenet" / "train").mkdir(parents=True)
    assert missing_data("imagenet") == "imagenet/val (ILSVRC 2012, image-net.org, requires registration)"
    (tmp_path / "imagenet" / "val").mkdir()
    assert missing_data("imagenet") is None
    (tmp_path / "data" / "mnist").mkdir()
    for split in ("train", "t10k"):
        assert missing_data("mnist") is not None
        for content in ("images-idx3", "labels-idx1"):
            (tmp_path / "data" / "mnist" / f"{split}-{content}-ubyte.gz").touch()  # the published file names
    assert missing_data("mnist") is None


def test_timings_of_the_theory_are_not_results_of_its_table():
    assert (HOME / "results" / "theory.json").exists()
    assert status(PAPER["table-1"]) == "runnable: outspan theory verify"


def test_describe_lists_the_rows_with_their_recipes(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path))
    entry = module.describe("figure-4")
    assert entry.status == status(PAPER["figure-4"])
    assert [(row.row, row.recipe) for row in entry.rows] == [
        ("cifar10/wrn-28-10", "recipes/paper/cifar10-wrn-28-10.toml"),
        ("cifar100/wrn-28-10", "recipes/paper/cifar100-wrn-28-10.toml"),
    ]
    assert all("outspan data fetch" in str(row.missing) for row in entry.rows)
    assert module.describe("table-1").rows == ()
    assert [entry.name for entry in module.list_paper()] == list(PAPER)
