"""Runs that were exported to a folder for the Hugging Face Hub, and how they are read back."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from outspan import models
from outspan.config import Recipe, stored_recipe
from outspan.files import check_regular
from outspan.messages import first_line, shown
from outspan.shapes import channels_of_shape
from outspan.training.metadata import RUN_CHECKS, Check, check_metadata
from outspan.training.state import initial_model

CONFIG, WEIGHTS = "config.json", "model.safetensors"
KEY = "outspan"  # in config.json: what `outspan.load` needs
HERE = "."  # a model whose weights are in the exported folder itself, as those of transformers
_MAX_CONFIG = 100_000_000  # bytes

EXPORT_CHECKS: Mapping[str, Check] = MappingProxyType(
    {key: RUN_CHECKS[key] for key in RUN_CHECKS if key.partition(".")[0] in ("step", "recipe", "data")}
)


class ExportedRun(NamedTuple):
    """An exported run: its model, and the metadata that its configuration has."""

    model: nn.Module
    recipe: Recipe
    metadata: Any  # checked: `step`, `recipe` and `data`


def read_exported(folder: Path) -> ExportedRun | None:
    """Return the exported run in a folder, or None if there is none. A damaged one raises a ValueError."""
    metadata = _read_metadata(folder / CONFIG)
    if metadata is None:
        return None
    try:
        check_metadata(metadata, EXPORT_CHECKS)
        recipe, data = stored_recipe(metadata["recipe"]), metadata["data"]
        for key in ("mean", "std"):
            if len(data[key]) != channels_of_shape(data["shape"]):
                raise ValueError(f"metadata 'data.{key}' does not fit the shape {data['shape']}")
        is_here = recipe.model == HERE
        recipe = replace(recipe, model=str(folder) if is_here else recipe.model, weights="")
        shape, classes = tuple(data["shape"]), len(data["classes"])
        if is_here:
            return ExportedRun(initial_model(recipe, shape, classes), recipe, metadata)
        tensors = _read_tensors(folder / WEIGHTS)
        if not models.reads_files(recipe.model):
            with torch.device("meta"):  # uses no memory, however large the model in the configuration is
                _check_tensors(tensors, initial_model(recipe, shape, classes), recipe.model)
        model = initial_model(recipe, shape, classes)
        _check_tensors(tensors, model, recipe.model)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    model.load_state_dict(tensors)
    return ExportedRun(model, recipe, metadata)


def _read_metadata(file: Path) -> Any:
    """Return the metadata in a configuration, or None if there is none."""
    check_regular(file)
    if not file.is_file() or file.stat().st_size > _MAX_CONFIG:
        return None
    try:
        config = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return None
    return config.get(KEY) if isinstance(config, dict) else None


def _read_tensors(file: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(file)
    except (OSError, SafetensorError, ValueError, RuntimeError, KeyError) as error:
        raise ValueError(f"{file.name} cannot be read ({first_line(error)})") from None


def _check_tensors(tensors: Mapping[str, Tensor], model: nn.Module, name: str) -> None:
    """Refuse tensors whose name, shape or dtype is not that of the model."""
    expected = {key: (list(tensor.shape), tensor.dtype) for key, tensor in model.state_dict().items()}
    stored = {key: (list(tensor.shape), tensor.dtype) for key, tensor in tensors.items()}
    for key in sorted(expected.keys() | stored.keys()):
        if expected.get(key) != stored.get(key):
            raise ValueError(f"{WEIGHTS} does not fit model {shown(name)}: its tensor {shown(key)} differs")
