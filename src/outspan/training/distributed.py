"""Training in several processes, the ranks, that torchrun starts. Every rank has the whole model and a part of each batch.

Gradients are added up by one all-reduce of all of them, after the backward pass. `DistributedDataParallel` overlaps the two,
but it orders its buckets anew after the first step of every start, so that a resumed run would not be bit-identical, and it
does not work with CUDA graphs as they are recorded here.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from outspan.devices import to_device
from outspan.files import Json
from outspan.messages import first_line, shown
from outspan.policies.ranks import Part, own_rows
from outspan.training import RankFailed
from outspan.training.metadata import ProvenanceMetadata
from outspan.training.provenance import Provenance
from outspan.training.step import Learner
from outspan.training.waiting import Watch

_ERRORS = (ValueError, OSError, RuntimeError, MemoryError)  # those that the command line reports as one line
_PATHS = {"data", "cache", "weights"}  # keys of the recipe
_T = TypeVar("_T")


@dataclass(frozen=True)
class Ranks:
    """The rank of this process, and the number of ranks. Without a process group, every method is for one process."""

    rank: int = 0
    world: int = 1
    is_group: bool = False
    watch: Watch = field(default_factory=Watch, repr=False)

    def rows(self, size: int) -> tuple[range, float]:
        """Return the rows of a batch that this rank trains on, and their fraction of the batch.

        A rank without rows of its own trains on the last row, because every rank needs gradients. Its fraction is then 0.
        """
        rows = own_rows(size, self.rank, self.world)
        return (rows, len(rows) / size) if rows else (range(size - 1, size), 0.0)

    def gather(self, own: Tensor, size: int) -> Tensor:
        """Return the values of a whole batch of `size` rows, from those of this rank, one or more per row."""
        whole = self.place(own, size)
        self.all_reduce(whole)
        return whole

    def place(self, own: Tensor, size: int) -> Tensor:
        """Return values of a whole batch that are 0 except those of this rank."""
        rows, fraction = self.rows(size)
        count = len(own) // len(rows)
        whole = own.new_zeros((size * count, *own.shape[1:]))
        if fraction:
            whole[rows.start * count : rows.stop * count] = own
        return whole

    def all_reduce(self, values: Tensor, *, largest: bool = False) -> None:
        """Replace values by their sum over all ranks, or by the largest."""
        if self.is_group:
            self._communicate(lambda: dist.all_reduce(values, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM))

    def agree(self, *claims: bool) -> Sequence[bool]:
        """Return for each claim whether it is true on any rank."""
        if not self.is_group:
            return claims
        flags = torch.tensor(claims, dtype=torch.uint8)
        self.all_reduce(flags, largest=True)
        return [bool(flag) for flag in flags.tolist()]

    def on_first(self, function: Callable[[], _T]) -> _T:
        """Call a function on rank 0 and return its result on all ranks. If it fails, all ranks raise an error."""
        if not self.is_group:
            return function()
        result: Any = None
        error: Exception | None = None
        if self.rank == 0:
            try:
                with self.watch.working():
                    result = function()
            except _ERRORS as raised:
                error = raised
        shared = [(result, None if error is None else first_line(error))]
        self._communicate(lambda: dist.broadcast_object_list(shared, device=torch.device("cpu")))
        if error is not None:
            raise error
        result, message = shared[0]
        if message is not None:
            raise RankFailed(f"rank 0 failed: {message}")
        return result

    def together(self, function: Callable[[], _T]) -> _T:
        """Call a function on all ranks. If it fails on some, the first of them raises its error, the others `RankFailed`."""
        if not self.is_group:
            return function()
        result: Any = None
        error: Exception | None = None
        try:
            result = function()
        except _ERRORS as raised:
            error = raised
        messages = self.gather_objects(None if error is None else first_line(error))
        failed = next((rank for rank, message in enumerate(messages) if message is not None), None)
        if failed is None:
            return result
        if error is not None and failed == self.rank:
            raise error
        raise RankFailed(f"rank {failed} failed: {messages[failed]}")

    def gather_objects(self, value: _T) -> list[_T]:
        """Return the value of each rank."""
        if not self.is_group:
            return [value]
        values: list[Any] = [None] * self.world
        # gather_object would use the GPU, where two ranks of one GPU cannot meet.
        for rank in range(self.world):
            shared = [value]
            self._communicate(
                lambda rank=rank, shared=shared: dist.broadcast_object_list(shared, rank, device=torch.device("cpu"))
            )
            values[rank] = shared[0]
        return values

    def batches(self, split: Any, rows: Sequence[Tensor], device: torch.device, crops: Any) -> Iterator[tuple[Any, Tensor]]:
        """Return the inputs and labels of each batch of rows. This rank reads its own rows only."""
        if not self.is_group:
            yield from split.batches(rows, device, crops)
            return
        parts = [self.rows(len(batch))[0] for batch in rows]
        own = [batch[part.start : part.stop] for batch, part in zip(rows, parts, strict=True)]
        labels = split.labels.cpu()
        for batch, part, (inputs, _) in zip(rows, parts, split.batches(own, device, crops), strict=True):
            size = len(batch)
            yield (
                Part(inputs, part, size, lambda values, size=size: self.gather(values, size)),
                to_device(labels[batch], device),
            )

    def _communicate(self, function: Callable[[], object]) -> None:
        try:
            function()
        except RuntimeError as error:
            problem = f"another rank has ended or does not answer ({cause(error)})"
            raise RuntimeError(f"{problem}; the same command resumes the run") from None
        self.watch.beat()


def cause(error: RuntimeError) -> str:
    """Return the first sentence of torch's message, without the place in its source."""
    return re.sub(r"^\[[^]]*\] ?", "", first_line(error)).partition(". ")[0]


