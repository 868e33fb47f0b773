"""Readers on small generated files in the official formats, complete and damaged."""

import gzip
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from made import DRAW, idx, mat
from outspan.config import Recipe
from outspan.data import decode, folders, readers, sets
from outspan.data.image_files import Files


def test_idx_plain_and_compressed(tmp_path):
    array = DRAW.integers(0, 256, (4, 3, 2), dtype=np.uint8)
    (tmp_path / "plain").write_bytes(idx(array))
    (tmp_path / "zipped.gz").write_bytes(gzip.compress(idx(array)))
    for name in ("plain", "zipped"):
        assert np.array_equal(readers.read_idx(tmp_path / name, (4, 3, 2)).numpy(), array)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (idx(np.zeros((4, 3), np.uint8))[:-1], "23 bytes, expected 24"),
        (idx(np.zeros((4, 3), np.uint8)) + b"x", "25 bytes, expected 24"),
        (idx(np.zeros((3, 4), np.uint8)), r"header does not announce bytes of shape \[4, 3\]"),
    ],
)
def test_idx_of_another_size_is_refused(data, message, tmp_path):
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        readers.read_idx(tmp_path / "file", (4, 3))


def test_an_incomplete_gzip_is_refused(tmp_path):
    (tmp_path / "file.gz").write_bytes(gzip.compress(idx(np.zeros((4, 3), np.uint8)))[:-9])
    with pytest.raises(ValueError, match=r"file\.gz: not a whole gzip file"):
        readers.read_idx(tmp_path / "file", (4, 3))
    with pytest.raises(ValueError, match="no such file"):
        readers.read_idx(tmp_path / "none", (4, 3))


@pytest.mark.parametrize("label_bytes", [1, 2])
def test_cifar_binary(label_bytes, tmp_path):
    images = DRAW.integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    labels = DRAW.integers(0, 10, (5, label_bytes), dtype=np.uint8)
    records = np.concatenate([labels, images.reshape(5, -1)], axis=1)
    (tmp_path / "batch.bin").write_bytes(records.tobytes())
    pixels, classes = readers.read_cifar([tmp_path / "batch.bin"] * 2, label_bytes=label_bytes, records=5)
    assert np.array_equal(pixels[:5].numpy(), images)
    assert classes.tolist() == labels[:, -1].tolist() * 2
    records[2, label_bytes - 1] = 200
    (tmp_path / "batch.bin").write_bytes(records.tobytes())
    with pytest.raises(ValueError, match="labels must lie below"):
        readers.read_cifar([tmp_path / "batch.bin"], label_bytes=label_bytes, records=5)
    with pytest.raises(ValueError, match=f"{5 * (3072 + label_bytes):,} bytes, expected {6 * (3072 + label_bytes):,}"):
        readers.read_cifar([tmp_path / "batch.bin"], label_bytes=label_bytes, records=6)


@pytest.mark.parametrize("packed", [True, False])
def test_svhn_mat(packed, tmp_path):
    images = DRAW.integers(0, 256, (32, 32, 3, 6), dtype=np.uint8)
    labels = np.array([[1], [2], [10], [9], [5], [10]], dtype=np.uint8)
    (tmp_path / "a.mat").write_bytes(mat({"X": images, "y": labels}, packed=packed))
    pixels, classes = readers.read_svhn(tmp_path / "a.mat")
    assert np.array_equal(pixels.numpy(), images.transpose(3, 2, 0, 1))
    assert classes.tolist() == [1, 2, 0, 9, 5, 0]
    (tmp_path / "a.mat").write_bytes(mat({"X": images, "y": labels + 1.0}))
    with pytest.raises(ValueError, match=r"labels must lie in \[1, 10\], got 2 to 11"):
        readers.read_svhn(tmp_path / "a.mat")


@given(cut=st.integers(0, 400), flips=st.lists(st.tuples(st.integers(0, 390), st.integers(1, 255)), max_size=3))
def test_a_damaged_mat_gives_arrays_or_a_value_error(cut, flips):
    data = bytearray(mat({"X": np.zeros((2, 2), np.uint8), "y": np.ones((3, 1))}, packed=False))
    for position, change in flips:
        data[position % len(data)] ^= change
    path = Path("/dev/shm/outspan-test.mat") if Path("/dev/shm").is_dir() else Path("outspan-test.mat")  # noqa: S108
    path.write_bytes(bytes(data[:cut]))
    try:
        with suppress(ValueError):
            readers.read_mat(path)
    finally:
        path.unlink()


