"""Rank transforms on your images by the gain that the theory predicts.

X are n train images, as pixels or random features, with n below their dimension p. beta is a ridge fit on many more train
images, with one column per class. lam is chosen on train images that are held out of both. The test split is not used.
The values of a transform are means over the n images and several levels:

- `energy`: |z|^2, where z is the part of the transformed image outside the span of X;
- `along`: <z, beta>^2, the part of it that the labels depend on;
- `gain`: the exact decrease of the error by one such sample with a correct label, at the fixed penalty n lam;
- `moved`: <x - Fx, beta>^2, how much the transform changes the label under beta: 0 for a label-invariant transform;
- `net`: the gain if the sample keeps the label of its source. It may be negative.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from outspan import rng
from outspan.config import Recipe
from outspan.data.sets import Data, check_data_holds, load
from outspan.shapes import Float64, Images
from outspan.theory.bounds import outside_gain
from outspan.theory.minnorm import row_space
from outspan.theory.pixels import LINEAR, pixels, transformed_pixels
from outspan.transforms.table import TRANSFORMS, find

PREDICTORS = ("energy", "along", "gain", "net")
_MAX_PIXELS = 4096  # beyond, a p x p system takes more than seconds
_MAX_WEIGHTS = 10**8  # 0.8 GB of random features
_SAMPLES = 400  # default number of images in X
_FIT, _VALIDATION = 20_000, 2_000  # number of images to fit beta, and to choose lam
_CHUNK = 200  # images converted at a time: 0.2 GB at 224 x 224

_Embedding = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Ranked:
    """The prediction for one transform: means over images and levels."""

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
    """Transforms sorted by predicted gain, and Spearman's correlation of each predictor with the measured scores."""

    data: str
    samples: int
    features: int  # 0: pixels
    draws: int
    seed: int
    lam: float
    rows: tuple[Ranked, ...]
    spearman: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class _Model:
    """The linear model that a ranking is computed on."""

    images: Images
    embed: _Embedding
    centre: Float64[np.ndarray, " p"]
    X: Float64[np.ndarray, "n p"]  # centred
    span: Float64[np.ndarray, "r p"]
    beta: Float64[np.ndarray, "p c"]
    lam: float


def rankable() -> tuple[str, ...]:
    """Return the transforms that can be ranked: all that do not mix labels."""
    return tuple(name for name, transform in TRANSFORMS.items() if not transform.mixes and name != "identity")


def rank(
    data: Data | str,
    transforms: Sequence[str] = (),
    *,
    samples: int | None = None,
    features: int = 0,
    size: int | None = None,
    draws: int = 8,
    seed: int = 0,
    measured: Mapping[str, float] | None = None,
) -> Ranking:
    """Rank transforms by the gain that the theory predicts on a data set.

    `data` is a data set, its name or its path; `size` is the image size for an image folder. Without `transforms` all of
    `rankable()` are ranked. `samples` is the number n of images in X, `features` the number of random features (0: pixels),
    `draws` the number of levels per transform. `measured` are error scores by transform (lower is better).
    """
    names = tuple(transforms) or rankable()
    for name in names:
        if find(name).mixes:
            raise ValueError(f"{name!r} mixes labels; only transforms that keep them can be ranked: {', '.join(rankable())}")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")
    check_data_holds(data if isinstance(data, str) else data.name, "images", "theory rank")
    data = load(data, size=size) if isinstance(data, str) else data
    model = _fit_model(data, samples, features, seed)
    scores = measured or {}
    rows = [Ranked(name, name in LINEAR, *_predict(model, name, draws, seed), measured=scores.get(name)) for name in names]
    rows.sort(key=lambda row: -row.gain)
    return Ranking(data.name, len(model.X), features, draws, seed, model.lam, tuple(rows), agreement(rows))


def agreement(rows: Sequence[Ranked]) -> dict[str, float]:
    """Return Spearman's correlation of each predictor with the measured scores. It is empty for fewer than three scores."""
    scored = [(row, row.measured) for row in rows if row.measured is not None]
    if len(scored) < 3:
        return {}
    quality = np.array([-measured for _, measured in scored])  # a low error score is good
    return {key: spearman(np.array([getattr(row, key) for row, _ in scored]), quality) for key in PREDICTORS}


def read_scores(path: Path) -> dict[str, float]:
    """Read error scores by transform from a JSON file: {"rotate": 1.08, …}, or the same under the key "error"."""
    try:
        content: Any = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not a readable JSON file ({error})") from None
    scores = content.get("error", content) if isinstance(content, dict) else content
    if not isinstance(scores, dict) or not all(map(_is_score, scores.values())):
        raise ValueError(f'{path}: must be finite numbers by transform, {{"rotate": 1.08, …}}, got {content!r:.60}')
    return {name: float(score) for name, score in scores.items()}


