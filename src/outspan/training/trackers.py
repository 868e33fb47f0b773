"""Trackers: what receives the metrics of a run besides metrics.jsonl. TensorBoard, Weights & Biases, or a function of the user.

A tracker only reads. It does not change the result of a run.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from outspan.config import Recipe
from outspan.figures.examples import examples_figure, rendered
from outspan.files import write_json
from outspan.messages import first_line, shown, unknown
from outspan.training.examples import Example

WANDB_FILE = "wandb.json"  # the identifier of the run at Weights & Biases, and the last step that it has


@dataclass(frozen=True)
class EpochReport:
    """What a tracker receives at the end of an epoch."""

    metrics: Mapping[str, float]  # a row of metrics.jsonl: `epoch`, `step`, `train_loss`, `test_accuracy` and others
    examples: Sequence[Example] = field(default=(), repr=False)  # in about ten epochs of a run


Tracker: TypeAlias = Callable[[EpochReport], object]
Opened: TypeAlias = AbstractContextManager[Tracker]
Track: TypeAlias = str | Tracker | Sequence[str | Tracker]  # names, several separated by commas, and functions


def _pixels(image: Any) -> np.ndarray:
    return image.expand(3, -1, -1).permute(1, 2, 0).numpy()


@contextmanager
def _open_tensorboard(folder: Path, recipe: Recipe, step: int) -> Iterator[Tracker]:
    """Write TensorBoard events after a step. Later events of an interrupted start are discarded."""
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(folder / "tensorboard", purge_step=step + 1)

    def track(report: EpochReport) -> None:
        metrics, examples = report.metrics, report.examples
        for name in metrics.keys() - {"epoch", "step"}:
            writer.add_scalar(name, metrics[name], metrics["step"])
        if examples:
            pairs = [(_pixels(one.original), _pixels(one.augmented), one.caption) for one in examples]
            writer.add_image("examples", rendered(examples_figure(pairs)), metrics["step"], dataformats="HWC")
        writer.flush()

    try:
        yield track
    finally:
        writer.close()


@contextmanager
def _open_wandb(folder: Path, recipe: Recipe, step: int) -> Iterator[Tracker]:
    """Log to Weights & Biases. A resumed run continues there, and steps that were logged before are not logged again."""
    import wandb  # pyright: ignore[reportMissingImports]

    file = folder / WANDB_FILE
    identifier, logged = _read_identifier(file) if file.exists() else (secrets.token_hex(4), 0)
    options = {"project": os.environ.get("WANDB_PROJECT", "outspan"), "name": folder.resolve().name, "config": asdict(recipe)}
    try:
        run = wandb.init(dir=folder, id=identifier, resume="allow", **options)
    except wandb.Error as error:
        how = "run `wandb login`, or set WANDB_MODE=offline"
        raise ValueError(f"tracker 'wandb' cannot start ({first_line(error)}): {how}") from None

    def track(report: EpochReport) -> None:
        nonlocal logged
        step = int(report.metrics["step"])
        if step <= logged:
            return
        pictures = [
            wandb.Image(np.concatenate([_pixels(one.original), _pixels(one.augmented)], axis=1), caption=one.caption)
            for one in report.examples
        ]
        run.log({**report.metrics, **({"examples": pictures} if pictures else {})}, step=step)
        logged = step
        write_json(file, {"id": identifier, "step": logged})

    try:
        yield track
    except BaseException:
        run.finish(exit_code=1)
        raise
    run.finish()


def _read_identifier(file: Path) -> tuple[str, int]:
    """Return the identifier of a run and the last step that was logged. Anything else in the file raises a ValueError."""
    try:
        stored = json.loads(file.read_text())
    except (ValueError, RecursionError):
        stored = None
    if not isinstance(stored, dict) or not isinstance(stored.get("id"), str) or type(stored.get("step")) is not int:
        raise ValueError(f"{file}: damaged; remove it, and the run is logged as a new one")
    return stored["id"], stored["step"]


@dataclass(frozen=True)
class _Service:
    """A tracker by name. `open` takes the folder of a run, its recipe and the steps done."""

    open: Callable[[Path, Recipe, int], Opened]
    module: str  # that it needs


TRACKERS: Mapping[str, _Service] = MappingProxyType(
    {
        "tensorboard": _Service(_open_tensorboard, "torch.utils.tensorboard"),
        "wandb": _Service(_open_wandb, "wandb"),
    }
)


def find_trackers(track: Track) -> list[Callable[[Path, Recipe, int], Opened]]:
    """Return functions that open the trackers. Unknown names and packages that are not installed raise a ValueError."""
    listed = [track] if isinstance(track, str) or callable(track) else track
    if not isinstance(listed, Sequence) or not all(isinstance(one, str) or callable(one) for one in listed):
        raise ValueError(f"track must be names of trackers ({', '.join(TRACKERS)}) or functions, got {shown(track)}")
    result = []
    for one in listed:
        if isinstance(one, str):
            result += [_find(name) for part in one.split(",") if (name := part.strip())]
        else:
            result.append(lambda folder, recipe, step, one=one: nullcontext(one))
    return result


def _find(name: str) -> Callable[[Path, Recipe, int], Opened]:
    if name not in TRACKERS:
        raise unknown("tracker", name, TRACKERS, "functions in Python, as in outspan.train(track=function)")
    try:
        import_module(TRACKERS[name].module)
    except ImportError:
        raise ValueError(f"tracker {name!r} is not installed: pip install 'outspan[track]'") from None
    return TRACKERS[name].open
