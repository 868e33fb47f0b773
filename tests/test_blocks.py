"""Every code block of README, CONTRIBUTING and docs is run.

Python blocks run unchanged. The blocks of a page share one namespace. Commands run on small stand-ins for the
user's files, with one epoch of a part of the data. Blocks of output are marked as text and not run. `test_docs.py` runs the
loops of docs/loops.md, which are separate programs, and `test_additions.py` runs the additions of CONTRIBUTING.
"""

import contextlib
import csv
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from clusters import ENVIRONMENT
from made import make_folder, make_official, make_shards
from outspan import models
from outspan.config import tomllib
from outspan.reproduce import status
from outspan.text import backtranslation, masked
from ranks import free_port
from reviews import make_reviews

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = {"python", "sh", "diff", "text", "toml", "json"}  # only the first three can be run
BERT = "google-bert/bert-base-uncased"
SMALL = {"epochs": 1, "batch": 16}  # one short epoch
FEW_SEEDS = {"compare": 1, "reproduce": 1, "measure": 2, "compose": 2, "core": 2, "mixup": 2}
LESS = {"rank": {"--samples": 8, "--draws": 2}, "table-3": {"--methods": "baseline", "--scale": 1e-5}}
OFFICIAL = {"theory.md", "reproduce.md"}  # pages whose commands need the files of a published data set
ELSEWHERE = {"loops.md", "CONTRIBUTING.md"}  # run by test_docs.py and test_additions.py
TRAINING = {"train", "compare", "grid", "measure", "compose", "core", "mixup"}


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the language and the text of every fenced block of a page; indented fences are part of a list."""
    fences = re.findall(r"(?ms)^( *)```(\w*)\n(.*?)^\1```$", page.read_text(encoding="utf-8"))
    return [(language, re.sub(f"(?m)^{indent}", "", text)) for indent, language, text in fences]


def commands(text: str) -> list[list[str]]:
    """Return the commands of a shell block, without comments and prompts."""
    joined = text.replace("\\\n", " ")
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if any(block_language == language for block_language, _ in blocks(page))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_has_a_language(page):
    assert {language for language, _ in blocks(page)} <= LANGUAGES
    assert page.read_text().count("```") == 2 * len(blocks(page))  # no block is missed


@pytest.fixture(scope="session")
def resnet_weights(tmp_path_factory):
    """A file of weights in place of the published ones, which would be downloaded."""
    path = tmp_path_factory.mktemp("weights") / "resnet.safetensors"
    save_file(models.build("resnet-18", (3, 32, 32), 1000).state_dict(), path)
    return path


@pytest.fixture
def user_folder(tmp_path, resnet_weights, monkeypatch):
    """A folder with small files of the names that the pages use."""
    (tmp_path / "results").symlink_to(ROOT / "results")
    for recipe in (ROOT / "recipes").rglob("*.toml"):
        copy = tmp_path / recipe.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = recipe.read_text(encoding="utf-8").replace("wide_resnet-28-10", "wide_resnet-10-1")
        text = text.replace("batch = 128", "batch = 4").replace('"resnet-50"', '"resnet-18"')
        copy.write_text(text.replace('weights = "published"', f'weights = "{resnet_weights}"'), encoding="utf-8")
    monkeypatch.setattr(status, "HOME", tmp_path)
    (tmp_path / "docs").mkdir()  # some commands write figures there
    make_folder(tmp_path / "path" / "to" / "folder", train=8, test=4)
    make_shards(tmp_path / "path" / "to", shards=10)
    for name, count in (("mug", 60), ("plant", 14), ("shoe", 14)):
        (tmp_path / "phone-photos" / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (50 + i, 40), (i, 4 * i, count)).save(tmp_path / "phone-photos" / name / f"{i}.jpg")
    for name in ("new.jpg", "my.png", "more/one.jpg", "pictures/one.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (40, 40), (200, 30, 30)).save(tmp_path / name)
    write_digits(tmp_path / "other.npz")
    with open(tmp_path / "reviews.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("review", "stars", "sure"), *((*row, 0.9) for row in make_reviews(40))])
    (tmp_path / "tagged.csv").write_text("text,label\n" + "a lovely film,good;film\ndull music,music\n" * 20, encoding="utf-8")
    (tmp_path / "new.csv").write_text("review\na lovely film.\n", encoding="utf-8")
    (tmp_path / "lines.txt").write_text("a lovely film.\na dull plot.\n", encoding="utf-8")
    (tmp_path / "photos.csv").write_text("image,label\n" + "my.png,red\nnew.jpg,red;new\n" * 50, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    return tmp_path


class Reversing:
    """A translation engine that reverses every sentence."""

    def __call__(self, sentences):
        return (sentence[::-1] for sentence in sentences)

    def close(self) -> None:
        """Nothing is open."""


class Proposing(Reversing):
    """A masked language model that always proposes the same words."""

    def __call__(self, sentences):
        return ([["film", "music"] for _ in sentence.split()] for sentence in sentences)


def write_digits(path: Path) -> None:
    images, labels = np.zeros((40, 28, 28), np.uint8), np.arange(40) % 10
    np.savez(path, train_images=images, train_labels=labels, test_images=images, test_labels=labels)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'pin_memory'")  # of the Trainer of transformers, without a GPU
@pytest.mark.parametrize(
    "page", [page for page in pages_with("python") if page.name not in ELSEWHERE], ids=lambda page: page.name
)
def test_python_blocks_run(page, user_folder, tiny_model, unchecked, one_thread, monkeypatch):
    torch.manual_seed(0)
    if "from datasets import" in page.read_text(encoding="utf-8"):
        # `datasets.map` hashes the globals of functions, which takes minutes for functions with the type checks of the suite.
        monkeypatch.setattr("datasets.fingerprint.Hasher.hash", lambda _, value: str(id(value)))
    namespace: dict = {"__name__": "__main__"}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text.replace(BERT, str(tiny_model)), page.name, "exec"), namespace)  # noqa: S102


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unfreeze")  # the runs of the pages are shortened to one epoch
@pytest.mark.parametrize("page", pages_with("sh"), ids=lambda page: page.name)
def test_commands_run(page, user_folder, tiny_model, timm, run, monkeypatch, unchecked, one_thread):
    monkeypatch.setattr(backtranslation, "ENGINES", {"apertium": lambda pair: Reversing()})
    monkeypatch.setattr(masked, "MaskedModel", lambda name: Proposing())
    for name in {"mnist", "cifar10"} & set(re.findall(r"\w+", page.read_text())) if page.name in OFFICIAL else ():
        make_official(name, user_folder / "data")
    for language, text in blocks(page):
        if language == "toml" and (name := re.match(r"# (\w+\.toml)\n", text)):
            recipe = text.replace("FOLDER", str(tiny_model)).replace("validation = 500", "validation = 20\nlength = 16")
            (user_folder / name[1]).write_text(recipe, encoding="utf-8")
        for words in commands(text) if language == "sh" else ():
            if "ray" in words:  # see test_commands_of_ray_run
                continue
            if "<" in words:
                *words, _, path = words
                monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(path).read_bytes())))
            if words[0] == "outspan":
                run(*small(words[1:], tiny_model))
            elif words[0] in ("torchrun", "accelerate"):
                run_ranks(words, tiny_model)
            else:
                check_program(words)


@pytest.mark.cluster
def test_commands_of_ray_run(ray_cluster, user_folder, tiny_model, unchecked, one_thread):
    for page in pages_with("sh"):
        for language, text in blocks(page):
            for words in commands(text) if language == "sh" else ():
                if "ray" in words:
                    run_on_ray(words, tiny_model, ray_cluster.address)


def run_ranks(words: list[str], tiny_model: Path) -> None:
    """Run a command with two ranks on this machine: two of one launcher, or one on each of two. They train from the start."""
    shutil.rmtree(words[words.index("-o") + 1], ignore_errors=True)  # an earlier command of the page has written it
    at = words.index("outspan")
    launcher = re.sub("(--nproc-per-node|--num_processes) [0-9]+", r"\1 X", " ".join(words[1:at]))
    several = "--nnodes 2" in launcher
    launcher = launcher.replace("X", "1" if several else "2").replace("node1:29500", f"127.0.0.1:{free_port()}")
    module = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.accelerate_cli"}[words[0]]
    command = [sys.executable, "-m", module, *launcher.split(), "outspan", *small(words[at + 1 :], tiny_model)]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(1 + several)]
    errors = [process.communicate(timeout=600)[1] for process in started]
    assert [process.returncode for process in started] == [0] * len(started), errors
    assert "device cpu, 2 processes" in "".join(errors)


def run_on_ray(words: list[str], tiny_model: Path, address: str) -> None:
    """Run a command on two workers of this machine. Commands that start Ray are only checked: `cluster` does the same."""
    if words[0] == "ray":
        assert words[1:] in (["start", "--head"], ["start", "--address", "node1:6379"])
        return
    arguments = [address if word == "auto" else word for word in small(words[1:], tiny_model)]
    command = [sys.executable, "-m", "outspan", *arguments]
    done = subprocess.run(command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def small(words: list[str], tiny_model: Path) -> list[str]:
    """Return a command that does the same with less: fewer seeds, one epoch, a part of the data, a tiny model for text."""
    words = [re.sub(r"^timm:\w+", "timm:small", re.sub(r"^validation=\d+$", "validation=20", word)) for word in words]
    command = words[0]
    less = {**LESS.get(words[1], {})} if len(words) > 2 else {}  # if an option is repeated, its last value is used
    if command in FEW_SEEDS and (less or command in TRAINING):
        less |= {"--folds": 2} if "--folds" in words else {"--seeds": FEW_SEEDS[command]}
    words += [str(part) for option in less.items() for part in option]
    if command in TRAINING:
        options = SMALL | ({"size": 4, "weights": "published"} if "timm:small" in words else {"size": 32})
        words += [part for key, value in options.items() for part in ("--set", f"{key}={value}")]
        is_text = {"reviews.csv", "tagged.csv"} & {*words}
        if is_text:
            words += ["--model", str(tiny_model), "--set", "length=16"]
        elif "grid.toml" not in words:  # which is that of the page on texts
            words += ["--set", "fraction=0.02"]
    return words


def check_program(words: list[str]) -> None:
    """Check a command of another program as far as possible without running it: it installs or sets up."""
    if words[0] == "make":
        assert re.search(rf"(?m)^[\w -]*\b{words[1]}\b[\w -]*:", (ROOT / "Makefile").read_text())
    elif words[0] == "pip":
        with open(ROOT / "pyproject.toml", "rb") as file:
            extras = tomllib.load(file)["project"]["optional-dependencies"]
        assert set(re.findall(r"\[(.+)\]", words[-1])) <= extras.keys()
    else:
        assert words[0] in {"apt-get", ".venv/bin/pre-commit"}, f"unknown program {words[0]}"


def test_a_block_that_fails_is_detected(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Text.\n\n1. Item:\n\n   ```python\n   1 / 0\n   ```\n\n```sh\noutspan data list  # all\n```\n")
    (first, second) = blocks(page)
    assert second == ("sh", "outspan data list  # all\n")
    assert commands(second[1]) == [["outspan", "data", "list"]]
    with contextlib.suppress(ZeroDivisionError):
        exec(first[1])  # noqa: S102
        raise AssertionError("the block did not run")
