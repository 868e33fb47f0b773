"""Splits of files give the same images as splits in memory, with and without workers."""

import hashlib
import pickle
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from outspan import Normalize, Plan, apply, rng
from outspan.config import Recipe
from outspan.data import image_files
from outspan.data.dataset import count_copies
from outspan.data.decode import read_fitted
from outspan.data.image_files import Files
from outspan.data.preprocess import make_preprocess
from outspan.data.sets import Data
from outspan.data.splits import InMemory, Samples, Split, fingerprint
from outspan.data.stratify import hold_out
from outspan.text.documents import Documents
from outspan.text.executor import PadTokens

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a split of 300 small image files of different sizes."""
    root = tmp_path_factory.mktemp("files")
    draw = np.random.Generator(np.random.Philox(5))
    paths = []
    for i in range(300):
        paths.append(root / f"{i}.png")
        Image.fromarray(draw.integers(0, 256, (9 + i % 4, 8 + i % 3, 3), dtype=np.uint8)).save(paths[-1])
    return Files(paths, torch.arange(300) % 7, 8, workers=2)


@pytest.fixture(scope="module")
def memory(files):
    return InMemory(torch.stack([read_fitted(path, 8, 8) for path in files.paths]), files.labels)


def test_batches_of_files_equal_batches_in_memory(files, memory):
    rows = torch.randperm(300, generator=torch.Generator().manual_seed(1)).split(64)  # enough for workers
    for one, other in zip(files.batches(rows, CPU), memory.batches(rows, CPU), strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])


def test_statistics_and_parts_of_files_equal_those_in_memory(files, memory):
    assert files.statistics() == memory.statistics()
    rows = torch.tensor([5, 1, 200])
    ((images, labels),) = files.take(rows).batches([torch.arange(3)], CPU)
    assert torch.equal(images, memory.take(rows).images)
    assert torch.equal(labels, memory.take(rows).labels)
    assert files.shape == memory.shape


@pytest.fixture
def reads(monkeypatch):
    """The files that are decoded in this process, in order."""
    read, original = [], image_files.read_fitted

    def note(path, *options):
        read.append(path.name)
        return original(path, *options)

    monkeypatch.setattr(image_files, "read_fitted", note)
    return read


def test_a_small_folder_is_decoded_once(files, memory, reads):
    several = replace(files, workers=0)
    assert several.statistics() == memory.statistics()
    assert sorted(reads) == sorted(path.name for path in files.paths)
    order = torch.arange(300).flip(0)
    batches = list(several.batches(order.split(64), CPU))
    assert torch.equal(torch.cat([images for images, _ in batches]), memory.images[order])
    assert torch.equal(torch.cat([labels for _, labels in batches]), memory.labels[order])
    assert len(reads) == 300
    batches[0][0].zero_()  # what a caller does with a batch changes no other
    assert torch.equal(next(several.batches([order[:64]], CPU))[0], memory.images[order[:64]])


def test_a_batch_can_be_partly_in_memory(files, memory, reads):
    several = replace(files, workers=0)
    list(several.batches([torch.tensor([7, 3])], CPU))
    ((images, labels),) = several.batches([torch.tensor([2, 3, 7, 3, 9])], CPU)
    assert torch.equal(images, memory.images[[2, 3, 7, 3, 9]])
    assert torch.equal(labels, memory.labels[[2, 3, 7, 3, 9]])
    assert reads == ["7.png", "3.png", "2.png", "9.png"]


def test_images_that_an_evaluation_has_read_can_be_completed_outside_of_it(files, memory):
    several = replace(files, workers=0)
    with torch.inference_mode():
        next(iter(several.batches([torch.arange(10)], CPU)))
    ((images, _),) = several.batches([torch.arange(5, 20)], CPU)
    assert torch.equal(images, memory.images[5:20])


@pytest.mark.parametrize("size", [0, 2**29])
def test_a_rank_can_have_an_empty_batch(size, files, monkeypatch):
    monkeypatch.setattr(image_files, "_KEPT_BYTES", size)
    batches = replace(files, workers=0).batches([torch.arange(3), torch.arange(0)], CPU)
    assert [tuple(images.shape) for images, _ in batches] == [(3, 3, 8, 8), (0, 3, 8, 8)]


def test_images_in_memory_are_not_pickled_and_not_kept_for_crops(files):
    several = replace(files, workers=0)
    before = len(pickle.dumps(several))
    several.statistics()
    assert len(pickle.dumps(several)) < before + 1_000
    cropped = several.prepared(Recipe(crop="resized", size=8), train=True)
    cropped.statistics()
    assert cropped._kept is None


def test_a_large_folder_is_decoded_in_each_epoch(files, reads, monkeypatch):
    monkeypatch.setattr(image_files, "_KEPT_BYTES", 300 * 3 * 8 * 8 - 1)
    several = replace(files, workers=0)
    for _ in range(2):
        list(several.batches(torch.arange(300).split(64), CPU))
    assert len(reads) == 600


def test_copies_of_samples_are_counted(files, memory, tmp_path):
    assert count_copies(memory, memory.take(torch.tensor([3, 5]))) == 2
    assert count_copies(memory.take(torch.tensor([3, 5])), memory) == 2
    folder = tmp_path / files.paths[0].parent.name
    folder.mkdir()
    for path in files.paths[:3]:
        shutil.copy(path, folder)
    (folder / files.paths[0].name).write_bytes(bytes(files.paths[0].stat().st_size))  # the same name and size
    copies = Files([*(folder / path.name for path in files.paths[:3]), folder / "gone.png"], torch.zeros(4).long(), 8)
    assert count_copies(copies, files) == 2
    assert count_copies(files, copies) == 2
    texts = Documents(["a", "b", "b"], torch.zeros(3).long())
    assert count_copies(texts, Documents(["b"], torch.zeros(1).long())) == 2
    for split in (files, memory, texts):
        assert sum(count_copies(split, other) for other in (files, memory, texts)) == len(split)  # with itself only


def test_images_need_no_preparation_and_have_statistics(files, memory):
    for split in (files, memory):
        assert split.prepared(Recipe()) is split
        assert [len(values) for values in split.statistics()] == [3, 3]
        assert isinstance(split, Split)
        assert fingerprint(split).startswith("300 images, ")
    texts = Documents(["a"], torch.zeros(1).long())
    assert texts.statistics() == ((), ())
    assert isinstance(texts, Samples)
    assert fingerprint(texts) == "1 texts, " + hashlib.blake2b(bytes(8) + b"a", digest_size=8).hexdigest()


def test_the_preprocess_follows_from_the_noun():
    assert make_preprocess("texts", (), ()) == PadTokens()
    assert make_preprocess("images", [0.5], [0.25]) == Normalize((0.5,), (0.25,))
    assert make_preprocess("images", [0.5], [0.25], torch.bfloat16).dtype == torch.bfloat16


def test_reading_does_not_change_the_random_generator(files):
    before = torch.get_rng_state()
    list(files.batches([torch.arange(4)], CPU))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_file_is_named_in_one_line(workers, files, tmp_path):
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(b"no image")
    mixed = Files([*files.paths, damaged], torch.zeros(301, dtype=torch.int64), 8, workers=workers)
    with pytest.raises(ValueError, match=r"damaged\.png: cannot be read as an image") as raised:
        list(mixed.batches(torch.arange(301).split(50), CPU))
    assert "\n" not in str(raised.value)


def test_crops_match_the_transform_and_depend_on_the_epoch(files):
    """If an image already has the size, the crop of a worker equals the crop of a plan. Every epoch has other crops."""
    row = 3
    image = read_fitted(files.paths[row], 8, 8).unsqueeze(0)
    path = files.paths[row].with_name("eight.png")
    Image.fromarray(image[0].permute(1, 2, 0).numpy()).save(path)
    same = Files([path], torch.zeros(1, dtype=torch.int64), 8, workers=0)
    place = rng.generator(5, "crop", 2, 0).random(4).tolist()
    plan = Plan.of([["resized_crop"]], levels=[[0.0]], places=[[place]])
    ((cropped, _),) = same.batches([torch.tensor([0])], CPU, (5, 2))
    assert torch.equal(cropped, apply(image, plan))
    ((other, _),) = same.batches([torch.tensor([0])], CPU, (5, 3))
    assert not torch.equal(cropped, other)


def test_crops_do_not_depend_on_workers_or_batches(files):
    rows = torch.arange(300)
    many = torch.cat([images for images, _ in files.batches(rows.split(64), CPU, (0, 1))])
    few = torch.cat([images for images, _ in files.batches([rows[:10], rows[10:30]], CPU, (0, 1))])
    assert torch.equal(many[:30], few)
    assert not torch.equal(many, torch.cat([images for images, _ in files.batches(rows.split(64), CPU)]))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_image_is_replaced_by_another_of_its_class(workers, files, memory, tmp_path):
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(b"no image")
    paths = list(files.paths)
    paths[293] = damaged  # 293 = 41·7 + 6 is the final image of class 6; the first one replaces it
    mixed = Files(paths, files.labels, 8, workers=workers, skip_bad=1)
    with pytest.warns(UserWarning, match=r"damaged\.png: cannot be read as an image; another one of its class"):
        batches = list(mixed.batches(torch.arange(300).split(50), CPU))
    expected = memory.images.clone()
    expected[293] = memory.images[6]
    assert torch.equal(torch.cat([images for images, _ in batches]), expected)
    assert torch.equal(torch.cat([labels for _, labels in batches]), files.labels)
    assert mixed.bad == {damaged}


def test_too_many_unreadable_images_are_refused_by_name(files, tmp_path):
    paths = [tmp_path / "one.png", tmp_path / "two.png", *files.paths[:4]]
    for path in paths[:2]:
        path.write_bytes(b"no image")
    mixed = Files(paths, torch.zeros(6, dtype=torch.int64), 8, workers=0, skip_bad=1)
    with (
        pytest.warns(UserWarning, match="one.png"),
        pytest.raises(ValueError, match=r"two\.png: cannot be read as an image, and --skip-bad allows 1 of them"),
    ):
        list(mixed.batches([torch.arange(6)], CPU))
    alone = Files(paths[:2], torch.zeros(2, dtype=torch.int64), 8, workers=0, skip_bad=5)
    with pytest.raises(ValueError, match=r"one\.png: cannot be read as an image"):
        list(alone.batches([torch.arange(2)], CPU))


ABANDONED = """
import multiprocessing, signal, subprocess, sys
from pathlib import Path
import torch
from outspan.data.image_files import Files

