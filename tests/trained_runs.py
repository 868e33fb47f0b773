"""Small runs, and how tests load and compare them."""

from pathlib import Path

import numpy as np
import torch

from outspan.config import Recipe
from outspan.data.dataset import Data
from outspan.data.sets import load as load_data
from outspan.data.splits import InMemory
from outspan.training import checkpoint
from outspan.training.evaluation_data import EvaluationData, load_evaluation_data
from outspan.training.trained import Trained, load

SMALL = Recipe(data="digits", model="mlp", policy="none", epochs=3, batch=20, transforms="geometric")


def load_run(folder: Path) -> tuple[Trained, EvaluationData]:
    """Return the model of a run and the data that it is tested on."""
    run = load(folder)
    return run, load_evaluation_data(run)


def few(count: int = 200) -> Data:
    digits = load_data("digits")
    return Data(
        "digits",
        InMemory(digits.train.images[:count], digits.train.labels[:count]),
        InMemory(digits.test.images[:100], digits.test.labels[:100]),
        digits.classes,
    )


def final(folder) -> tuple[dict, dict]:
    tensors, meta = checkpoint.load(folder)
    return tensors, {key: value for key, value in meta.items() if key != "seconds"}


def equal(one: tuple[dict, dict], other: tuple[dict, dict]) -> bool:
    assert one[1] == other[1]
    return one[0].keys() == other[0].keys() and all(torch.equal(one[0][name], other[0][name]) for name in one[0])


def published(folder, policy: str) -> dict[str, str]:
    """Return the recipe's keys for a policy, with a small file for one that is read from a file."""
    texts = {
        "fastautoaugment": "[[['Invert', 1.0, 0.5], ['Rotate', 0.5, 1.0]]]",
        "pba": repr(["1", "1", 1, 1, [10, 5] * 30, [5, 5] * 30]),
    }
    if policy not in texts:
        return {"policy": policy}
    (folder / "policy.txt").write_text(texts[policy])
    return {"policy": policy, "policy_file": str(folder / "policy.txt")}


def make_pairs(train: int = 200, test: int = 60) -> Data:
    """Return pairs of digits side by side, or one or none of them; the labels are the digits that are there."""
    digits, draw = load_data("digits"), np.random.Generator(np.random.Philox(5))

    def part(source, count):
        images, labels = torch.zeros(count, 1, 28, 56, dtype=torch.uint8), torch.zeros(count, 10, dtype=torch.bool)
        for i in range(count):
            for side in np.flatnonzero(draw.random(2) < 0.8):
                row = int(draw.integers(len(source)))
                images[i, :, :, 28 * side : 28 * side + 28] = source.images[row]
                labels[i, source.labels[row]] = True
        return InMemory(images, labels)

    return Data("pairs", part(digits.train, train), part(digits.test, test), tuple("0123456789"))