def test_npz_in_every_layout(tmp_path):
    for shape in ((5, 8, 9), (5, 8, 9, 3), (5, 3, 8, 9), (5, 1, 8, 9)):
        array = DRAW.integers(0, 256, shape, dtype=np.uint8)
        labels = np.arange(5) % 2
        np.savez(tmp_path / "a.npz", train_images=array, train_labels=labels, test_images=array, test_labels=labels)
        data = sets.load(str(tmp_path / "a.npz"))
        assert data.train.images.shape[2:] == (8, 9)
        assert len(data.classes) == 2
        channels_last = array if array.ndim == 3 or shape[1] in (1, 3) else array.transpose(0, 3, 1, 2)
        assert np.array_equal(data.test.images.numpy().reshape(channels_last.shape), channels_last)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_images": np.zeros((2, 4, 4))}, r"train_images must be uint8 images \[N, H, W\], .*, got float64"),
        ({"train_labels": np.zeros(2)}, "train_labels must be whole numbers"),
        ({"train_labels": np.zeros(3, int)}, r"a\.npz: the 2 train images have 3 labels"),
        ({"train_labels": np.array([0, -1])}, "labels must lie in"),
        ({"test_images": np.zeros((2, 5, 4), np.uint8)}, "train and test images differ in shape"),
        ({"test_images": np.zeros((2, 5, 4, 2), np.uint8)}, "must have 1 or 3 channels"),
        ({"train_labels": np.array([None, 1], dtype=object)}, "allow_pickle"),
    ],
)
def test_npz_with_inconsistent_arrays_is_refused(change, message, tmp_path, unchecked):
    arrays = {"train_images": np.zeros((2, 4, 4), np.uint8), "train_labels": np.zeros(2, int)}
    arrays |= {"test_images": np.zeros((2, 4, 4), np.uint8), "test_labels": np.zeros(2, int), **change}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        sets.load(str(tmp_path / "a.npz"))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ((1, 2, 3), r"a\.npz: no image has label 0, but each label below 4 is a class: subtract 1 from all labels"),
        ((0, 3, 9), r"no image has label 1, 2, 4, 5, 6, …, but .*: number the classes without gaps"),
    ],
)
def test_npz_with_a_class_without_images_is_warned_about(labels, message, tmp_path):
    images = np.zeros((3, 4, 4), np.uint8)
    np.savez(tmp_path / "a.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    with pytest.warns(UserWarning, match=message):
        assert len(sets.load(str(tmp_path / "a.npz")).classes) == max(labels) + 1


def test_npz_with_unknown_arrays_or_many_numbers_is_warned_about(tmp_path):
    images, labels = np.zeros((120, 4, 4), np.uint8), np.arange(120) % 60
    arrays = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.warns(UserWarning, match="the labels are 60 numbers for 240 images: .* regression is not supported"):
        assert len(sets.load(str(tmp_path / "a.npz")).classes) == 60
    arrays |= {"train_labels": labels % 2, "test_labels": labels % 2}
    np.savez(tmp_path / "b.npz", sample_weight=np.ones(120), **arrays)
    with pytest.warns(UserWarning, match=r"b\.npz: arrays that are not used: sample_weight .* called 'train_weights'"):
        sets.load(str(tmp_path / "b.npz"))


def test_a_file_that_is_not_npz_is_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"not a zip")
    with pytest.raises(ValueError, match=r"a\.npz: not an \.npz file, which is a zip archive of arrays"):
        sets.load(str(tmp_path / "a.npz"))
    np.savez(tmp_path / "b.npz", x=np.zeros(2))
    with pytest.raises(ValueError, match="no array 'train_images' or 'x_train', it has x"):
        sets.load(str(tmp_path / "b.npz"))


def folder(root: Path) -> Path:
    for split, count in (("train", 3), ("val", 2)):
        for name, value in (("cats", 50), ("dogs", 200)):
            (root / split / name).mkdir(parents=True)
            for i in range(count):
                Image.new("RGB", (30 + 10 * i, 20), (value, i, 0)).save(root / split / name / f"{i}.png")
    return root


def test_images_of_a_folder_are_resized_to_one_size(tmp_path):
    data = sets.load(str(folder(tmp_path)), size=16)
    assert (len(data.train), data.train.shape) == (6, (3, 16, 16))
    assert data.classes == ("cats", "dogs")
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    ((images, labels),) = data.test.batches([torch.tensor([3, 0])], torch.device("cpu"))
    assert images[:, 0].unique().tolist() == [50, 200]
    assert labels.tolist() == [1, 0]


