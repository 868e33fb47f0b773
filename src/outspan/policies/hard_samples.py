"""Which samples an epoch trains on: a part of the easy ones is left out, by the losses of earlier epochs."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from outspan import rng
from outspan.limits import MAX_SKIP, check_number, check_positive, check_whole
from outspan.policies.balancing import balanced_order
from outspan.policies.objectives import objective_for
from outspan.policies.state import check_state
from outspan.shapes import Float32, Int64, describe

_FIRST_EPOCHS = 2  # these train on all samples, because `_wrong` needs two losses of each
_LAST_EPOCHS = 0.125  # last fraction of the run, which trains on all samples
_FEW_WRONG, _MANY_WRONG = 0.04, 0.08  # fraction of samples predicted wrong, from which on fewer are left out, and none
_UNSEEN = -1.0  # loss of a sample that was not trained on yet


class HardSamples(Sampler[int]):
    """An order of the training samples in which easy samples come less often than hard ones.

    The loss of each sample is stored when the model trains on it. A sample is easy if its stored loss is below the mean of
    all. An epoch passes over the samples, leaves out the fraction `skip` of the easy ones, drawn at random, and starts over
    until it has as many samples as the data. So an epoch takes as long as before, and nothing is scored. The epochs of the
    last eighth of the run train on all samples.

    Samples with a wrong label are hard, too, and no model should see them more often. So nothing is left out while more than
    8 % of the samples were predicted worse than by chance in two epochs in a row.

    With `balance`, the labels of all samples, an epoch instead has equally many samples of each class. Nothing is left out
    then: `skip` must be 0. With `multi_label`, the losses are sums of binary cross entropies over the classes.

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

    def __init__(
        self,
        size: int,
        *,
        epochs: float,
        classes: int,
        skip: float = 0.5,
        store: bool = True,
        seed: int = 0,
        balance: Int64[Tensor, " size"] | None = None,
        multi_label: bool = False,
    ) -> None:
        check_whole("size", size, 1)
        check_positive("epochs", epochs)
        check_whole("classes", classes, 2)
        check_number("skip", skip)
        if not 0 <= skip <= MAX_SKIP:
            raise ValueError(f"skip must lie in [0, {MAX_SKIP}], got {skip:g}")
        if balance is not None and (skip or balance.shape != (size,)):
            problem = f"skip 0, got {skip:g}" if skip else f"one label per sample, [{size}], got {describe(balance)}"
            raise ValueError(f"balance needs {problem}")
        self.size, self.epochs, self.classes, self.skip, self.seed = size, epochs, classes, float(skip), seed
        self.balance, self.objective = balance, objective_for(multi_label=multi_label)
        # Whether losses are stored: for `confidence`, or if an epoch leaves out samples.
        self.store = store or (skip > 0 and (1 - _LAST_EPOCHS) * epochs >= _FIRST_EPOCHS + 1)
        self.epoch = 0
        self._last = np.full(size, _UNSEEN, dtype=np.float32)  # excess loss of each sample when last trained on
        self._wrong = np.zeros(size, dtype=np.int64)  # in how many epochs in a row it was predicted worse than by chance
        self._rows: list[Tensor] = []  # the samples of this epoch so far, by step; `set_epoch` adds them to the arrays above
        self._losses: list[Tensor] = []  # float32 [B, 2], the loss and the excess loss, on the device of the model
        self._count = 0  # number of samples of this epoch so far

    def __len__(self) -> int:
        """Return the number of samples in an epoch: that of the data."""
        return self.size

    def __iter__(self) -> Iterator[int]:
        """Return the rows of the samples of this epoch."""
        return iter(self.order().tolist())

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, counted from 0: its order depends on all losses that were learned before."""
        check_whole("epoch", epoch, 0)
        self.epoch = epoch
        if self._rows:
            rows = torch.cat(self._rows).numpy()
            losses = torch.cat([part.cpu() for part in self._losses]).numpy()
            before = self._wrong.copy()
            # Of a sample that came twice, the later loss stays.
            self._wrong[rows] = np.where(losses[:, 0] > self.objective.guess(self.classes), before[rows] + 1, 0)
            self._last[rows] = losses[:, 1]
            self._rows, self._losses, self._count = [], [], 0

    def order(self) -> Int64[Tensor, " size"]:
        """Return the rows of the samples of this epoch."""
        generator = rng.generator(self.seed, "order", self.epoch)
        if self.balance is not None:
            return balanced_order(self.balance, generator)
        fraction, easy, passes = self._fraction(), self._easy(), []
        while sum(map(len, passes)) < self.size:
            rows = generator.permutation(self.size)
            passes.append(rows[~easy[rows] | (generator.random(self.size) >= fraction)])
        return torch.from_numpy(np.concatenate(passes)[: self.size])

    def learn(
        self, rows: Int64[Tensor, " B"], losses: Float32[Tensor, " N"], targets: Float32[Tensor, "N classes"] | None = None
    ) -> None:
        """Read the losses of a batch, one per sample; they are not changed.

        If the policy returned several augmentations of each sample, their losses must be adjacent, as those of `Uncertain`
        are. `targets` are soft targets: the part of the loss that they make unavoidable does not make a sample hard. Rows on
        a GPU make the host wait for it.
        """
        if not self.store:
            return
        if not isinstance(rows, Tensor) or rows.ndim != 1 or rows.is_floating_point():
            raise ValueError(f"rows must be a tensor of whole numbers [B], got {describe(rows)}")
        if losses.ndim != 1 or not len(rows) or len(losses) % len(rows):
            problem = f"losses must be one per sample, got {describe(losses)} for {len(rows)} samples"
            raise ValueError(f'{problem}: compute them with reduction="none"')
        rows = rows.cpu().long()
        first, last = int(rows.numpy().min()), int(rows.numpy().max())  # NumPy: faster than torch for so few numbers
        if not 0 <= first <= last < self.size:
            raise ValueError(f"rows must lie in [0, {self.size - 1}], got {first} to {last}")
        if self._count + len(rows) > self.size:
            problem = f"epoch {self.epoch} has {self.size} samples and got the losses of more"
            raise ValueError(f"{problem}: call set_epoch(epoch) at the start of each epoch")
        losses = losses.detach().float()
        excess = losses if targets is None else self.objective.excess(losses, targets)
        self._rows.append(rows)
        both = torch.stack([losses, excess], 1)
        self._losses.append(both if len(both) == len(rows) else both.view(len(rows), -1, 2).mean(1))
        self._count += len(rows)

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
        if not self.skip or self.epoch < _FIRST_EPOCHS or self.epoch + 1 > (1 - _LAST_EPOCHS) * self.epochs:
            return 0.0
        wrong = float((self._wrong >= 2).mean())
        return self.skip * min(max((_MANY_WRONG - wrong) / (_MANY_WRONG - _FEW_WRONG), 0.0), 1.0)

    def _easy(self) -> np.ndarray:
        """Return which samples are easy, bool [size]."""
        seen = self._last != _UNSEEN
        return seen & (self._last < self._last[seen].mean(dtype=np.float64)) if seen.any() else seen

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors that a checkpoint must store; none if no losses are stored."""
        if not self.store:
            return {}
        rows = torch.cat([*self._rows, torch.full((self.size,), -1)])[: self.size]
        losses = torch.cat([*(part.cpu() for part in self._losses), torch.zeros(self.size, 2)])[: self.size]
        stored = {"last": torch.from_numpy(self._last.copy()), "wrong": torch.from_numpy(self._wrong.copy())}
        return {**stored, "epoch": torch.tensor(self.epoch), "rows": rows, "losses": losses}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a `state_dict`; tensors that do not fit raise a ValueError."""
        check_state(self.state_dict(), state, "samples")
        if not self.store:
            return
        state = {name: tensor.cpu().clone() for name, tensor in state.items()}
        rows, seen = state["rows"], int((state["rows"] >= 0).sum())
        is_order = int(rows.max()) < self.size and not bool((rows[:seen] < 0).any())
        are_losses = all(bool(state[name].isfinite().all()) for name in ("last", "losses"))
        if not is_order or not are_losses or int(state["wrong"].min()) < 0 or int(state["epoch"]) < 0:
            raise ValueError("the checkpoint's tensors 'samples.*' are not those of a run")
        self.epoch, self._last, self._wrong = int(state["epoch"]), state["last"].numpy(), state["wrong"].numpy()
        self._rows, self._losses, self._count = ([rows[:seen]], [state["losses"][:seen]], seen) if seen else ([], [], 0)