def _is_score(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def fit(
    X: Float64[np.ndarray, "n p"],
    Y: Float64[np.ndarray, "n c"],
    validation_X: Float64[np.ndarray, "m p"],
    validation_Y: Float64[np.ndarray, "m c"],
) -> tuple[float, Float64[np.ndarray, "p c"]]:
    """Fit ridge regression with 13 values of lam. Return the lam with the lowest validation error, and its estimate."""
    n, p = X.shape
    values, vectors = np.linalg.eigh(X @ X.T if n < p else X.T @ X)
    right = vectors.T @ (Y if n < p else X.T @ Y)
    left = X.T @ vectors if n < p else vectors
    projected = validation_X @ left
    lams = np.sum(values) / n * np.geomspace(1e-6, 1.0, 13)
    errors = [np.mean((projected @ (right / (values + n * lam)[:, None]) - validation_Y) ** 2) for lam in lams]
    lam = float(lams[int(np.argmin(errors))])
    return lam, left @ (right / (values + n * lam)[:, None])


def spearman(a: Float64[np.ndarray, " k"], b: Float64[np.ndarray, " k"]) -> float:
    """Return Spearman's rank correlation of two lists. Ties get their mean rank; the result is 0 if a list is constant."""
    ranks = [np.mean([values[:, None] > values, values[:, None] >= values], axis=0).sum(axis=1) for values in (a, b)]
    centred = [values - values.mean() for values in ranks]
    scale = np.linalg.norm(centred[0]) * np.linalg.norm(centred[1])
    return float(centred[0] @ centred[1] / scale) if scale else 0.0


def _fit_model(data: Data, samples: int | None, features: int, seed: int) -> _Model:
    """Fit beta and lam on the train split; the first `samples` images of the fit are X."""
    embed = _build_embedding(data, features, seed)
    order = torch.from_numpy(rng.generator(seed, "theory", "rank").permutation(len(data.train)))
    count = min(_VALIDATION, max(1, len(order) // 5))
    validation_rows, fit_rows = order[:count], order[count:][:_FIT]
    p = features or math.prod(data.train.shape)
    samples = min(_SAMPLES, len(fit_rows) - 1, p - 1) if samples is None else samples
    if not 1 <= samples < min(len(fit_rows), p):
        limit = f"below the dimension {p} and the {len(fit_rows)} train images that are not held out"
        raise ValueError(f"{data.name}: samples must be at least 1 and {limit}, got {samples}")
    (X, Y), (validation_X, validation_Y) = (_read(data, rows, embed) for rows in (fit_rows, validation_rows))
    centre, class_means = X.mean(axis=0), Y.mean(axis=0)
    X, Y, validation = X - centre, Y - class_means, (validation_X - centre, validation_Y - class_means)
    _, beta = fit(X, Y, *validation)
    lam, _ = fit(X[:samples], Y[:samples], *validation)
    images = torch.cat(list(_batches(data, fit_rows[:samples])))
    return _Model(images, embed, centre, X[:samples], row_space(X[:samples]), beta, lam)


def _predict(model: _Model, name: str, draws: int, seed: int) -> list[float]:
    """Return energy, along, gain, moved and net of a transform, as means over the draws of its level."""
    total = np.zeros(5)
    for draw in range(draws):
        level, place = _draw(name, draw, seed)
        chunks = [model.embed(transformed_pixels(part, name, level, place)) for part in model.images.split(_CHUNK)]
        total += _predict_rows(model, np.concatenate(chunks) - model.centre) / draws
    return total.tolist()


def _predict_rows(model: _Model, moved: Float64[np.ndarray, "n p"]) -> Float64[np.ndarray, " 5"]:
    penalty = len(model.X) * model.lam
    z = moved - (moved @ model.span.T) @ model.span
    along, label_error = z @ model.beta, (model.X - moved) @ model.beta
    square = np.sum(z * z, axis=1)[:, None]
    gain, net = outside_gain(along, square, penalty), outside_gain(along, square, penalty, label_error)
    by_class = [np.sum(values, axis=1).mean() for values in (along**2, gain, label_error**2, net)]
    return np.array([square.mean(), *by_class])


def _build_embedding(data: Data, features: int, seed: int) -> _Embedding:
    """Return the map from pixels to rows of X: the identity, or random features max(0, Wx + b) / sqrt(features)."""
    p = math.prod(data.train.shape)
    if features < 0:
        raise ValueError(f"features must be at least 0, got {features}")
    if not features:
        if p > _MAX_PIXELS:
            hint = "use a smaller size, e.g. 32, or random features, e.g. 500"
            raise ValueError(f"{data.name}: images of {p} values are too large to rank by pixels; {hint}")
        return lambda rows: rows
    if p * features > _MAX_WEIGHTS:
        hint = f"use a smaller size, or at most {_MAX_WEIGHTS // p} features"
        raise ValueError(f"{data.name}: {features} random features of images of {p} values are too many; {hint}")
    g = rng.generator(seed, "theory", "features")
    first = next(_batches(data, torch.arange(min(_CHUNK, len(data.train)))))
    norm = np.mean(np.sum(pixels(first) ** 2, axis=1)) ** 0.5 or 1.0  # 1 if all images are black
    W, b = g.standard_normal((p, features)), g.standard_normal(features)
    W /= norm  # Wx and b have the same scale
    return lambda rows: np.maximum(rows @ W + b, 0) / features**0.5


def _read(data: Data, rows: torch.Tensor, embed: _Embedding) -> tuple[Float64[np.ndarray, "n p"], Float64[np.ndarray, "n c"]]:
    """Return train images as rows of X and their labels as unit vectors. The images are read in chunks."""
    X = np.concatenate([embed(pixels(images)) for images in _batches(data, rows)])
    return X, np.eye(len(data.classes))[data.train.labels[rows].numpy()]


def _batches(data: Data, rows: torch.Tensor) -> Iterator[Images]:
    """Return train images in chunks."""
    split = data.train.prepared(Recipe())
    return (images for images, _ in split.batches(rows.split(_CHUNK), torch.device("cpu")))


def _draw(name: str, draw: int, seed: int) -> tuple[float, list[float]]:
    """Return a level, uniform over the paper's range, and a place. They are the same for all images."""
    transform, g = find(name), rng.generator(seed, "theory", "rank", name, draw)
    level = g.uniform(-1.0 if transform.signed else 0.0, 1.0) if transform.graded else 0.0
    return float(level), g.random(4).tolist()