@given(width=st.integers(1, 5000), height=st.integers(1, 5000), to=st.tuples(st.integers(1, 400), st.integers(1, 400)))
@example(width=30, height=29, to=(28, 28))  # here a rounding error was outside the image
@example(width=225, height=300, to=(224, 224))
def test_the_centre_crop_is_inside_the_image(width, height, to):
    left, top, right, bottom = decode.center_box(width, height, *to)
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    assert (right - left) / (bottom - top) == pytest.approx(to[0] / to[1])
    assert right - left == pytest.approx(width) or bottom - top == pytest.approx(height)


def test_invalid_folders_are_refused(tmp_path):
    root = folder(tmp_path)
    (root / "train" / "empty").mkdir()
    with pytest.raises(ValueError, match="empty: an empty or missing class folder"):
        sets.load(str(root), size=16)
    (root / "train" / "empty").rmdir()
    (root / "val" / "birds").mkdir()
    with pytest.raises(ValueError, match="class 'birds' is not among the train classes"):
        sets.load(str(root), size=16)
    (root / "val" / "birds").rmdir()
    for path in (root / "train" / "cats", tmp_path / "nothing"):  # images without classes, classes without images
        (tmp_path / "nothing" / "cats").mkdir(parents=True, exist_ok=True)
        with pytest.raises(ValueError, match=r"needs the folders train and val.*class folders alone is accepted"):
            sets.load(str(path), size=16)
    shutil.rmtree(root / "val")
    with pytest.raises(ValueError, match="val is missing"):
        sets.load(str(root), size=16)


@pytest.mark.parametrize("top", ["train", ""])
def test_heic_files_are_refused_or_left_out_with_a_warning(top, tmp_path):
    root = folder(tmp_path)
    source = root / top
    if not top:
        shutil.rmtree(root / "val")
        for path in [*(root / "train").iterdir()]:
            shutil.move(path, root)
        (root / "train").rmdir()
    (source / "cats" / "a.HEIC").touch()
    with pytest.warns(UserWarning, match="cats: 1 of 4 files are left out: HEIC images are not read: convert them to JPEG"):
        assert "a.HEIC" not in [path.name for path in sets.load(str(root), size=16).train.paths]
    for path in (source / "dogs").iterdir():
        path.rename(path.with_suffix(".heif"))
    (source / "cats" / "a.HEIC").unlink()
    with pytest.raises(ValueError, match="dogs: HEIC images are not read: convert"):
        sets.load(str(root), size=16)
    for path in [*source.glob("*/*.png")]:
        path.rename(path.with_suffix(".heic"))
    with pytest.raises(ValueError, match="HEIC images are not read: convert them to JPEG"):
        sets.load(str(root), size=16)


def test_images_of_a_class_may_be_in_subfolders(tmp_path):
    root = folder(tmp_path)
    known = sets.load(str(root), size=16)
    (root / "train" / "cats" / "b" / "c").mkdir(parents=True)
    (root / "train" / "cats" / "1.png").rename(root / "train" / "cats" / "b" / "c" / "1.png")
    (root / "train" / "cats" / ".thumbnails").mkdir()
    (root / "train" / "cats" / ".thumbnails" / "0.png").touch()
    data = sets.load(str(root), size=16)
    assert data.train.labels.tolist() == known.train.labels.tolist()
    assert {path.name for path in data.train.paths} == {path.name for path in known.train.paths}
    assert data.train.digest != known.train.digest
    for i in (0, 2):  # no image is in the class folder itself
        (root / "train" / "cats" / f"{i}.png").rename(root / "train" / "cats" / "b" / f"{i}.png")
    assert len(sets.load(str(root), size=16).train) == 6


def test_a_folder_without_splits_is_divided_by_file_names(tmp_path):
    root = tmp_path / "all"
    for name, count in (("cats", 100), ("dogs", 40), ("rare", 1)):
        (root / name).mkdir(parents=True)
        for i in range(count):
            (root / name / f"{i}.png").touch()  # files are listed, not read

    def sides() -> tuple[set[str], set[str], Files]:
        data = sets.load(str(root), size=8)
        assert data.classes == ("cats", "dogs", "rare")
        for split in (data.train, data.test):
            assert [path.parent.name for path in split.paths] == [data.classes[label] for label in split.labels]
        train, test = ({f"{path.parent.name}/{path.name}" for path in split.paths} for split in (data.train, data.test))
        return train, test, data.test

    train, test, split = sides()
    assert not train & test
    assert len(train | test) == 141
    assert "rare/0.png" in train  # every class needs a training image
    assert split.labels.bincount().tolist() == pytest.approx([20, 8], abs=12)  # three standard deviations
    for i in range(100, 120):
        (root / "cats" / f"{i}.png").touch()
    later, tested, _ = sides()
    assert train < later
    assert test <= tested
    for name in ("val", "Testing"):  # now the folder has a test split but no train split
        shutil.move(root / "dogs", root / name)
        with pytest.raises(ValueError, match="train is missing"):
            sets.load(str(root), size=8)
        shutil.move(root / name, root / "dogs")
    for name in ("one", "other"):  # unknown split names: the folders contain classes, not images
        (tmp_path / "splits").mkdir(exist_ok=True)
        shutil.copytree(root, tmp_path / "splits" / name)
    with pytest.raises(ValueError, match="train is missing"):
        sets.load(str(tmp_path / "splits"), size=8)


