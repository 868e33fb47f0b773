"""Trackers: where the metrics of a run are written besides metrics.jsonl."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Tracker(Protocol):
    """Receives the metrics of each epoch."""

    def add(self, metrics: Mapping[str, float]) -> None:
        """Write the metrics of an epoch; `metrics["step"]` is its last step."""
        ...


class TensorBoard:
    """Writes TensorBoard events, from a step on. Later events of an interrupted start are discarded."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError("TensorBoard is not installed: pip install 'outspan[track]'") from None
        self._writer: Any = SummaryWriter(folder, purge_step=step + 1)

    def add(self, metrics: Mapping[str, float]) -> None:
        """Write the metrics of an epoch."""
        for name in metrics.keys() - {"epoch", "step"}:
            self._writer.add_scalar(name, metrics[name], metrics["step"])
        self._writer.flush()
