"""Export to ONNX: a graph from bytes to class probabilities, checked against the model of the run."""

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from outspan import rng
from outspan.data.dataset import Data
from outspan.files import write_whole
from outspan.messages import first_line, shown
from outspan.models.outputs import read_logits
from outspan.policies.objectives import objective_for
from outspan.shapes import Float32, Int64, UInt8
from outspan.text.pairs import part_types
from outspan.training.evaluation_data import load_evaluation_data, use_splits
from outspan.training.trained import Trained

TOLERANCE = 1e-4  # the largest difference of a probability that is accepted
_SAMPLES = 256  # on which the file is checked
_BATCH = 32  # of the check; the graph takes any other
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


class _ImageGraph(nn.Module):
    """From bytes to probabilities: the images are normalized inside."""

    scale: Tensor
    shift: Tensor

    def __init__(self, run: Trained) -> None:
        super().__init__()
        mean, std = (torch.tensor(values, dtype=torch.float64).view(-1, 1, 1) for values in (run.mean, run.std))
        self.model, self.probabilities = run.model, objective_for(multi_label=run.multi_label).probabilities
        self.register_buffer("scale", (1 / (255 * std)).float())
        self.register_buffer("shift", (-mean / std).float())

    def forward(self, images: UInt8[Tensor, "B C H W"]) -> Float32[Tensor, "B classes"]:
        """Return the probabilities of images."""
        return self.probabilities(read_logits(self.model(images.float() * self.scale + self.shift)).float())


class _TextGraph(nn.Module):
    """From tokens to probabilities: padding is masked inside."""

    def __init__(self, run: Trained) -> None:
        super().__init__()
        self.model, self.probabilities = _text_model(run), objective_for(multi_label=run.multi_label).probabilities
        self.padding: Any = run.model.padding
        self.separator: Any = run.model.separator

    def forward(self, tokens: Int64[Tensor, "B T"]) -> Float32[Tensor, "B classes"]:
        """Return the probabilities of texts."""
        mask = (tokens != self.padding).long()
        types = {} if self.separator is None else {"token_type_ids": part_types(tokens, self.separator, self.padding)}
        return self.probabilities(self.model(input_ids=tokens, attention_mask=mask, **types).logits.float())


def _text_model(run: Trained) -> Any:
    """Return the transformers model of a run on texts."""
    return run.model.model


@dataclass(frozen=True)
class _Kind:
    """How a model of one noun is exported."""

    graph: Callable[[Trained], nn.Module]
    input: str  # its name
    read: Callable[[Trained, Any], Tensor]  # returns the input of the graph from a batch of a split
    logits: Callable[[Trained, Tensor], object]  # what the model of the run returns for this input
    dynamic: Mapping[int, str]  # its axes of any length
    random: Callable[[Trained], tuple[int, torch.dtype]]  # random input is below this number, and of this type


_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "images": _Kind(
            _ImageGraph,
            "images",
            lambda run, images: images,
            lambda run, images: run.model(run.preprocess(images)),
            {0: "batch"},
            lambda run: (256, torch.uint8),
        ),
        "texts": _Kind(
            _TextGraph,
            "tokens",
            lambda run, passages: run.preprocess(passages),
            lambda run, tokens: run.model(tokens),
            {0: "batch", 1: "length"},
            lambda run: (_text_model(run).config.vocab_size, torch.int64),
        ),
    }
)


