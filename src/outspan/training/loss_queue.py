"""The losses of steps, which are read from the device several at once."""

from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from typing import Any

import torch
from torch import Tensor

from outspan.plan import Plan

_READ_EVERY = 50  # steps on a GPU


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a step. The device may still be computing its tensors."""

    step: int  # counted from 0
    loss: Tensor  # [], or [models]
    drawn: Plan | None = None  # the plan of all candidates
    chosen: Tensor | None = None  # which outputs of the plan were trained on
    candidate_losses: Tensor | None = None  # [samples, candidates]


class LossQueue:
    """Collects the outcomes of steps and reads several at once, so that no step waits for the device.

    `on_read` is called with each outcome and its loss as a number, or one number per model. It returns the loss to show.
    """

    def __init__(self, device: torch.device, on_read: Callable[[Outcome, Any], float]) -> None:
        self.loss = nan  # the most recent one that was read
        self._on_read, self._limit = on_read, 1 if device.type == "cpu" else _READ_EVERY
        self._outcomes: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a step."""
        self._outcomes.append(outcome)
        if len(self._outcomes) >= self._limit:
            self.read()

    def read(self) -> None:
        """Read all outcomes, in the order of their steps: sums do not depend on when they are read."""
        if not self._outcomes:
            return
        losses = torch.stack([outcome.loss for outcome in self._outcomes]).tolist()
        for outcome, loss in zip(self._outcomes, losses, strict=True):
            self.loss = self._on_read(outcome, loss)
        self._outcomes.clear()
