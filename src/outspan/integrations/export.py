"""The function `outspan.export`: write the model of a run for other programs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch

from outspan.data.dataset import Data
from outspan.files import expand_home
from outspan.integrations.huggingface import export_huggingface
from outspan.integrations.onnx_file import export_onnx
from outspan.messages import unknown
from outspan.models.evaluating import on_device
from outspan.shapes import describe
from outspan.training.trained import Trained, as_trained


@dataclass(frozen=True)
class Exported:
    """What `outspan.export` has written."""

    path: Path  # a file for ONNX, a folder for Hugging Face
    report: tuple[str, ...]  # what was checked or measured, one sentence each
    difference: float | None = None  # ONNX: the largest difference of a probability to the model of the run


@dataclass(frozen=True)
class _Format:
    name: str  # of the file or folder in the folder of the run, the default
    write: Callable[[Trained, Path, Data | None], tuple[tuple[str, ...], float | None]]


FORMATS: Mapping[str, _Format] = MappingProxyType(
    {"onnx": _Format("model.onnx", export_onnx), "huggingface": _Format("huggingface", export_huggingface)}
)


def export(
    run: Trained | Path | str, out: Path | str | None = None, *, format: str = "onnx", splits: Data | None = None
) -> Exported:
    """Write the model of a run for other programs. With `ema` it is the average of the weights, as in evaluation.

    Example::

        outspan.export("runs/a", "model.onnx")  # the probabilities of bytes, for ONNX Runtime
        outspan.export("runs/a", "my-model", format="huggingface")  # a folder for the Hugging Face Hub

    Args:
        run: The folder of a run, or what `outspan.load` returns.
        out: The file (ONNX) or the new folder (Hugging Face) to write. By default `model.onnx` or `huggingface` in the run's
            folder.
        format: "onnx" or "huggingface".
        splits: An `outspan.data.sets.Data` whose test split is used for checks and the model card. By default the data of the
            run, if it can be read.

    Raises:
        ValueError: If the run cannot be loaded, the format is unknown or needs a package that is not installed, the model
            cannot be exported, or `out` cannot be written. Then nothing is written.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if not isinstance(out, Path | str | None):
        raise ValueError(f"out must be a path, got {describe(out)}")
    if not isinstance(splits, Data | None):
        raise ValueError(f"splits must be an outspan.data.sets.Data, got {describe(splits)}")
    trained = as_trained(run)
    path = trained.folder / FORMATS[format].name if out is None else expand_home(out)
    with on_device(trained.model, torch.device("cpu")):
        report, difference = FORMATS[format].write(trained, path, splits)
    return Exported(path, report, difference)
