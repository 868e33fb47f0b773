"""Which samples an epoch trains on: a part of the easy ones is left out, by the losses of earlier epochs."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from outspan import rng
from outspan.limits import check_positive, check_value, check_whole
from outspan.policies.state import check_state
from outspan.shapes import Float32, Int64, describe

_LAST_EPOCHS = 0.125  # last fraction of the run, which trains on all samples
_FEW_WRONG, _MANY_WRONG = 0.04, 0.08  # fraction of wrong samples from which on fewer easy ones are left out, and none
_UNSEEN = -1.0  # loss of a sample that was not trained on yet


class HardSamples(Sampler[int]):
    """An order of the training samples in which easy samples come less often than hard ones.

    A sample is easy if its loss was below the mean when the model last trained on it. An epoch passes over the samples,
    leaves out the fraction `skip` of the easy ones, drawn at random, and starts over until it has as many samples as the data.
    So an epoch takes as long as before, and scores nothing. The last eighth of the run trains on all samples.

    Samples with a wrong label are hard, too, and no model should see them more often. So nothing is left out while more than
    8 % of the samples were predicted worse than by chance twice in a row.

    Example::

        sampler = outspan.HardSamples(len(dataset), epochs=20, classes=10)
        loader = DataLoader(dataset, batch_size=128, sampler=sampler)  # the data set returns the row of each sample, too
        for epoch in range(20):
            sampler.set_epoch(epoch)
            for images, labels, rows in loader:
                losses = torch.nn.functional.cross_entropy(model(images), labels, reduction="none")
                losses.mean().backward()
                sampler.learn(rows, losses)
    """

    def __init__(self, size: int, *, epochs: float, classes: int, skip: float = 0.5, store: bool = True, seed: int = 0) -> None:
        check_whole("size", size, 1)
        check_positive("epochs", epochs)
        check_whole("classes", classes, 2)
        check_value("skip", skip)
        self.size, self.epochs, self.classes, self.skip, self.seed = size, epochs, classes, max(skip, 0.0), seed
        self.store = store or skip > 0  # whether losses are stored: without `skip`, only `confidence` needs them
        self.epoch = 0
        self._last = np.full(size, _UNSEEN, dtype=np.float32)  # loss of each sample when last trained on, before this epoch
        self._before = self._last.copy()  # and the time before
        self._rows: list[Tensor] = []  # the samples of this epoch, by step
        self._losses: list[Tensor] = []  # theirs, on the device of the model

    def __len__(self) -> int:
        """Return the number of samples in an epoch: that of the data."""
        return self.size

    def __iter__(self) -> Iterator[int]:
        """Return the rows of the samples of this epoch."""
        return iter(self.order().tolist())

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, counted from 0: its order depends on all losses that were learned before."""
        check_whole("epoch", epoch, 0)
        if epoch == self.epoch:
            return
        self.epoch = epoch
        if self._rows:
            rows, losses = torch.cat(self._rows).numpy(), torch.cat(self._losses).cpu().numpy()
            self._before[rows] = self._last[rows]
            self._last[rows] = losses  # of a sample that came twice, the later loss stays
            self._rows, self._losses = [], []

    def order(self) -> Int64[Tensor, " size"]:
        """Return the rows of the samples of this epoch."""
        generator = rng.generator(self.seed, "order", self.epoch)
        fraction, easy, passes = self._fraction(), self._easy(), []
        while sum(map(len, passes)) < self.size:
            rows = generator.permutation(self.size)
            passes.append(rows[~easy[rows] | (generator.random(self.size) >= fraction)])
        return torch.from_numpy(np.concatenate(passes)[: self.size])

    def learn(self, rows: Int64[Tensor, " B"], losses: Float32[Tensor, " B"]) -> None:
        """Read the losses of a batch: the rows of its samples and one loss per sample, which are not changed.

        Of soft targets, subtract their entropy from the losses, as `outspan.excess_loss` does. Rows on a GPU make the host
        wait for it.
        """
        if not self.store:
            return
        if rows.ndim != 1 or rows.shape != losses.shape:
            problem = f"losses must be one per row, got {describe(losses)} for {describe(rows)}"
            raise ValueError(f'{problem}: compute them with reduction="none"')
        rows = rows.cpu()
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self.size:
            raise ValueError(f"rows must lie in [0, {self.size - 1}], got {int(rows.min())} to {int(rows.max())}")
        if sum(map(len, self._rows)) + len(rows) > self.size:
            problem = f"epoch {self.epoch} has {self.size} samples and got the losses of more"
            raise ValueError(f"{problem}: call set_epoch(epoch) at the start of each epoch")
        self._rows.append(rows)
        self._losses.append(losses.detach().float())

    def confidence(self, rows: Int64[Tensor, " B"]) -> Float32[Tensor, " B"]:
        """Return the probability that the model gave to the label of each sample, before this epoch; 0 for new samples.

        Policies take it as `confidence` and augment samples less that the model does not know yet.
        """
        losses = torch.from_numpy(self._last[rows.cpu().numpy()])
        return torch.where(losses == _UNSEEN, 0.0, torch.exp(-losses).clamp(max=1.0).nan_to_num(0.0))

    def metrics(self) -> dict[str, float]:
        """Return the fraction of the samples that a pass of this epoch leaves out; nothing if `skip` is 0."""
        return {"skipped": self._fraction() * float(self._easy().mean())} if self.skip else {}

    def _fraction(self) -> float:
        """Return the fraction of the easy samples that this epoch leaves out."""
        twice = self._before != _UNSEEN
        if not self.skip or not twice.any() or self.epoch >= (1 - _LAST_EPOCHS) * self.epochs:
            return 0.0
        chance = math.log(self.classes)  # the loss of a prediction by chance
        wrong = float(((self._before > chance) & (self._last > chance))[twice].mean())
        return self.skip * min(max((_MANY_WRONG - wrong) / (_MANY_WRONG - _FEW_WRONG), 0.0), 1.0)

    def _easy(self) -> np.ndarray:
        """Return which samples are easy, bool [size]."""
        seen = self._last != _UNSEEN
        return seen & (self._last < self._last[seen].mean()) if seen.any() else seen

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors that a checkpoint must store; none if no losses are stored."""
        if not self.store:
            return {}
        rows = torch.cat([*self._rows, torch.full((self.size,), -1)])[: self.size]
        losses = torch.cat([*(losses.cpu() for losses in self._losses), torch.zeros(self.size)])[: self.size]
        stored = {"last": torch.from_numpy(self._last.copy()), "before": torch.from_numpy(self._before.copy())}
        return {**stored, "epoch": torch.tensor(self.epoch), "rows": rows, "losses": losses}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a `state_dict`; tensors that do not fit raise a ValueError."""
        check_state(self.state_dict(), state, "samples")
        if not self.store:
            return
        seen = int((state["rows"] >= 0).sum())
        if int(state["rows"].max()) >= self.size or bool((state["rows"][:seen] < 0).any()) or int(state["epoch"]) < 0:
            raise ValueError("the checkpoint's tensors 'samples.rows' and 'samples.epoch' are not those of a run")
        self.epoch, self._last, self._before = int(state["epoch"]), *(state[name].numpy().copy() for name in ("last", "before"))
        self._rows, self._losses = [state["rows"][:seen].clone()], [state["losses"][:seen].clone()]
