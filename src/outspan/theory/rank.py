"""The theory as a prediction on your own images: which transform adds what a linear model does not know yet.

n train images are the data X, of pixels or of random features, with n below their dimension p; a ridge fit on many more
stands for beta, one column a class. lam is chosen on train images held out of both; the test split is not read. For each
transform, over the n images and several levels:

- `energy`: |z|^2, z being what the transformed image adds outside the span of X;
- `along`: <z, beta>^2, how much of that the labels depend on;
- `gain`: what one such sample lowers the error by if its label is right, exactly, at the held penalty n lam;
- `moved`: <x - Fx, beta>^2, how far the label moves in the model's eyes: 0 for a label-invariant transform;
- `net`: the gain with the label that moved, which may be below 0.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from outspan import rng
from outspan.data.sets import Data
from outspan.plan import Plan
from outspan.shapes import Float64, Images, Int64
from outspan.theory.bounds import outside_gain
from outspan.theory.minnorm import row_space
from outspan.transforms.apply import apply
from outspan.transforms.table import TRANSFORMS, find

# What moves pixels or blackens them is a matrix of zeros and ones; all others go through the transformed pixels.
LINEAR = (
    "cutout", "horizontal_flip", "identity", "random_crop", "rotate", "shear_x", "shear_y", "translate_x", "translate_y",
    "vertical_flip",
)  # fmt: skip
PREDICTORS = ("energy", "along", "gain", "net")
_MOST_PIXELS = 4096  # beyond, a p x p system is no longer a matter of seconds
_MOST_WEIGHTS = 10**8  # 0.8 GB of random features
_SAMPLES = 400  # images that the model knows, where there are as many
_FIT, _HELD_OUT = 20_000, 2_000  # images for beta, and to choose lam by
_CHUNK = 200  # images as numbers at a time: of 224 x 224 they are 0.2 GB


@dataclass(frozen=True)
class Ranked:
    """What is predicted of one transform, averaged over images and levels."""

    name: str
    linear: bool
    energy: float
    along: float
    gain: float
    moved: float
    net: float
    measured: float | None = None


@dataclass(frozen=True)
class Ranking:
    """Transforms by predicted gain, and how each predictor's order agrees with the measured one (1: fully)."""

    data: str
    samples: int
    features: int  # 0: pixels
    draws: int
    seed: int
    lam: float
    rows: tuple[Ranked, ...]
    spearman: Mapping[str, float]


def rankable() -> tuple[str, ...]:
    """Return the transforms that can be ranked: all that keep the label of an image as it is."""
    return tuple(name for name, transform in TRANSFORMS.items() if not transform.mixes and name != "identity")


