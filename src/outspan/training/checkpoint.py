"""Checkpoints: one safetensors file with a digest over tensors and metadata. A file is complete or not there."""

import errno
import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from outspan.files import write_whole
from outspan.messages import first_line, shown
from outspan.training.metadata import RUN, Check, Metadata, check_metadata

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_KEPT = 2  # the newest, and the one before in case the newest is damaged
_MODEL, _AVERAGE = "model.", "ema."  # prefixes of the tensors of the model, and of the average of its weights
# The buffers that an optimizer has for a parameter, and their names in a checkpoint.
_BUFFERS = {"momentum_buffer": "momentum", "step": "step", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}


class Checkpoint(NamedTuple):
    """The contents of a checkpoint file."""

    tensors: dict[str, Tensor]
    metadata: Metadata


def pack(model: nn.Module, optimizer: torch.optim.Optimizer, average: nn.Module | None = None) -> dict[str, Tensor]:
    """Return all tensors that a model, its optimizer and the average of its weights keep between steps."""
    tensors = _model_tensors(model, average)
    for name, parameter in model.named_parameters():
        for key, buffer in optimizer.state.get(parameter, {}).items():
            if buffer is not None:
                tensors[f"{_BUFFERS.get(key, key)}.{name}"] = buffer
    return tensors


def _model_tensors(model: nn.Module, average: nn.Module | None) -> dict[str, Tensor]:
    tensors = {f"{_MODEL}{name}": tensor for name, tensor in model.state_dict().items()}
    return tensors if average is None else tensors | {f"{_AVERAGE}{k}": v for k, v in average.state_dict().items()}


@torch.no_grad()
def unpack(
    tensors: Mapping[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer, average: nn.Module | None = None
) -> None:
    """Load packed tensors; those of another model or optimizer are a ValueError."""
    check_tensors(tensors, model, optimizer, average)
    for prefix, target in ((_MODEL, model), (_AVERAGE, average)):
        if target is not None:
            target.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    for name, parameter in model.named_parameters():
        for key, short in _BUFFERS.items():
            if (stored := tensors.get(f"{short}.{name}")) is not None:
                like = torch.empty_like(parameter) if stored.shape == parameter.shape else stored.to(parameter.device)
                optimizer.state[parameter][key] = like.copy_(stored)  # with the memory layout of the parameter


def check_tensors(
    tensors: Mapping[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer, average: nn.Module | None = None
) -> None:
    """Refuse tensors whose name, shape or dtype is not that of the model or the optimizer. Policies check theirs."""
    required = _model_tensors(model, average)
    buffers: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        expected = {
            f"{_BUFFERS[key]}.{name}": torch.empty(()) if key == "step" else parameter for key in _buffer_keys(optimizer)
        }
        buffers |= expected
        if expected.keys() & tensors.keys():  # a parameter without a gradient has none of them
            required |= expected
    if buffers and not buffers.keys() & tensors.keys():
        raise ValueError("the checkpoint has no optimizer state: training cannot resume from it")
    if missing := required.keys() - tensors.keys():
        raise ValueError(f"the checkpoint has no tensor {min(missing)!r}")
    known = required | buffers
    for name, tensor in tensors.items():
        if name.startswith("policy."):
            continue
        if name not in known:
            raise ValueError(f"the checkpoint has a tensor {shown(name)}, which neither the model nor its optimizer has")
        if (tensor.shape, tensor.dtype) != (known[name].shape, known[name].dtype):
            allowed = f"{known[name].dtype} {list(known[name].shape)}"
            raise ValueError(f"the checkpoint's tensor {name!r} must be {allowed}, got {tensor.dtype} {list(tensor.shape)}")


def _buffer_keys(optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
    """Return the names of the buffers that an optimizer has for each updated parameter."""
    if isinstance(optimizer, torch.optim.SGD):
        return ("momentum_buffer",) if optimizer.defaults["momentum"] else ()
    return ("step", "exp_avg", "exp_avg_sq")


def save(folder: Path, step: int, tensors: Mapping[str, Tensor], metadata: Metadata) -> Path:
    """Write the checkpoint of a step, and remove all older ones except one."""
    text = json.dumps({**metadata, "step": step})
    cpu = _unshared({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    data = safetensors.torch.save(cpu, {"meta": text, "digest": _digest(cpu, text)})
    path = folder / f"step-{step:09d}.safetensors"
    write_whole(path, lambda partial: partial.write_bytes(data))
    for old in [file for file in _files(folder) if file <= path][_KEPT:]:  # a later file is damaged, since it was not loaded
        old.unlink()
    return path


def _unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors without shared memory, such as that of tied weights: the file stores each."""
    result: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    return result


_PATIENCE = 5.0  # seconds: a killed process keeps its lock until the system has removed it
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_unlocked: set[int] = set()  # file systems that a warning has named


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Refuse a folder in which another process trains. The lock ends with this process, also if it is killed.

    Child processes do not share the lock. A folder that is not writable, as on a read-only mount, needs no lock. If
    the file system has no locks, a warning says so, once per file system.
    """
    try:
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        if os.access(folder, os.W_OK):
            raise
        yield
        return
    _inherited.add(handle)
    try:
        _lock(handle, folder)
        yield
    finally:
        if handle in _inherited:  # not in a forked child, where the number may be that of another file
            _inherited.discard(handle)
            os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while fcntl is not None:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise ValueError(
                    f"{folder}: another process is training there; wait until it ends, or choose another folder"
                ) from None
            time.sleep(0.05)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            break
    if (device := os.fstat(handle).st_dev) not in _unlocked:
        _unlocked.add(device)
        warnings.warn(f"{folder}: this file system has no locks; make sure that no other process trains there", stacklevel=3)


_inherited: set[int] = set()  # descriptors of locks, which a forked child has as well


def _close_inherited() -> None:
    """Close the locks of the parent in a forked child: a data worker that outlives its parent must not lock the folder."""
    for handle in _inherited:
        os.close(handle)
    _inherited.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)


def is_begun(folder: Path) -> bool:
    """Return whether there is a checkpoint, complete or not."""
    return bool(_files(folder))


def load(folder: Path, table: Mapping[str, Check] = RUN) -> Checkpoint | None:
    """Return the newest complete checkpoint, or None if there is none; a ValueError if all are damaged.

    `table` has the checks of its metadata; by default those of a run.
    """
    damaged: dict[str, str] = {}
    for path in _files(folder):
        try:
            return read(path, table)
        except ValueError as error:
            damaged[path.name] = str(error).removeprefix(f"{path}: ")  # the one before is still there
    if damaged:
        reason = next(iter(damaged.values()))
        how = "remove them to start over, or use the version of outspan that wrote them"
        raise ValueError(f"{folder}: no complete checkpoint, {', '.join(damaged)} damaged ({reason}); {how}")
    return None


def read(path: Path, table: Mapping[str, Check] = RUN) -> Checkpoint:
    """Return the tensors and metadata of one file; anything but a complete checkpoint is a ValueError.

    A file without permission to read is an OSError: it may be complete, so an older one must not be used instead.
    """
    with open(path, "rb") as file:
        file.read(1)
    try:
        with safetensors.safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise ValueError(f"{path}: not a complete checkpoint ({first_line(error)})") from None
    text = header.get("meta", "")
    if header.get("digest") != _digest(tensors, text):
        raise ValueError(f"{path}: its digest does not match: the file is damaged")
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: metadata is not JSON ({error})") from None
    try:
        check_metadata(metadata, table)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return Checkpoint(tensors, metadata)


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=32)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"), reverse=True)
