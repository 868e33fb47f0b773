"""Checkpoints: one safetensors file with a digest over tensors and metadata. A file is complete or not there."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from outspan.files import write_whole
from outspan.messages import first_line, shown
from outspan.training.metadata import ENSEMBLE_CHECKS, RUN_CHECKS, Check, EnsembleMetadata, RunMetadata, check_metadata

BEST_FILE = "best.safetensors"  # the checkpoint of the best epoch by validation
_KEPT = 2  # number of checkpoints: the newest, and the one before in case the newest is damaged
_MODEL, _AVERAGE = "model.", "ema."  # prefixes of the tensors of the model, and of the average of its weights
PART_PREFIXES = ("policy", "samples")  # of the tensors of other parts of a run, which check them themselves
# The buffers that an optimizer has for a parameter, and their names in a checkpoint.
_BUFFERS = {"momentum_buffer": "momentum", "step": "step", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}


class Checkpoint(NamedTuple):
    """The contents of the checkpoint file of a run."""

    tensors: dict[str, Tensor]
    metadata: RunMetadata


class EnsembleCheckpoint(NamedTuple):
    """The contents of the checkpoint file of an ensemble."""

    tensors: dict[str, Tensor]
    metadata: EnsembleMetadata


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
    tensors: Mapping[str, Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: nn.Module | None = None,
    *,
    may_have_skipped: bool = False,
) -> None:
    """Load packed tensors. Tensors of another model or optimizer raise a ValueError."""
    check_tensors(tensors, model, optimizer, average, may_have_skipped=may_have_skipped)
    for prefix, target in ((_MODEL, model), (_AVERAGE, average)):
        if target is not None:
            target.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    for name, parameter in model.named_parameters():
        for key, stored_key in _BUFFERS.items():
            if (stored := tensors.get(f"{stored_key}.{name}")) is not None:
                buffer = torch.empty_like(parameter) if stored.shape == parameter.shape else stored.to(parameter.device)
                optimizer.state[parameter][key] = buffer.copy_(stored)  # with the memory layout of the parameter


def check_tensors(
    tensors: Mapping[str, Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: nn.Module | None = None,
    *,
    may_have_skipped: bool = False,
) -> None:
    """Refuse tensors whose name, shape or dtype is not that of the model or the optimizer. Other parts check their own.

    `may_have_skipped` allows an optimizer without state: all of its steps may have been skipped.
    """
    required = _model_tensors(model, average)
    buffers: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        expected = {
            f"{_BUFFERS[key]}.{name}": torch.empty(()) if key == "step" else parameter for key in _buffer_keys(optimizer)
        }
        buffers |= expected
        if expected.keys() & tensors.keys():  # a parameter without a gradient has none of them
            required |= expected
    if buffers and not buffers.keys() & tensors.keys() and not may_have_skipped:
        raise ValueError("the checkpoint has no optimizer state: training cannot resume from it")
    if missing := required.keys() - tensors.keys():
        raise ValueError(f"the checkpoint has no tensor {min(missing)!r}")
    known = required | buffers
    for name, tensor in tensors.items():
        if name.partition(".")[0] in PART_PREFIXES:
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


def save(folder: Path, tensors: Mapping[str, Tensor], metadata: RunMetadata | EnsembleMetadata) -> Path:
    """Write the checkpoint of a step, and remove all older ones except one."""
    path = folder / f"step-{metadata['step']:09d}.safetensors"
    write(path, tensors, metadata)
    # Files of later steps are kept: they were damaged, so the run resumed from an earlier one.
    for old in [file for file in _files(folder) if file <= path][_KEPT:]:
        old.unlink()
    return path


def write(path: Path, tensors: Mapping[str, Tensor], metadata: RunMetadata | EnsembleMetadata) -> None:
    """Write a checkpoint file."""
    text = json.dumps(metadata)
    cpu = _unshared({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    data = safetensors.torch.save(cpu, {"meta": text, "digest": _digest(cpu, text)})
    write_whole(path, lambda partial: partial.write_bytes(data))


def _unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors that share no memory, as safetensors requires. Tied weights share memory: each is stored."""
    result: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        address = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if address in seen else tensor
        seen.add(address)
    return result


def has_checkpoints(folder: Path) -> bool:
    """Return whether there is a checkpoint, complete or damaged."""
    return bool(_files(folder))


def load(folder: Path) -> Checkpoint | None:
    """Return the newest complete checkpoint of a run, or None if there is none. If all are damaged, raise a ValueError."""
    contents = _load(folder, RUN_CHECKS)
    return None if contents is None else Checkpoint(*contents)


def load_ensemble(folder: Path) -> EnsembleCheckpoint | None:
    """Return the newest complete checkpoint of an ensemble; see `load`."""
    contents = _load(folder, ENSEMBLE_CHECKS)
    return None if contents is None else EnsembleCheckpoint(*contents)


def read(path: Path) -> Checkpoint:
    """Return the contents of one checkpoint file of a run. Anything but a complete checkpoint raises a ValueError."""
    return Checkpoint(*_read(path, RUN_CHECKS))


def _load(folder: Path, checks: Mapping[str, Check]) -> tuple[dict[str, Tensor], Any] | None:
    damaged: dict[str, str] = {}
    for path in _files(folder):
        try:
            return _read(path, checks)
        except ValueError as error:
            damaged[path.name] = str(error).removeprefix(f"{path}: ")  # the one before it may be complete
    if damaged:
        reason = next(iter(damaged.values()))[:300]  # the list of known keys is long
        how = "remove them to start over, or use the version of outspan that wrote them"
        raise ValueError(f"{folder}: no complete checkpoint, {', '.join(damaged)} damaged ({reason}); {how}")
    return None


def _read(path: Path, checks: Mapping[str, Check]) -> tuple[dict[str, Tensor], Any]:
    """Return the tensors and the checked metadata of a file. Anything but a complete checkpoint raises a ValueError.

    A file without permission to read raises an OSError: it may be complete, so an older one must not be used instead.
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
        check_metadata(metadata, checks)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return tensors, metadata


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=32)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"), reverse=True)
