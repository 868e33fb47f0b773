"""Pack the data sets of strengths.py into small files: as many images as it needs, without loss."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from unseen_data import make_emoji, make_icons, make_letters, make_spectrograms

from outspan import load_data
from outspan.data.dataset import Data
from outspan.data.splits import InMemory

HELD_OUT = 2_000


def make_published(name: str, count: int) -> Data:
    """Return the first train images, the last ones for validation, and the first test images."""
    data = load_data(name)
    train, test = data.train, data.test
    assert isinstance(train, InMemory)
    assert isinstance(test, InMemory)
    validation = InMemory(train.images[-HELD_OUT:], train.labels[-HELD_OUT:])
    shown = InMemory(test.images[:4_000], test.labels[:4_000])
    return Data(name, InMemory(train.images[:count], train.labels[:count]), shown, data.classes, validation)


def split(name: str, images: np.ndarray, labels: np.ndarray, count: int) -> Data:
    """Return shuffled images: `count` for training, and the rest in equal parts for validation and test."""
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels, middle = images[order], labels[order], (count + len(labels)) // 2
    bounds = {"train": (0, count), "validation": (count, middle), "test": (middle, len(labels))}
    parts = {key: InMemory(torch.from_numpy(images[a:b]), torch.from_numpy(labels[a:b])) for key, (a, b) in bounds.items()}
    classes = tuple(map(str, range(1 + int(labels.max()))))
    return Data(name, parts["train"], parts["test"], classes, parts["validation"])


def make_textures(size: int = 32, total: int = 8_000) -> Data:
    """Return colored noise; the class is one of ten pairs of a frequency and a main direction."""
    rng, images, labels = np.random.default_rng(0), [], np.arange(total) % 10
    y, x = np.mgrid[:size, :size] / size
    for label in labels:
        frequency, direction = (3, 4.2, 6, 8.4, 12)[label // 2], label % 2
        field = np.zeros((size, size))
        for _ in range(8):
            angle = np.pi / 2 * direction + rng.normal(0, 0.5)
            wave = frequency * np.exp(rng.normal(0, 0.2)) * (np.cos(angle) * x + np.sin(angle) * y)
            field += np.sin(2 * np.pi * (wave + rng.random()))
        tint = rng.uniform(0.2, 1, (3, 1, 1)) * field * rng.uniform(8, 30) + rng.uniform(80, 170, (3, 1, 1))
        images.append((tint + rng.normal(0, 30, tint.shape)).clip(0, 255).astype(np.uint8))
    return split("textures", np.stack(images), labels, total // 2)


def make_dots(size: int = 28, total: int = 8_000) -> Data:
    """Return grey images with one to eight dots of different sizes on a noisy background; the class is their number."""
    rng, images, labels = np.random.default_rng(0), [], np.arange(total) % 8
    y, x = np.mgrid[:size, :size]
    for label in labels:
        image, centers = np.full((size, size), rng.uniform(30, 120)), []
        while len(centers) <= label:
            center, radius = rng.uniform(3, size - 3, 2), rng.uniform(1.2, 2.4)
            if all(np.hypot(*(center - other)) > radius + near + 1.5 for other, near in centers):
                centers.append((center, radius))
                image[np.hypot(y - center[0], x - center[1]) < radius] += rng.uniform(50, 120)
        images.append((image + rng.normal(0, 12, image.shape)).clip(0, 255).astype(np.uint8)[None])
    return split("dots", np.stack(images), labels, total // 2)


def make_small_digits() -> Data:
    """Return the handwritten digits of scikit-learn, 8 pixels wide and high, enlarged to 16."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.kron((digits.images * 15.9).astype(np.uint8), np.ones((1, 2, 2), np.uint8))[:, None]
    return split("small-digits", images, digits.target, 900)


PACKS: Mapping[str, Callable[[], Data]] = {
    "cifar10": partial(make_published, "cifar10", 5_000),
    "mnist": partial(make_published, "mnist", 8_000),
    "letters": make_letters,
    "emoji": make_emoji,
    "icons": make_icons,
    "spectrograms": make_spectrograms,
    "textures": make_textures,
    "dots": make_dots,
    "small-digits": make_small_digits,
}


def pack_all(folder: Path) -> None:
    """Write those that are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PACKS.items():
        if (folder / f"{name}.npz").exists():
            continue
        data, arrays = make(), {}
        for part, limit in (("train", None), ("validation", HELD_OUT), ("test", 4_000)):
            of_data = getattr(data, part)
            arrays[f"{part}_images"] = of_data.images[:limit].numpy()
            arrays[f"{part}_labels"] = of_data.labels[:limit].numpy().astype(np.uint8)
        np.savez_compressed(folder / f"{name}.npz", **arrays)
        print(name, [len(arrays[f"{part}_labels"]) for part in ("train", "validation", "test")], flush=True)
