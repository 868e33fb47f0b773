"""Join the process group that torchrun or a launcher like it has prepared, and leave it."""

import os
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

# torch._dynamo imports this module later. Its default arguments would then keep the process group alive, whose threads abort a
# process that ends.
import torch.distributed.nn
from torch.distributed.distributed_c10d import PrefixStore, Store  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.rendezvous import rendezvous

from outspan.children import launched_rank
from outspan.devices import current, find_device
from outspan.training import Stopped
from outspan.training.distributed import Ranks, cause
from outspan.training.waiting import Watch

_TIMEOUT = timedelta(minutes=30)  # of a wait for a rank that still runs: it may compile, save, or list millions of files
_CALL = timedelta(seconds=10)  # of a call of the store
_GLOO = "cpu:gloo"  # the backend of tensors on the CPU


@contextmanager
def joined(device: str | torch.device | None) -> Iterator[tuple[Ranks, torch.device]]:
    """Join the process group if torchrun has started this process, and leave it at the end. Yield the ranks and the device.

    A single process needs no group, but uses one that exists. Only rank 0 shows warnings, except those of files.
    """
    where = find_device(device)
    if not dist.is_initialized() and (launched_rank() is None or os.environ["WORLD_SIZE"] == "1"):
        with current(where):
            yield Ranks(), where
        return
    if where.type == "cuda":
        local = int(os.environ.get("LOCAL_RANK", "0"))
        where = torch.device("cuda", local % torch.cuda.device_count()) if where.index is None else where
        torch.cuda.set_device(where)
    with Watch(launched_rank() or 0) as watch, _process_group(where) as is_ours, warnings.catch_warnings():
        if dist.get_rank():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("default", ".*: cannot be read as an image")  # each rank reads other files
        ranks = Ranks(dist.get_rank(), dist.get_world_size(), True, watch)
        if is_ours:
            watch.follow(_connect(ranks.on_first(lambda: uuid.uuid4().hex)), ranks.world)
        try:
            yield ranks, where
        except Stopped:  # all ranks raise it after the same step
            ranks.agree(True)
            raise
        ranks.agree(True)  # a process that ends while its last communication is being cleaned up can crash


def _connect(name: str) -> Store:
    """Return another connection to the store of the ranks, for a thread. Earlier starts have used other names."""
    store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=_CALL, wait_for_workers=False
    )
    return PrefixStore(name, store)


@contextmanager
def _process_group(device: torch.device) -> Iterator[bool]:
    """Start a process group and end it; one that exists already stays. Yield whether it was started."""
    if dist.is_initialized():
        if _GLOO not in str(dist.get_backend_config()):
            problem = f"the process group needs the backend gloo on the CPU, got {dist.get_backend_config()}"
            raise ValueError(f'{problem}: use init_process_group("cpu:gloo,cuda:nccl")')
        yield False
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
        raise RuntimeError(f"cannot connect to the other ranks ({cause(error)})") from None
    try:
        yield True
    except BaseException:
        if has_own_gpu:  # otherwise NCCL may wait forever for a rank that has ended
            dist.distributed_c10d._abort_process_group()
        else:
            dist.destroy_process_group()
        raise
    dist.destroy_process_group()
