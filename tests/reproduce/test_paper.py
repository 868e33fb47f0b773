"""The paper's tables as data: numbers against the text, and what is said of each."""

import json
import shlex
import subprocess
from typing import Any

import pytest
from typer.main import get_command

from outspan.cli import app
from outspan.config import read_recipe
from outspan.policies.table import parse_transforms
from outspan.reproduce import paper
from outspan.reproduce.cells import ROWS
from outspan.reproduce.paper import HOME, PAPER, status


def test_there_are_seven_tables_six_figures_and_text():
    assert list(PAPER) == [f"table-{i}" for i in range(1, 8)] + [f"figure-{i}" for i in range(1, 7)] + ["imdb"]


def test_the_margins_that_the_text_names_are_those_of_the_table():
    """Section 5.2: over RandAugment by 0.59 on CIFAR-10, 1.24 on CIFAR-100, 0.27, 0.16 and 1.54."""
    cells = PAPER["table-3"].cells

    def lead(row: str) -> float:
        return round(float(cells[row]["uncertain"].split()[0]) - float(cells[row]["ra"]), 2)

    rows = ("cifar10/wrn-28-10", "cifar100/wrn-28-10", "cifar10/shake-shake", "cifar10/pyramidnet", "imagenet/resnet-50")
    assert [lead(row) for row in rows] == [0.59, 1.24, 0.27, 0.16, 1.54]
    assert list(cells) == list(ROWS)
    wide = PAPER["figure-4"].cells["cifar100/wrn-28-10"]
    assert round(float(wide["uncertain"].split()[0]) - 84.51, 2) == 0.51  # the text rounds it to 0.49


def test_what_is_said_follows_from_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(paper, "HOME", tmp_path)
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path / "data"))
    item = PAPER["figure-4"]
    assert status(item).startswith("needs data that is not here: ")
    assert "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz" in status(item)
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "test_batch.bin").touch()
    half = f"{folder}/data_batch_1.bin (remove {folder}, then outspan data fetch cifar10, from https://"
    assert status(item).startswith(f"needs data that is not here: {half}")
    for i in range(1, 6):
        (folder / f"data_batch_{i}.bin").touch()
    assert status(item).startswith("runnable (not here: cifar100): outspan reproduce figure-4")
    (tmp_path / "results").mkdir()
    cells = [{"row": row, "method": method, "accuracies": [0.9]} for row, own in item.cells.items() for method in own]
    for held, said in (
        (cells, "results/figure-4.json ("),
        (cells[1:2], "in part: results/figure-4.json (cifar10/wrn-28-10 uncertain)"),
    ):
        (tmp_path / "results" / "figure-4.json").write_text(json.dumps({"scale": 1.0, "cells": held}))
        assert status(item).startswith(f"measured here: {said}")
    for scale, held in ((0.1, cells), (1.0, [cells[1] | {"accuracies": []}])):  # nothing at full scale
        (tmp_path / "results" / "figure-4.json").write_text(json.dumps({"scale": scale, "cells": held}))
        assert status(item).startswith("runnable (not here: cifar100)")
    for damaged in ("{", "[1]", '{"cells": [{"row": "a"}]}', '{"settings": {}}'):
        (tmp_path / "results" / "figure-4.json").write_text(damaged)
        with pytest.raises(ValueError, match=r"results/figure-4\.json: not a result that outspan writes"):
            status(item)
    measure = {"settings": {"model": "wide_resnet-28-2", "epochs": 30}, "seeds": [0, 1, 2]}
    (tmp_path / "results" / "cifar10-mixup.json").write_text(json.dumps(measure))
    said = "results/cifar10-mixup.json (wide_resnet-28-2, 30 epochs, 3 seeds)"
    assert status(PAPER["table-7"]).startswith(f"measured here: in part: {said};")  # MNIST's is not here
    assert status(PAPER["figure-6"]) == f"measured here: {said}; beside the paper's numbers in docs/measured.md"
    assert status(PAPER["imdb"]).startswith(
        f"needs data that is not here: {tmp_path}/data/aclImdb (outspan data fetch imdb, from"
    )
    (tmp_path / "data" / "imdb").mkdir()
    assert status(PAPER["imdb"]).startswith("runnable: outspan text backtranslate imdb")
    (tmp_path / "results" / "imdb-minilm.json").write_text(json.dumps({"recipe": {"model": "minilm", "epochs": 3}}))
    assert status(PAPER["imdb"]).startswith("measured here: in part: results/imdb-minilm.json (minilm, 3 epochs); beside")
    assert "image-net.org" in str(paper.missing_data("imagenet"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "imagenet" / "train").mkdir(parents=True)
    assert paper.missing_data("imagenet") == "imagenet/val (ILSVRC 2012, image-net.org, for who registers)"
    (tmp_path / "imagenet" / "val").mkdir()
    assert paper.missing_data("imagenet") is None
    (tmp_path / "data" / "mnist").mkdir()
    for kind in ("train", "t10k"):
        assert paper.missing_data("mnist") is not None
        for what in ("images-idx3", "labels-idx1"):
            (tmp_path / "data" / "mnist" / f"{kind}-{what}-ubyte.gz").touch()  # as they are published
    assert paper.missing_data("mnist") is None


def test_what_times_the_theory_is_not_taken_for_its_table():
    assert (HOME / "results" / "theory.json").exists()
    assert status(PAPER["table-1"]) == "runnable: outspan theory verify"


@pytest.mark.parametrize("name", PAPER)
def test_its_command_can_be_pasted(name, monkeypatch):
    """Each part is a script that is here, or what the command line takes; its recipes are files and its transforms known."""
    monkeypatch.chdir(HOME)
    for part in PAPER[name].command.split(" && "):
        program, *words = shlex.split(part)
        if program == "python":
            assert (HOME / words[0]).exists()
            continue
        assert program == "outspan"
        command: Any = get_command(app)
        while hasattr(command, "resolve_command"):
            called, command, words = command.resolve_command(command.context_class(command), words)
        given = command.make_context(called, words).params  # an unknown option or a wrong value is an error
        if given.get("recipe"):
            read_recipe(given["recipe"])
        if given.get("transforms"):
            parse_transforms(given["transforms"])


def test_the_twenty_transforms_are_the_papers():
    """By the names in its Table 4, copied by hand."""
    theirs = json.loads((HOME / "results" / "paper-mnist-transforms.json").read_text())["error"]
    words = shlex.split(PAPER["table-4"].command)
    assert sorted(words[words.index("--transforms") + 1].split(",")) == sorted(theirs)


def test_the_commit_is_the_clones_or_what_is_told(tmp_path, monkeypatch):
    monkeypatch.delenv("COMMIT", raising=False)
    git = ("git", "-c", "user.name=x", "-c", "user.email=x", "-C", str(tmp_path))
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    monkeypatch.setattr(paper, "HOME", tmp_path)
    log = subprocess.run([*git, "log", "--format=%H"], check=True, capture_output=True, text=True)
    assert paper.commit() == log.stdout.strip() != ""
    (tmp_path / "inside").mkdir()
    monkeypatch.setattr(paper, "HOME", tmp_path / "inside")  # an environment in another's clone
    assert paper.commit() == ""
    monkeypatch.setenv("COMMIT", "told")
    assert paper.commit() == "told"
