"""Divide samples so that every part has the same class shares: a part for validation, and the folds of a cross-validation."""

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from outspan import rng
from outspan.config import Recipe
from outspan.data.dataset import Data
from outspan.data.splits import Samples

MORE_TEST_SAMPLES = "add samples, or use cross-validation (outspan compare --folds 5)"


def hold_out(split: Samples, count: int, seed: int) -> tuple[Samples, Samples | None]:
    """Return the samples to train on and, if `count` is not 0, this number of random samples for validation.

    Both have the class shares of the split, as far as whole numbers allow it. A class with one sample is trained on.
    """
    if not count:
        return split, None
    if count >= len(split):
        raise ValueError(f"validation must be smaller than the number of training samples, {len(split)}, got {count}")
    order = rng.generator(seed, "validation").permutation(len(split))
    groups = _group(split.labels)[order]
    sizes = np.bincount(groups)
    wanted = share(sizes, count)
    by_group = np.argsort(groups, kind="stable")
    place = np.empty_like(order)  # of each row of the order, within its group
    place[by_group] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_held_out = torch.zeros(len(split), dtype=torch.bool)
    is_held_out[torch.from_numpy(order[place < wanted[groups]])] = True
    kept, held_out = (rows.nonzero().squeeze(1) for rows in (~is_held_out, is_held_out))
    return split.take(kept), split.take(held_out)


def share(sizes: np.ndarray, count: int) -> np.ndarray:
    """Return how many of `count` samples come from groups of these sizes: in proportion, the largest remainders rounded up.

    The last sample of a group is only taken if there are no others.

    >>> share(np.array([90, 9, 1]), 10).tolist()
    [9, 1, 0]
    """
    quota = sizes * (count / sizes.sum())
    whole = np.minimum(quota.astype(np.int64), np.maximum(sizes - 1, 0))
    while (missing := count - int(whole.sum())) > 0:
        left = sizes - whole
        order = np.lexsort((whole - quota, np.where(left > 1, 0, np.where(left == 1, 1, 2))))
        whole[order[: min(missing, int((left > 1).sum()) or int((left == 1).sum()))]] += 1
    return whole


def with_fold(data: Data, recipe: Recipe) -> Data:
    """Return the data of a recipe with `folds`, of which one is the test split. Warn of classes that not all folds can have."""
    if not recipe.folds:
        return data
    if recipe.folds > len(data.train):
        raise ValueError(f"folds must be at most the number of training samples, {len(data.train)}, got {recipe.folds}")
    sizes = count_by_class(data.train.labels, len(data.classes)).tolist()
    if rare := [name for name, size in zip(data.classes, sizes, strict=True) if 0 < size < recipe.folds]:
        problem = f"fewer samples than folds, {recipe.folds}, in the class{'es' * (len(rare) > 1)} {_listed(rare)}"
        warnings.warn(f"{problem}: use fewer folds", stacklevel=3)
    return take_fold(data, recipe)


def take_fold(data: Data, recipe: Recipe) -> Data:
    """Return the data with one part of the training samples as the test split. The others are trained on.

    All folds train on equally many samples: if the parts differ by one, one sample of the larger rest is left out.
    """
    labels, count = data.train.labels, len(data.train)
    is_test = pick_fold(labels, recipe.folds, recipe.fold)
    rest = (~is_test).nonzero().squeeze(1)[: count - -(-count // recipe.folds)]
    return replace(data, train=data.train.take(rest), test=data.train.take(is_test.nonzero().squeeze(1)))


def pick_fold(labels: Tensor, folds: int, fold: int) -> Tensor:
    """Return which samples are in a fold, bool [N]. The folds are disjoint, and every class is spread evenly over them."""
    order = rng.generator(0, "folds").permutation(len(labels))  # the same folds for all seeds of the training
    by_group = order[np.argsort(_group(labels)[order], kind="stable")]
    is_in_fold = torch.zeros(len(labels), dtype=torch.bool)
    is_in_fold[torch.from_numpy(by_group[fold::folds])] = True
    return is_in_fold


def warn_missing_classes(labels: Tensor, classes: Sequence[str], title: str, how: str) -> None:
    """Warn if a part of the data has no sample of some class. `title` names the part, and `how` says what to do."""
    counts = count_by_class(labels, len(classes)).tolist()
    if missing := [name for name, count in zip(classes, counts, strict=True) if not count]:
        warnings.warn(
            f"{title} has no sample of class {_listed(missing)}: its scores say nothing about it; {how}", stacklevel=3
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "")


def count_by_class(labels: Tensor, classes: int) -> Tensor:
    """Return the number of samples of each class, int64 [classes]; `labels` are class indices [N] or multi-hot [N, classes]."""
    return labels.long().sum(0) if labels.ndim == 2 else labels.bincount(minlength=classes)


def _group(labels: Tensor) -> np.ndarray:
    """Return the class of each sample, or 0 for all if a sample can have several: then the division is plainly random."""
    return np.zeros(len(labels), dtype=np.int64) if labels.ndim == 2 else labels.cpu().numpy()