class RankLearner:
    """Forward and backward pass of a rank. The gradients become those of the whole batch.

    `learner(inputs, targets)` takes the inputs of this rank and the targets of the whole batch, and returns the losses of the
    whole batch. Weights of samples are those of the whole batch, too. `count` is the number of augmented samples per sample.
    """

    def __init__(self, learner: Learner, ranks: Ranks, count: int) -> None:
        self.learner, self.ranks, self.count, self.model = learner, ranks, count, learner.model
        self.statistics = [tensor for module in learner.model.modules() for tensor in _running_statistics(module)]
        self.buffer: Tensor | None = None  # what is reduced, kept for the next step

    def forget(self) -> None:
        """Forget recorded graphs, because other parameters train from now on."""
        self.learner.forget()
        self.buffer = None

    def __call__(self, inputs: Tensor, *whole: Tensor) -> Tensor:
        size = len(whole[0]) // self.count
        rows, fraction = self.ranks.rows(size)
        losses = self.learner(inputs, *(values[rows.start * self.count : rows.stop * self.count] for values in whole))
        losses = self.ranks.place(losses, size)
        self._reduce(losses, fraction)
        return losses

    @torch.no_grad()
    def _reduce(self, losses: Tensor, fraction: float) -> None:
        """Replace gradients and statistics by their means, weighted by rows, and the losses by those of all ranks.

        All are copied to one tensor in a fixed order, so that the sums have the same bits in every start. The gradients of the
        parameters are then parts of this tensor, which saves the copy back.
        """
        trained = [(p, p.grad) for p in self.learner.parameters if p.grad is not None]
        others = [*self.statistics, losses]
        parts = [_in_memory_order(tensor) for tensor in [*(gradient for _, gradient in trained), *others]]
        size = sum(map(len, parts))
        if self.buffer is None or len(self.buffer) < size:
            flat = self.buffer = torch.cat(parts)
        else:
            flat = torch.cat(parts, out=self.buffer[:size])
        if fraction != 1:
            scaled = flat[: len(flat) - len(losses)]
            scaled.mul_(fraction) if fraction else scaled.zero_()  # 0 * NaN would be NaN
        self.ranks.all_reduce(flat)
        sums = flat.split([len(part) for part in parts])
        for (parameter, gradient), values in zip(trained, sums, strict=False):
            parameter.grad = values.to(gradient.dtype).as_strided(gradient.shape, gradient.stride())
        first = len(trained)
        torch._foreach_copy_(parts[first:], sums[first:])  # pyright: ignore[reportPrivateImportUsage]


def _in_memory_order(tensor: Tensor) -> Tensor:
    """Return the values of a gradient or buffer as a vector that shares its memory, whatever its layout."""
    return tensor.as_strided((tensor.numel(),), (1,))


def _running_statistics(module: nn.Module) -> list[Tensor]:
    """Return the running mean and variance of a normalization layer, which every rank updates by its own rows."""
    statistics = (getattr(module, "running_mean", None), getattr(module, "running_var", None))
    return [tensor for tensor in statistics if isinstance(tensor, Tensor)]


def check_divides(batch: int, world: int) -> None:
    """Refuse a number of ranks that does not divide the batch."""
    if batch % world == 0:
        return
    nearest = min((count for count in range(1, batch + 1) if batch % count == 0), key=lambda count: abs(count - world))
    larger = -(-batch // world) * world
    problem = f"the number of processes must divide the batch, got {world} processes and batch {batch}"
    raise ValueError(f"{problem}: start {nearest}, or use --set batch={larger}")


def check_same_start(ranks: Ranks, provenance: Provenance) -> None:
    """Refuse ranks with another recipe, other data or another version of torch than rank 0, which reports it."""
    if not ranks.is_group:
        return
    first, *others = map(_flat, ranks.gather_objects(provenance.to_metadata()))
    for rank, values in enumerate(others, 1):
        for key in sorted(first.keys() | values.keys()):
            one, other = first.get(key), values.get(key)
            moved = key in _PATHS and all(Path(str(path)).is_absolute() for path in (one, other))  # contents are compared
            if one != other and not moved and key != "threads":
                problem = f"all ranks must have the same {key}, got {shown(one)} on rank 0 and {shown(other)} on rank {rank}"
                error = RankFailed if ranks.rank else ValueError
                raise error(f"{problem}: start them with the same command, data and version of torch")


def _flat(metadata: ProvenanceMetadata) -> dict[str, Json]:
    return {
        **metadata["recipe"],
        **cast(dict[str, Json], {f"{key} of the data": value for key, value in metadata["data"].items()}),
        **metadata["setting"],
    }
