"""Data sets in the style of torchvision as data of a run."""

import numpy as np
import pytest
import torch
from PIL import Image

import outspan
from outspan.data.decode import read_fitted
from trained_runs import few

DRAW = np.random.Generator(np.random.Philox(0))


class Pictures:
    """Pairs of an image and a class, with the names of the classes as torchvision's data sets have them."""

    def __init__(self, items, classes=None):
        self.items = items
        if classes:
            self.classes = classes

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        return self.items[row]


def colours(height, width):
    return Image.fromarray(DRAW.integers(0, 256, (height, width, 3), dtype=np.uint8))


def test_pictures_and_tensors_give_the_same_data():
    data = few(40)
    parts = [list(zip(split.images, split.labels.tolist(), strict=True)) for split in (data.train, data.test)]
    tensors = outspan.from_datasets(*map(Pictures, parts))
    pictures = outspan.from_datasets(
        *(Pictures([(Image.fromarray(image[0].numpy()), label) for image, label in part]) for part in parts)
    )
    for read in (tensors, pictures):
        assert torch.equal(read.train.images, data.train.images)
        assert torch.equal(read.test.labels, data.test.labels)
        assert read.classes == data.classes


def test_images_of_several_sizes_are_resized_as_files_are(tmp_path):
    items = [(colours(10, 14), 0), (colours(20, 9), np.int64(1)), (Image.new("L", (8, 8), 7), torch.tensor(1))]
    data = outspan.from_datasets(Pictures(items, ["a", "b"]), Pictures(items[:2]), Pictures(items[1:]), size=6)
    assert data.classes == ("a", "b")
    assert data.validation is not None
    assert data.train.labels.tolist() == [0, 1, 1]
    for image, (picture, _) in zip(data.train.images, items, strict=True):
        picture.save(tmp_path / "a.png")
        assert torch.equal(image, read_fitted(tmp_path / "a.png", 6, 6))
    with pytest.raises(ValueError, match=r"item 1 of the train .* differ in size, 14 x 10 and 9 x 20 pixels: pass size=224"):
        outspan.from_datasets(Pictures(items), Pictures(items))


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ((torch.zeros(1, 4, 4), 0), r"must be a uint8 tensor .* got torch.float32 .*: leave out ToTensor\(\)"),
        ((torch.zeros(4, 4, 4, dtype=torch.uint8), 0), "with 1 or 3 channels"),
        ((np.zeros((4, 4)), 0), "must have a Pillow image or a uint8 tensor"),
        ((colours(4, 4), 0.5), "must have a class, an integer from 0, .*: regression is not supported"),
        ((colours(4, 4), torch.tensor(0.5)), ": regression is not supported"),
        ((colours(4, 4), colours(4, 4)), ": segmentation masks are not supported"),
        ((colours(4, 4), torch.zeros(4, 4)), ": segmentation masks are not supported"),
        (
            (colours(4, 4), torch.tensor([1, 0, 1])),
            r"a bool tensor \[classes\] if it can have several labels, got torch.int64 \[3\]",
        ),
        ((colours(4, 4), "cat"), "must have a class, an integer from 0"),
        ((colours(4, 4), -1), "must have a class, an integer from 0"),
        ((colours(4, 4), True), "must have a class, an integer from 0"),
        ({"image": 1, "label": 2}, "item 0 of the train data set must be an image and its class, got"),
    ],
)
def test_wrong_items_are_refused(item, problem):
    with pytest.raises(ValueError, match=problem):
        outspan.from_datasets(Pictures([item]), Pictures([item]))


def test_wrong_data_sets_are_refused():
    one = [(colours(4, 4), 0)]
    with pytest.raises(ValueError, match="the train data set is empty"):
        outspan.from_datasets(Pictures([]), Pictures(one))
    with pytest.raises(ValueError, match="labels must lie in"):
        outspan.from_datasets(Pictures([*one, (colours(4, 4), 2)]), Pictures(one), classes=["a", "b"])


def test_the_classes_of_all_parts_must_be_equal():
    items = [(colours(4, 4), 0), (colours(4, 4), 1)]
    train, other, without = Pictures(items, ["red", "green"]), Pictures(items, ["green", "red"]), Pictures(items)
    for parts, title in (((train, other), "test"), ((train, without, other), "validation")):
        with pytest.raises(ValueError, match=rf"the classes of the {title} .*\['red', 'green'\], got \['green', 'red'\]"):
            outspan.from_datasets(*parts, classes=["a", "b"])


def test_bool_rows_are_several_labels():
    rows = [[True, True, False], [False, False, False]]
    items = [(colours(4, 4), torch.tensor(rows[0])), (colours(4, 4), np.array(rows[1]))]
    data = outspan.from_datasets(Pictures(items), Pictures(items[:1]))
    assert (data.train.labels.dtype, data.train.labels.tolist(), data.classes) == (torch.bool, rows, ("0", "1", "2"))
    for label in (torch.tensor([True]), 1):
        with pytest.raises(ValueError, match=r"item 1 of the train data set must have .* as item 0, \[3\], got"):
            outspan.from_datasets(Pictures([items[0], (colours(4, 4), label)]), Pictures(items))


def test_a_data_set_without_length_or_items_is_refused():
    one = Pictures([(colours(4, 4), 0)])
    for stream in (iter(one), torch.utils.data.DataLoader(one)):
        with pytest.raises(
            ValueError, match=r"the test data set must have a length and items by their number, got .*: use a map"
        ):
            outspan.from_datasets(one, stream)


@pytest.mark.slow
def test_a_run_on_objects_is_evaluated_and_resumed(tmp_path):
    data = few(60)
    parts = [list(zip(split.images, split.labels.tolist(), strict=True)) for split in (data.train, data.test)]
    keys = {"data": "objects", "model": "mlp", "epochs": 1, "batch": 20, "out": tmp_path}
    summary = outspan.train(splits=outspan.from_datasets(*map(Pictures, parts)), **keys)
    again = outspan.from_datasets(*map(Pictures, parts))
    assert outspan.train(splits=again, **keys) == summary
    assert outspan.evaluate(tmp_path, splits=again).metrics.accuracy == summary.accuracy
