"""MixUp and CutMix: the labels are mixed as the pixels are."""

import pytest
import torch

from outspan import dropin

COUNT = 64
LABELS = torch.arange(COUNT) % 2
IMAGES = (255 * LABELS.to(torch.uint8)).view(-1, 1, 1, 1).repeat(1, 3, 12, 10)  # class 0 is black, class 1 is white


def test_mixup_blends_images_and_labels():
    images, labels = dropin.MixUp(alpha=1.0, num_classes=2, seed=0)(IMAGES, LABELS, step=0)
    assert images.dtype == torch.uint8
    assert labels.shape == (COUNT, 2)
    white = images.flatten(1).double().mean(1) / 255
    assert torch.allclose(labels[:, 1].double(), white, atol=1 / 254)
    assert len(labels[:, 1].unique()) > 20  # a weight for each image


def test_cutmix_pastes_boxes_and_mixes_labels_by_their_area():
    images, labels = dropin.CutMix(alpha=1.0, num_classes=2, seed=0)(IMAGES, LABELS, step=0)
    assert {*images.unique().tolist()} == {0, 255}
    white = (images[:, 0] == 255).flatten(1).double().mean(1)
    assert torch.allclose(labels[:, 1].double(), white, atol=1e-6)
    assert len(labels[:, 1].unique()) > 10


@pytest.mark.parametrize("name", ["MixUp", "CutMix"])
def test_soft_labels_need_no_number_of_classes(name):
    build = getattr(dropin, name)
    hard = build(num_classes=2, seed=0)(IMAGES, LABELS, step=3)
    soft = build(seed=0)(IMAGES, torch.nn.functional.one_hot(LABELS, 2).float(), step=3)
    assert torch.equal(hard[0], soft[0])
    assert torch.equal(hard[1], soft[1])
    alone = build(num_classes=2, seed=0)(IMAGES[:1], LABELS[:1], step=3)
    assert torch.equal(alone[0], IMAGES[:1])  # there is no partner


def test_many_classes_take_memory_by_the_batch_only():
    labels = dropin.MixUp(num_classes=100_000, seed=0)(IMAGES[:2], LABELS[:2] + 99_998, step=0)[1]
    assert labels.shape == (2, 100_000)
    assert torch.equal(labels[:, 99_998:].sum(1), torch.ones(2))


def test_further_arguments_and_one_tuple():
    mix = dropin.CutMix(num_classes=2, seed=0)
    images, labels, more, last = mix(IMAGES, LABELS, "more", 7, step=0)
    assert (more, last) == ("more", 7)
    in_tuple = mix((IMAGES, LABELS, "more"), step=0)
    assert torch.equal(in_tuple[0], images)
    assert torch.equal(in_tuple[1], labels)
    assert in_tuple[2:] == ("more",)


@pytest.mark.parametrize(
    ("arguments", "images", "labels", "message"),
    [
        ({}, IMAGES, LABELS, r"num_classes is missing: class indices need it, as in MixUp\(num_classes=10\)"),
        ({"num_classes": 1}, IMAGES, LABELS, "num_classes must be at least 2, got 1"),
        ({"num_classes": 2, "alpha": -1}, IMAGES, LABELS, "alpha must be a positive number, got -1"),
        ({"num_classes": 10**9}, IMAGES, LABELS, "num_classes must be at most 100000, got 1000000000"),
        ({}, IMAGES, torch.zeros(COUNT, 0), r"labels must be .* with at least one class, got \[64, 0\]"),
        ({}, IMAGES.numpy(), LABELS, r"got a value of type ndarray: use torch\.from_numpy\(images\)"),
        ({"num_classes": 2}, IMAGES.float(), LABELS, r"v2\.ToDtype\(torch\.uint8, scale=True\)"),
        ({"num_classes": 2}, IMAGES[0], LABELS, "call MixUp on a batch, after the loader or in its collate_fn"),
        ({"num_classes": 2}, (IMAGES, LABELS), LABELS, r"got a tuple of Tensor: call MixUp on a batch"),
        ({"num_classes": 2}, IMAGES, LABELS[:3], "labels must be one per sample, got 3 for 64 samples"),
        ({"num_classes": 2}, IMAGES, LABELS + 1, r"labels must lie in \[0, 1\], got 1 to 2"),
    ],
)
def test_wrong_arguments(unchecked, arguments, images, labels, message):
    with pytest.raises(ValueError, match=message):
        dropin.MixUp(**arguments, seed=0)(images, labels, step=0)


def test_labels_are_required(unchecked):
    with pytest.raises(ValueError, match="labels are missing: call MixUp on a batch"):
        dropin.MixUp(num_classes=2)(IMAGES)