def test_a_folder_may_have_three_splits(tmp_path):
    root = folder(tmp_path)
    tested = sets.load(str(root), size=16).test.paths
    (root / "val").rename(root / "valid")
    data = sets.load(str(root), size=16)
    assert [path.name for path in data.test.paths] == [path.name for path in tested]
    assert data.validation is None
    shutil.copytree(root / "valid", root / "test")
    data = sets.load(str(root), size=16)
    assert {path.parents[1].name for path in data.test.paths} == {"test"}
    assert {path.parents[1].name for path in data.validation.paths} == {"valid"}
    assert len(sets.load_for(Recipe(data=str(root), size=16, fraction=0.5, batch=1)).validation) == 2


def test_all_images_of_a_folder_without_train_are_tested(tmp_path):
    root = folder(tmp_path)
    _, (files, labels), _, classes = folders.list_folder(root)
    shutil.rmtree(root / "train")
    for path in (root / "val", root):
        listed, listed_labels = folders.list_whole(path, ("another", *classes))
        assert [*listed] == [*files]
        assert listed_labels.tolist() == (labels + 1).tolist()
    with pytest.raises(ValueError, match="is not among the classes of the run, another"):
        folders.list_whole(root, ("another",))
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ValueError, match="nothing: has no class folders"):
        folders.list_whole(tmp_path / "nothing", classes)


def test_a_folder_of_images_with_text_files_is_images(tmp_path):
    root = folder(tmp_path / "set")
    class_folder = next((root / "train").iterdir())
    (class_folder / f"{class_folder.name}_boxes.txt").write_text("0.JPEG 1 2 3 4")
    (root / "train.csv").write_text("file,label\n0.png,a\n")
    assert sets.noun_of(str(root)) == "images"
    assert isinstance(sets.load(str(root), size=8).train, Files)
    deeper = tmp_path / "tiny" / "train" / "n0"
    (deeper / "images").mkdir(parents=True)
    (deeper / "n0_boxes.txt").write_text("0.JPEG 1 2 3 4")
    (deeper / "images" / "0.JPEG").write_bytes(b"")
    assert sets.noun_of(str(tmp_path / "tiny")) == "images"
    (deeper / "images" / "0.JPEG").unlink()
    assert sets.noun_of(str(tmp_path / "tiny")) == "texts"


def test_the_included_digits_are_the_first_of_mnist():
    data = sets.load("digits")
    assert data.train.images.shape == (5000, 1, 28, 28)
    assert data.test.images.shape == (1000, 1, 28, 28)
    assert data.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]  # the first labels of MNIST
    assert data.test.labels[:5].tolist() == [7, 2, 1, 0, 4]


def test_statistics_match_the_pixels():
    data = sets.load("digits")
    mean, std = data.train.statistics()
    pixels = data.train.images.double() / 255
    assert mean == pytest.approx([float(pixels.mean())])
    assert std == pytest.approx([float(pixels.std(correction=0))])


def test_the_nearest_name_is_suggested(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="unknown data set 'cifar-10', did you mean 'cifar10'"):
        sets.load("cifar-10")
    with pytest.raises(ValueError, match=r"photos: no such file or folder, and unknown data set 'photos' .known: digits, "):
        sets.load("photos")
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path))
    for name in ("mnist", "cifar10", "cifar100", "svhn"):
        with pytest.raises(ValueError, match=f"{tmp_path}.*no such file"):
            sets.load(name)


def test_official_layouts_are_read(tmp_path, monkeypatch):
    """Complete data sets of the official sizes, with images of noise."""
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path))
    home = tmp_path / "cifar-10-batches-bin"
    home.mkdir()
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        (home / name).write_bytes(bytes(10_000 * 3073))
    data = sets.load("cifar10")
    assert (len(data.train), len(data.test), len(data.classes)) == (50_000, 10_000, 10)
    assert not torch.any(data.train.labels)