if __name__ == "__main__":
    torch.multiprocessing.set_start_method(sys.argv[2])
    multiprocessing.set_forkserver_preload(["torch", "outspan.data.image_files"])  # imported once, not in every worker
    paths = sorted(Path(sys.argv[1]).iterdir()) * 300

    def read():
        files = Files(paths, torch.zeros(len(paths), dtype=torch.int64), 8, workers=2)
        return files.batches(torch.arange(len(paths)).split(10), torch.device("cpu"))

    batches = read()
    next(batches)
    if sys.argv[2] == "fork":  # like a scheduler, another process than the parent terminates the workers
        workers = [child.pid for child in torch.multiprocessing.active_children()]
        kill = f"import os; [os.kill(pid, {int(signal.SIGTERM)}) for pid in {workers}]"
        subprocess.run([sys.executable, "-c", kill], check=True)
    print(sum(1 for _ in batches), flush=True)
    batches = read()
    next(batches)
    raise ValueError("with batches to come")
"""


@pytest.mark.skipif(not hasattr(signal, "sigwaitinfo"), reason="macOS does not tell who sent a signal")
@pytest.mark.parametrize("method", ["fork", "forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_ignore_sigterm_of_others_and_end_with_a_failed_script(method, tmp_path):
    (tmp_path / "images").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "images" / "one.png")
    (tmp_path / "script.py").write_text(ABANDONED)
    command = [sys.executable, tmp_path / "script.py", tmp_path / "images", method]
    script = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert script.stdout.split() == ["29"]
    _, ours, more = script.stderr.partition("ValueError: with batches to come\n")
    assert ours
    assert not more or "is killed by signal: Terminated" in more  # torch may report a worker that it ended before it started


def test_held_out_samples_are_not_in_train():
    split = InMemory(torch.arange(50, dtype=torch.uint8).view(50, 1, 1, 1), torch.arange(50))
    kept, held_out = hold_out(split, 10, 3)
    assert sorted([*kept.labels.tolist(), *held_out.labels.tolist()]) == list(range(50))
    assert len(held_out) == 10
    with pytest.raises(ValueError, match="validation must be smaller than the number of training samples, 50, got 50"):
        hold_out(split, 50, 0)


def test_class_names_are_strings():
    """A checkpoint stores class names, so a run with numbers as classes could not be loaded."""
    split = InMemory(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]))
    data = Data("mine", split, split, ("0", "1"))
    object.__setattr__(data, "classes", (0, 1))  # otherwise the type checks of the suite would refuse it first
    with pytest.raises(ValueError, match=r"mine: class names must be strings, got 0: use tuple\(map\(str, classes\)\)"):
        data.__post_init__()


@pytest.mark.parametrize("title", ["train", "test", "validation"])
def test_data_with_inconsistent_splits_is_refused(title, memory):
    splits = {"train": memory, "test": memory, "validation": memory}
    names = tuple("abcdefg")
    Data("d", **splits, classes=names)
    Data("d", **{**splits, "validation": None}, classes=names)
    for wrong, message in (
        (memory.take(torch.arange(0)), f"the {title} split is empty"),
        (InMemory(memory.images, memory.labels + 1), f"{title} labels must lie in .0, 6., got 1 to 7"),
        (InMemory(memory.images[..., :5], memory.labels), "images differ in shape"),
        (Documents(["a"], torch.zeros(1).long()), "differ in shape"),
    ):
        with pytest.raises(ValueError, match=message):
            Data("d", **{**splits, title: wrong}, classes=names)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 8, 8, 3, dtype=torch.uint8), r"1 or 3 channels, got \[2, 8, 8, 3\]: use images.permute\(0, 3, 1, 2\)"),
        (torch.zeros(2, 3, 8, 8), "images must be a uint8 tensor with values from 0 to 255, got torch.float32"),
        (torch.zeros(2, 8, 8, dtype=torch.uint8), r"images must be a uint8 tensor \[B, C, H, W\], got torch.uint8 \[2, 8, 8\]"),
    ],
)
def test_images_of_a_wrong_type_or_shape_are_refused(images, message, unchecked):
    with pytest.raises(ValueError, match=message):
        InMemory(images, torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.zeros(2), r"labels must be int64 \[N\], .* got torch.float32 \[2\]: regression is not supported"),
        (torch.zeros(2, 3), r"or bool \[N, classes\] .* got torch.float32 \[2, 3\]: use labels.bool\(\)"),
        (torch.zeros(2, 3, dtype=torch.int64), r"got torch.int64 \[2, 3\]: use labels.bool\(\)"),
        (torch.zeros(2, 4, 4, dtype=torch.int64), "segmentation masks are not supported"),
        ([0, 1], r"got a list of int: use torch.as_tensor\(labels\).long\(\)"),
    ],
)
def test_labels_of_a_wrong_type_or_shape_are_refused(labels, message, unchecked):
    with pytest.raises(ValueError, match=message):
        InMemory(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), labels)
