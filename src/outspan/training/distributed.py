"""Training in several processes, the ranks, that torchrun starts. Every rank has the whole model and a part of each batch.

Gradients are added up by one all-reduce of all of them, after the backward pass. `DistributedDataParallel` overlaps the two,
but it orders its buckets anew after the first step of every start, so that a resumed run would not be bit-identical, and it
does not work with CUDA graphs as they are recorded here.
"""

import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

# torch._dynamo imports this module later. Its default arguments would then keep the process group alive, whose threads abort a
# process that ends.
import torch.distributed.nn
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.rendezvous import rendezvous

from outspan.children import launched_rank
from outspan.devices import find_device, to_device
from outspan.files import Json
from outspan.messages import first_line, shown
from outspan.policies.ranks import Part, own_rows
from outspan.training import Stopped
from outspan.training.metadata import ProvenanceMetadata
from outspan.training.provenance import Provenance
from outspan.training.step import Learner
from outspan.training.waiting import Watch

_TIMEOUT = timedelta(minutes=30)  # of a wait for a rank that still runs: it may compile, save, or list millions of files
_GLOO = "cpu:gloo"  # the backend of tensors on the CPU
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
            raise RuntimeError(f"rank 0 failed: {message}")
        return result

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
            problem = f"another rank has ended or does not answer ({_cause(error)})"
            raise RuntimeError(f"{problem}; the same command resumes the run") from None
        self.watch.beat()


def _cause(error: RuntimeError) -> str:
    """Return the first sentence of torch's message, without the place in its source."""
    return re.sub(r"^\[[^]]*\] ?", "", first_line(error)).partition(". ")[0]


class RankLearner:
    """Forward and backward pass of a rank. The gradients become those of the whole batch.

    `learner(inputs, targets)` takes the inputs of this rank and the targets of the whole batch, and returns the losses of the
    whole batch. `count` is the number of augmented samples per sample.
    """

    def __init__(self, learner: Learner, ranks: Ranks, count: int) -> None:
        self.learner, self.ranks, self.count, self.model = learner, ranks, count, learner.model
        self.statistics = [tensor for module in learner.model.modules() for tensor in _running_statistics(module)]

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        size = len(targets) // self.count
        rows, fraction = self.ranks.rows(size)
        losses = self.learner(inputs, targets[rows.start * self.count : rows.stop * self.count])
        losses = self.ranks.place(losses, size)
        self._reduce(losses, fraction)
        return losses

    @torch.no_grad()
    def _reduce(self, losses: Tensor, fraction: float) -> None:
        """Replace gradients and statistics by their means, weighted by rows, and the losses by those of all ranks.

        All are in one tensor in a fixed order, so that the sums have the same bits in every start.
        """
        means = [p.grad for p in self.learner.parameters if p.grad is not None] + self.statistics
        flat = torch.cat([*(tensor.reshape(-1) for tensor in means), losses])
        scaled = flat[: len(flat) - len(losses)]
        scaled.mul_(fraction) if fraction else scaled.zero_()  # 0 * NaN would be NaN
        self.ranks.all_reduce(flat)
        *reduced, all_losses = flat.split([*(tensor.numel() for tensor in means), len(losses)])
        shaped = [part.view(tensor.shape) for part, tensor in zip(reduced, means, strict=True)]
        torch._foreach_copy_(means, shaped)  # pyright: ignore[reportPrivateImportUsage]
        losses.copy_(all_losses)


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
    """Refuse ranks with another recipe, other data or another version of torch than rank 0."""
    if not ranks.is_group:
        return
    first, *others = map(_flat, ranks.gather_objects(provenance.to_metadata()))
    for rank, values in enumerate(others, 1):
        for key in sorted(first.keys() | values.keys()):
            one, other = first.get(key), values.get(key)
            moved = key in _PATHS and all(Path(str(path)).is_absolute() for path in (one, other))  # contents are compared
            if one != other and not moved and key != "threads":
                problem = f"all ranks must have the same {key}, got {shown(one)} on rank 0 and {shown(other)} on rank {rank}"
                raise ValueError(f"{problem}: start them with the same command, data and version of torch")


def _flat(metadata: ProvenanceMetadata) -> dict[str, Json]:
    return {
        **metadata["recipe"],
        **cast(dict[str, Json], {f"{key} of the data": value for key, value in metadata["data"].items()}),
        **metadata["setting"],
    }


@contextmanager
def joined(device: str | torch.device | None) -> Iterator[tuple[Ranks, torch.device]]:
    """Join the process group if torchrun has started this process, and leave it at the end. Yield the ranks and the device.

    Only rank 0 shows warnings.
    """
    where = find_device(device)
    if launched_rank() is None and not dist.is_initialized():
        yield Ranks(), where
        return
    if where.type == "cuda":
        local = int(os.environ.get("LOCAL_RANK", "0"))
        where = torch.device("cuda", local % torch.cuda.device_count()) if where.index is None else where
        torch.cuda.set_device(where)
    with Watch(launched_rank() or 0) as watch, _process_group(where), warnings.catch_warnings():
        if dist.get_rank():
            warnings.simplefilter("ignore")
        ranks = Ranks(dist.get_rank(), dist.get_world_size(), True, watch)
        try:
            yield ranks, where
        except Stopped:  # all ranks raise it after the same step
            ranks.agree(True)
            raise
        ranks.agree(True)  # a process that ends while its last communication is being cleaned up can crash


@contextmanager
def _process_group(device: torch.device) -> Iterator[None]:
    """Start a process group and end it; one that exists already stays."""
    if dist.is_initialized():
        if _GLOO not in str(dist.get_backend_config()):
            problem = f"the process group needs the backend gloo on the CPU, got {dist.get_backend_config()}"
            raise ValueError(f'{problem}: use init_process_group("cpu:gloo,cuda:nccl")')
        yield
        return
    here, everywhere = (int(os.environ.get(name, "1")) for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
    has_own_gpu = device.type == "cuda" and here <= torch.cuda.device_count()  # NCCL refuses two ranks on one GPU
    # On one machine torchrun keeps the addresses of the ranks when it restarts them: old ones must not be read.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if here == everywhere else "0"
    try:
        store, rank, world = next(rendezvous("env://", timeout=_TIMEOUT))
        options = {"store": PrefixStore(f"outspan {attempt}", store), "rank": rank, "world_size": world}
        dist.init_process_group(f"{_GLOO},cuda:nccl" if has_own_gpu else "gloo", timeout=_TIMEOUT, **options)
    except RuntimeError as error:
        raise RuntimeError(f"cannot connect to the other ranks ({_cause(error)})") from None
    try:
        yield
    except BaseException:
        if has_own_gpu:  # otherwise NCCL may wait forever for a rank that has ended
            dist.distributed_c10d._abort_process_group()
        else:
            dist.destroy_process_group()
        raise
    dist.destroy_process_group()
