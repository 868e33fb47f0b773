"""Small data, models and policies for the tests of integrations."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

import outspan
from conftest import make_images

IMAGES, LABELS = make_images(0, 24, 3, 8, 8), torch.arange(24) % 5
NORMALIZE = outspan.Normalize((0.5,) * 3, (0.25,) * 3)


def network(classes: int = 5) -> nn.Module:
    """Return the same small network at every call."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, classes))


def plain(**options: Any) -> outspan.Plain:
    return outspan.Plain(outspan.uniform(2), classes=5, preprocess=NORMALIZE, **options)


def auto(steps: int) -> outspan.Auto:
    return outspan.Auto(outspan.natural(), epochs=200, steps=steps, classes=5, preprocess=NORMALIZE)


class Recorder:
    """A policy that keeps the batches that another one returns, by step."""

    def __init__(self, policy: Any) -> None:
        self.policy, self.batches = policy, {}

    def __call__(self, inputs: Any, labels: Any, *, step: int, confidence: Any = None) -> outspan.Batch:
        assert step not in self.batches, "a step is drawn twice"
        self.batches[step] = self.policy(inputs, labels, step=step, confidence=confidence)
        return self.batches[step]

    def __getattr__(self, name: str) -> Any:
        if name == "policy":  # while it is copied
            raise AttributeError(name)
        return getattr(self.policy, name)


def batches(size: int, epochs: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the batches of a loop over the images, in their order."""
    for _ in range(epochs):
        yield from zip(IMAGES.split(size), LABELS.split(size), strict=True)


def check_same_draws(one: outspan.Batch, other: outspan.Batch) -> None:
    """Check that two batches have the same plans and the same chosen rows."""
    for name in ("ops", "levels", "places", "partners", "source", "out"):
        assert torch.equal(getattr(one.drawn, name), getattr(other.drawn, name)), name
    assert one.drawn.names == other.drawn.names
    assert (one.chosen is None) == (other.chosen is None)
    if one.chosen is not None and other.chosen is not None:
        assert torch.equal(one.chosen, other.chosen)