def export_onnx(run: Trained, path: Path, splits: Data | None) -> tuple[tuple[str, ...], float]:
    """Write the model of a run as an ONNX file. Return a report, and the largest difference to the model of the run.

    A model that ONNX cannot represent, or whose file gives other probabilities, raises a ValueError, and no file is written.
    """
    if path.suffix != ".onnx" or path.is_dir():
        raise ValueError(
            f"{path}: must be a .onnx file; a folder for transformers or timm is written with --format huggingface"
        )
    for package in _PACKAGES:
        try:
            import_module(package)
        except ImportError:
            raise ValueError(f"format 'onnx' needs {package}, which is not installed: pip install 'outspan[export]'") from None
    kind = _KINDS[run.noun]
    source, batches = _read_inputs(run, splits, kind)
    graph = kind.graph(run).eval()
    program = _convert(run, graph, batches[0], kind)
    program.model.metadata_props.update({"classes": json.dumps(run.classes), "outspan": version("outspan")})
    differences = []

    def write(partial: Path) -> None:
        program.save(partial, external_data=False)
        differences.append(_difference(partial, run, batches, kind))
        if not differences[0] <= TOLERANCE:
            problem = f"its probabilities differ by {differences[0]:.1e} from those of the run (allowed: {TOLERANCE:g})"
            raise ValueError(f"model {shown(run.recipe.model)} cannot be exported to ONNX: {problem}")

    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, write)
    described = f"largest difference of a probability to the run's model, on {source}: {differences[0]:.1e}"
    return (described,), differences[0]


def _read_inputs(run: Trained, splits: Data | None, kind: _Kind) -> tuple[str, list[Tensor]]:
    """Return batches of test samples of the run, or random ones if its data cannot be read; and what they are."""
    try:
        tested = load_evaluation_data(run) if splits is None else use_splits(run, splits)
    except (ValueError, OSError):
        if splits is not None:
            raise
        high, dtype = kind.random(run)
        shape = (_SAMPLES // _BATCH, _BATCH, *run.shape)
        batches = torch.from_numpy(rng.generator(0, "export").integers(0, high, shape)).to(dtype)
        return f"{_SAMPLES} random inputs (the run's data cannot be read)", list(batches)
    rows = torch.arange(len(tested.split))[:_SAMPLES].split(_BATCH)
    batches = [kind.read(run, inputs) for inputs, _ in tested.split.batches(rows, torch.device("cpu"))]
    return f"{sum(map(len, rows))} test {run.noun} of {tested.data.name}", batches


def _convert(run: Trained, graph: nn.Module, example: Tensor, kind: _Kind) -> Any:
    """Return the ONNX program of a graph. `example` is a batch of its input."""
    example = example.repeat(2, *[1] * (example.ndim - 1))[: max(2, len(example))]  # a batch of 1 would be a constant
    try:
        with _quietly(), torch.no_grad():
            return torch.onnx.export(
                graph,
                (example,),
                dynamo=True,
                verbose=False,
                input_names=[kind.input],
                output_names=["probabilities"],
                dynamic_shapes=({axis: name for axis, name in kind.dynamic.items()},),
            )
    except (RuntimeError, ValueError, TypeError, AttributeError, LookupError, NotImplementedError, AssertionError) as error:
        reason = first_line(error.__cause__ or error)
        if "data-dependent" in reason:
            reason = "its path depends on the values of the input; use torch.where instead of if and while"
        raise ValueError(f"model {shown(run.recipe.model)} cannot be exported to ONNX: {reason}") from None


def _difference(file: Path, run: Trained, batches: list[Tensor], kind: _Kind) -> float:
    """Return the largest difference between the probabilities of ONNX Runtime and those of the run's model."""
    import onnxruntime

    objective, largest, session = objective_for(multi_label=run.multi_label), 0.0, None
    for batch in batches:
        try:
            session = session or onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
            [probabilities] = session.run(None, {kind.input: batch.numpy()})
        except Exception as error:  # its errors have no class in common but this
            problem = f"ONNX Runtime cannot run the exported file ({first_line(error)})"
            raise ValueError(f"model {shown(run.recipe.model)} cannot be exported to ONNX: {problem}") from None
        with torch.inference_mode():
            expected = objective.probabilities(read_logits(kind.logits(run, batch)).float())
            difference = (torch.from_numpy(probabilities) - expected).abs().max()
        largest = max(largest, float(difference.nan_to_num(nan=torch.inf)))
    return largest


@contextmanager
def _quietly() -> Iterator[None]:
    """Turn off the warnings of the exporter about its own parts, and the graphs that it prints when it fails."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