def rank(
    data: Data,
    names: Sequence[str],
    *,
    samples: int | None = None,
    features: int = 0,
    draws: int = 8,
    seed: int = 0,
    measured: Mapping[str, float] | None = None,
) -> Ranking:
    """Rank transforms by what they are predicted to gain on a data set; `measured` are error scores by name, low is good."""
    for name in names:
        if find(name).mixes:
            raise ValueError(f"{name!r} mixes labels, rank is for transforms that keep them: {', '.join(rankable())}")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")
    embed = _embedding(data, features, seed)
    order = torch.from_numpy(rng.generator(seed, "theory", "rank").permutation(len(data.train)))
    kept = min(_HELD_OUT, max(1, len(order) // 5))
    held, known = order[:kept], order[kept:][:_FIT]
    p = features or math.prod(data.train.shape)
    samples = min(_SAMPLES, len(known) - 1, p - 1) if samples is None else samples
    if not 1 <= samples < min(len(known), p):
        most = f"below the dimension {p} and the {len(known)} train images that are not held out"
        raise ValueError(f"{data.name}: samples must be at least 1 and {most}, got {samples}")
    (X, Y), others = (_read(data, rows, embed) for rows in (known, held))
    centre, share = X.mean(axis=0), Y.mean(axis=0)
    X, Y, others = X - centre, Y - share, (others[0] - centre, others[1] - share)
    _, beta = fit(X, Y, *others)
    lam, _ = fit(X[:samples], Y[:samples], *others)
    images = data.train.read(known[:samples]).images
    span = row_space(X[:samples])
    rows = []
    for name in names:
        found = np.zeros(5)
        for draw in range(draws):
            level, place = _draw(name, draw, seed)
            moved = np.concatenate([embed(transformed_pixels(some, name, level, place)) for some in images.split(_CHUNK)])
            found += _predict(X[:samples], moved - centre, span, beta, samples * lam) / draws
        score = None if measured is None else measured.get(name)
        rows.append(Ranked(name, name in LINEAR, *found.tolist(), measured=score))
    rows.sort(key=lambda row: -row.gain)
    return Ranking(data.name, samples, features, draws, seed, lam, tuple(rows), agreement(rows))


def agreement(rows: Sequence[Ranked]) -> dict[str, float]:
    """Return Spearman's correlation of each predictor with the measured scores, low being good; of two or fewer, nothing."""
    scored = [(row, row.measured) for row in rows if row.measured is not None]
    if len(scored) < 3:
        return {}
    good = np.array([-measured for _, measured in scored])
    return {key: spearman(np.array([getattr(row, key) for row, _ in scored]), good) for key in PREDICTORS}


def pixels(images: Images) -> Float64[np.ndarray, "n p"]:
    """Return images as rows of numbers from 0 to 1."""
    return images.flatten(1).numpy() / 255


def transformed_pixels(images: Images, name: str, level: float, place: Sequence[float]) -> Float64[np.ndarray, "n p"]:
    """Return the pixels of transformed images: by the transform's own matrix where it is linear, else by applying it."""
    if name in LINEAR:
        sources = pixel_sources(name, level, place, *images.shape[2:])
        rows = np.concatenate([images.flatten(2).numpy(), np.zeros((*images.shape[:2], 1), dtype=np.uint8)], axis=2)
        return rows[:, :, sources].reshape(len(images), -1) / 255  # -1 reads the black pixel at the end
    return pixels(apply(images, _plan(name, level, place, len(images))))


def pixel_sources(name: str, level: float, place: Sequence[float], height: int, width: int) -> Int64[np.ndarray, " hw"]:
    """Return for each pixel of a linear transform's output the pixel that it shows, -1 for black: the rows of its matrix.

    >>> pixel_sources("horizontal_flip", 0.0, [0, 0, 0, 0], 1, 3).tolist()
    [2, 1, 0]
    """
    if name not in LINEAR:
        raise ValueError(f"{name!r} is not a matrix of zeros and ones; those are {', '.join(LINEAR)}")
    # Number the pixels from 1, send the three bytes of the numbers through as three images, and read what arrives.
    numbers = np.arange(1, height * width + 1).reshape(height, width)
    digits = np.stack([numbers >> shift & 255 for shift in (0, 8, 16)]).astype(np.uint8)
    moved = apply(torch.from_numpy(digits).unsqueeze(1), _plan(name, level, place, 3)).numpy().astype(np.int64)
    return (moved[0] + 256 * moved[1] + 65536 * moved[2]).reshape(-1) - 1


def fit(
    X: Float64[np.ndarray, "n p"],
    Y: Float64[np.ndarray, "n c"],
    held_X: Float64[np.ndarray, "m p"],
    held_Y: Float64[np.ndarray, "m c"],
) -> tuple[float, Float64[np.ndarray, "p c"]]:
    """Return, of ridge fits at 13 values of lam, the one that is nearest to labels held out: its lam and its estimate."""
    n, p = X.shape
    values, vectors = np.linalg.eigh(X @ X.T if n < p else X.T @ X)
    right = vectors.T @ (Y if n < p else X.T @ Y)
    left = X.T @ vectors if n < p else vectors
    seen = held_X @ left
    lams = np.sum(values) / n * np.geomspace(1e-6, 1.0, 13)
    errors = [np.mean((seen @ (right / (values + n * lam)[:, None]) - held_Y) ** 2) for lam in lams]
    lam = float(lams[int(np.argmin(errors))])
    return lam, left @ (right / (values + n * lam)[:, None])


def spearman(a: Float64[np.ndarray, " k"], b: Float64[np.ndarray, " k"]) -> float:
    """Return the correlation of the ranks of two lists, ties sharing the mean of theirs; 0 where one is constant."""
    ranks = [np.mean([values[:, None] > values, values[:, None] >= values], axis=0).sum(axis=1) for values in (a, b)]
    centred = [values - values.mean() for values in ranks]
    scale = np.linalg.norm(centred[0]) * np.linalg.norm(centred[1])
    return float(centred[0] @ centred[1] / scale) if scale else 0.0


def _predict(X: np.ndarray, moved: np.ndarray, span: np.ndarray, beta: np.ndarray, penalty: float) -> Float64[np.ndarray, " 5"]:
    z = moved - (moved @ span.T) @ span
    along, wrong = z @ beta, (X - moved) @ beta
    square = np.sum(z * z, axis=1)[:, None]
    gain, net = outside_gain(along, square, penalty), outside_gain(along, square, penalty, wrong)
    classes = [np.sum(values, axis=1).mean() for values in (along**2, gain, wrong**2, net)]
    return np.array([square.mean(), *classes])


def _embedding(data: Data, features: int, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return the map from pixels to rows of X: the pixels themselves, or random features max(0, Wx + b) / sqrt(features)."""
    p = math.prod(data.train.shape)
    if features < 0:
        raise ValueError(f"features must be at least 0, got {features}")
    if not features:
        if p > _MOST_PIXELS:
            hint = "take a smaller size, e.g. 32, or random features, e.g. 500"
            raise ValueError(f"{data.name}: images of {p} values are too large to rank by pixels, {hint}")
        return lambda rows: rows
    if p * features > _MOST_WEIGHTS:
        hint = f"take a smaller size, or {_MOST_WEIGHTS // p} at most"
        raise ValueError(f"{data.name}: {features} random features of images of {p} values are too many, {hint}")
    g = rng.generator(seed, "theory", "features")
    first = data.train.read(torch.arange(min(_CHUNK, len(data.train)))).images
    size = np.mean(np.sum(pixels(first) ** 2, axis=1)) ** 0.5 or 1.0  # 1 for images that are all black
    W, b = g.standard_normal((p, features)), g.standard_normal(features)
    W /= size  # so that Wx and b are of one size
    return lambda rows: np.maximum(rows @ W + b, 0) / features**0.5


def _read(
    data: Data, rows: torch.Tensor, embed: Callable[[np.ndarray], np.ndarray]
) -> tuple[Float64[np.ndarray, "n p"], Float64[np.ndarray, "n c"]]:
    """Return some train images as rows of X and their labels as unit vectors, a chunk at a time."""
    parts = data.train.batches(rows.split(_CHUNK), torch.device("cpu"))
    X = np.concatenate([embed(pixels(images)) for images, _ in parts])
    return X, np.eye(len(data.classes))[data.train.labels[rows].numpy()]


def _draw(name: str, draw: int, seed: int) -> tuple[float, list[float]]:
    """Return a level, uniform over the paper's range, and a place: the same for all images, so that it is one matrix."""
    transform, g = find(name), rng.generator(seed, "theory", "rank", name, draw)
    level = g.uniform(-1.0 if transform.signed else 0.0, 1.0) if transform.graded else 0.0
    return float(level), g.random(4).tolist()


def _plan(name: str, level: float, place: Sequence[float], count: int) -> Plan:
    return Plan.of([[name]] * count, levels=[[level]] * count, places=[[list(place)]] * count)
