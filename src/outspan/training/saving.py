"""When a run is saved, and what a checkpoint of it contains."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from torch import Tensor

from outspan.training import Diverged, checkpoint
from outspan.training.metadata import RUN_CHECKS, RunMetadata, check_metadata
from outspan.training.provenance import Provenance
from outspan.training.state import State

_PAUSE_RATIO = 20  # training between two checkpoints takes at least 20 times as long as saving one


@runtime_checkable
class Stateful(Protocol):
    """A part of a run with tensors of its own: a policy that learns, or the choice of samples."""

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None: ...


Parts: TypeAlias = Mapping[str, Stateful]  # by the prefix of their tensors in a checkpoint, one of `checkpoint.PART_PREFIXES`


class Saver:
    """Calls `save` every `every` seconds, less often if saving is slow. With 0 it saves after every step."""

    def __init__(self, save: Callable[[], None], every: float) -> None:
        self._save, self._every = save, every
        self._saved, self._duration = time.perf_counter(), 0.0

    def is_due(self) -> bool:
        """Return whether it is time to save."""
        pause = max(self._every, _PAUSE_RATIO * self._duration) if self._every else 0.0
        return time.perf_counter() - self._saved >= pause

    def save(self) -> None:
        """Save, and measure how long it takes."""
        began = time.perf_counter()
        self._save()
        self._saved = time.perf_counter()
        self._duration = self._saved - began


def save_run(out: Path, state: State, parts: Parts, provenance: Provenance, *, best: bool = False) -> None:
    """Write the checkpoint of a run, or with `best` that of its best epoch, which is a file of its own.

    Weights that are not finite are refused, and the previous checkpoint is kept.
    """
    tensors = checkpoint.pack(state.model, state.optimizer, state.average_model)
    for part, stateful in parts.items():
        tensors |= {f"{part}.{name}": tensor for name, tensor in stateful.state_dict().items()}
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise Diverged(f"weights are not finite after step {state.step}: not saved; try a smaller lr")
    metadata: RunMetadata = {**provenance.to_metadata(), **state.to_metadata()}
    check_metadata(metadata, RUN_CHECKS)  # never write a checkpoint that could not be read
    if best:
        checkpoint.write(out / checkpoint.BEST_FILE, tensors, metadata)
    else:
        checkpoint.save(out, tensors, metadata)


def restore_run(stored: checkpoint.Checkpoint, state: State, parts: Parts) -> None:
    """Restore the state of a run and of its parts. Tensors of another model raise a ValueError."""
    state.restore(*stored)
    for part, stateful in parts.items():
        prefix, tensors = f"{part}.", stored.tensors.items()
        stateful.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in tensors if name.startswith(prefix)})
