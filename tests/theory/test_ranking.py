"""The ranking: matrices compared with pixels, the fit and the correlation with known values, and invalid input."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from outspan import rng
from outspan.data.dataset import Data
from outspan.data.sets import load
from outspan.data.splits import InMemory
from outspan.theory.bounds import Setting
from outspan.theory.pixels import pixels, transformed_pixels
from outspan.theory.ranking import fit, rank, rankable, spearman
from outspan.theory.ridge import ridge_error, ridge_estimate
from outspan.theory.rows import Rows, projected
from outspan.transforms.table import TRANSFORMS


@pytest.mark.parametrize(
    ("a", "b", "known"),
    [([1, 2, 3, 4], [10, 20, 30, 40], 1.0), ([1, 2, 3, 4], [4, 3, 2, 1], -1.0), ([1, 2, 3], [2, 2, 2], 0.0)],
)
def test_spearman_by_hand(a, b, known):
    assert spearman(np.array(a, dtype=float), np.array(b, dtype=float)) == pytest.approx(known)


@given(st.permutations(range(8)))
def test_spearman_without_ties_is_the_textbook_formula(order):
    d = np.array(order) - np.arange(8)
    known = 1 - 6 * np.sum(d**2) / (8 * 63)
    assert spearman(np.exp(np.array(order)), np.arange(8.0)) == pytest.approx(known)


def test_spearman_shares_the_ranks_of_ties():
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
    assert spearman(np.array([0.0, 5.0, 5.0, 9.0]), np.arange(4.0)) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)


@pytest.mark.parametrize("shape", [(30, 8), (8, 30)])
def test_the_fit_is_ridge_at_its_lam(shape):
    g = rng.generator(0, "fit", *shape)
    X, beta, more = g.standard_normal(shape), g.standard_normal((shape[1], 3)), g.standard_normal((50, shape[1]))
    Y = X @ beta + g.standard_normal((shape[0], 3))
    lam, estimate = fit(X, Y, more, more @ beta)
    np.testing.assert_allclose(estimate, ridge_estimate(X, Y, lam), rtol=1e-8)
    for step in (10**0.5, 10**-0.5):  # to the next larger and smaller candidate
        other = ridge_estimate(X, Y, step * lam)
        assert np.mean((more @ (estimate - beta)) ** 2) < np.mean((more @ (other - beta)) ** 2)


@pytest.fixture
def small():
    """Return forty images of two classes. The label is the brightness of the left half."""
    images = torch.from_numpy(rng.generator(0, "small").integers(0, 256, (40, 1, 6, 6), dtype=np.uint8))
    labels = (images[:, :, :, :3].double().mean((1, 2, 3)) > 128).long()
    return Data("small", InMemory(images, labels), InMemory(images, labels), ("0", "1"))


def test_predictions_match_direct_solves(small):
    ranking = rank(small, ["vertical_flip"], samples=20)
    row = ranking.rows[0]
    order = rng.generator(0, "theory", "rank").permutation(40)
    validation, order = order[:8], order[8:]  # a fifth of the training images is held out to choose lam
    X, Y = pixels(small.train.images[order]), np.eye(2)[small.train.labels[order].numpy()]
    centre, class_means = X.mean(axis=0), Y.mean(axis=0)
    X, Y = X - centre, Y - class_means
    moved = pixels(small.train.images[order[:20]].flip(2)) - centre
    others = pixels(small.train.images[validation]) - centre, np.eye(2)[small.train.labels[validation].numpy()] - class_means
    _, beta = fit(X, Y, *others)
    assert ranking.lam == fit(X[:20], Y[:20], *others)[0]
    gain = net = 0.0
    for i in range(20):
        for column in beta.T:
            s = Setting(X[:20], column, ranking.lam, 0.0)
            raw = Rows(moved[i][None], np.eye(1, 20, i))  # the label of the source image
            z = projected(s.X, raw)
            mean = s.X @ column
            right = Rows(z.x, z.weights + (z.x @ column - z.weights @ mean)[:, None] * mean / (mean @ mean))
            before = ridge_error(s.X, column, s.lam, 0.0)
            net += (before - ridge_error(s.X, column, s.lam, 0.0, added=z)).bias / 20
            gain += (before - ridge_error(s.X, column, s.lam, 0.0, added=right)).bias / 20
    assert [row.gain, row.net] == pytest.approx([gain, net], rel=1e-7)
    assert row.linear
    assert row.measured is None


def test_repeated_images_do_not_increase_the_span(small):
    few = InMemory(small.train.images[:5].repeat(8, 1, 1, 1), small.train.labels[:5].repeat(8))
    ranking = rank(Data("few", few, few, small.classes), ["rotate"], samples=30, draws=1, seed=2)
    order = rng.generator(2, "theory", "rank").permutation(40)[8:]
    level = float(rng.generator(2, "theory", "rank", "rotate", 0).uniform(-1, 1))
    X = pixels(few.images[order])
    moved = transformed_pixels(few.images[order[:30]], "rotate", level, [0.0] * 4) - X.mean(axis=0)
    X = X - X.mean(axis=0)
    left = moved - (np.linalg.lstsq(X[:30].T, moved.T, rcond=1e-10)[0].T @ X[:30])
    assert ranking.rows[0].energy == pytest.approx(np.sum(left**2, axis=1).mean(), rel=1e-9)


def test_transforms_that_keep_labels_move_less(small):
    # The label is in the left half. A vertical flip keeps it, a horizontal flip does not.
    rows = {row.name: row for row in rank(small, ["vertical_flip", "horizontal_flip", "color"], samples=20).rows}
    assert rows["vertical_flip"].moved < rows["horizontal_flip"].moved
    assert rows["color"].energy == pytest.approx(0, abs=1e-20)  # no change of grey images
    assert rows["color"].gain == pytest.approx(0, abs=1e-20)


def test_the_ranking_is_sorted_deterministic_and_correlated_with_measurements(small):
    names = ["invert", "rotate", "posterize", "blur"]
    first = rank(small, names, samples=10, measured={"invert": 3.0, "rotate": 1.0, "blur": 2.0, "other": 5.0})
    assert first == rank(small, names, samples=10, measured={"invert": 3.0, "rotate": 1.0, "blur": 2.0, "other": 5.0})
    gains = [row.gain for row in first.rows]
    assert gains == sorted(gains, reverse=True)
    scored = [row for row in first.rows if row.measured is not None]
    known = spearman(np.array([row.energy for row in scored]), np.array([-row.measured for row in scored]))
    assert first.spearman["energy"] == known
    assert set(first.spearman) == {"energy", "along", "gain", "net"}
    assert rank(small, names, samples=10).spearman == {}


def test_the_default_number_of_samples_is_at_most_400(small):
    assert rank(small, ["rotate"]).samples == 31  # 40 without the fifth that chooses lam and one more
    assert rank(small, ["rotate"], features=10).samples == 9
    assert rank(load("digits"), ["invert"], draws=1).samples == 400


def test_random_features_allow_more_samples_than_pixels(small):
    more = InMemory(small.train.images.repeat(2, 1, 1, 1), small.train.labels.repeat(2))
    ranking = rank(Data("more", more, more, small.classes), ["rotate"], samples=38, features=200, draws=1)
    assert ranking.rows[0].energy > 0


def test_the_test_split_does_not_change_the_ranking(small):
    other = Data("small", small.train, InMemory(255 - small.test.images, 1 - small.test.labels), small.classes)
    assert rank(other, ["rotate", "invert"], samples=10) == rank(small, ["rotate", "invert"], samples=10)


def test_the_size_of_chunks_does_not_change_the_ranking(small, monkeypatch):
    whole = rank(small, ["rotate", "blur"], samples=20)
    monkeypatch.setattr("outspan.theory.ranking._CHUNK", 7)
    assert rank(small, ["rotate", "blur"], samples=20) == whole


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transforms": ["mixup"]}, "'mixup' mixes labels"),
        ({"transforms": ["rotat"]}, "rotate"),
        ({"samples": 32}, "small: samples must be at least 1 and below the dimension 36 and the 32 train images .*, got 32"),
        ({"samples": 36, "features": 10}, "below the dimension 10 and the 32 train images that are not held out, got 36"),
        ({"samples": 0}, "samples must be at least 1"),
        ({"draws": 0}, "draws must be at least 1, got 0"),
        ({"features": -1}, "features must be at least 0, got -1"),
    ],
)
def test_invalid_input_is_refused_by_name(small, options, message):
    with pytest.raises(ValueError, match=message):
        rank(small, **{"transforms": ["rotate"], "samples": 10, **options})


def test_large_images_need_random_features():
    images = torch.zeros((3, 3, 40, 40), dtype=torch.uint8)
    split = InMemory(images, torch.tensor([0, 1, 0]))
    with pytest.raises(ValueError, match="images of 4800 values are too large to rank by pixels"):
        rank(Data("large", split, split, ("0", "1")), ["rotate"], samples=1)
    with pytest.raises(
        ValueError, match=r"30000 random features of images of 4800 values are too many; .* or at most 20833 features"
    ):
        rank(Data("large", split, split, ("0", "1")), ["rotate"], samples=1, features=30_000)


@pytest.mark.parametrize(("count", "good"), [(1, False), (2, False), (3, True)])
def test_few_images_are_ranked_or_refused(small, count, good):
    few = small.train.take(torch.arange(count))
    data = Data("few", few, few, small.classes)
    if good:
        assert np.isfinite(rank(data, ["rotate"], samples=1, draws=1).rows[0].gain)
    else:
        with pytest.raises(ValueError, match=f"the {count - 1} train images that are not held out"):
            rank(data, ["rotate"], samples=1, draws=1)


def test_a_folder_has_the_same_ranking_as_images_in_memory(small, tmp_path):
    rgb = small.train.images.expand(-1, 3, -1, -1)
    listed = torch.cat([(small.train.labels == label).nonzero() for label in (0, 1)]).squeeze(1)
    for split in ("train", "val"):
        for place, row in enumerate(listed.tolist()):
            path = tmp_path / split / str(int(small.train.labels[row])) / f"{place:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rgb[row].permute(1, 2, 0).numpy()).save(path)
    memory = InMemory(rgb[listed], small.train.labels[listed])
    names = ["rotate", "invert", "blur"]
    for options in ({"samples": 20}, {"samples": 20, "features": 50}):
        ranking = rank(str(tmp_path), names, size=6, **options)
        assert ranking.rows == rank(Data("", memory, memory, small.classes), names, **options).rows
    with pytest.raises(ValueError, match="images of 150528 values are too large to rank by pixels; use a smaller size"):
        rank(str(tmp_path), names, samples=20)


def test_all_transforms_that_keep_labels_can_be_ranked(small):
    ranking = rank(small, rankable(), samples=10, draws=1)
    assert {row.name for row in ranking.rows} == set(TRANSFORMS) - {"identity", "mixup", "cutmix"}
    assert all(np.isfinite([row.energy, row.along, row.gain, row.moved, row.net]).all() for row in ranking.rows)
