"""Read the tensors of a plan from JSON text or nested lists, and check them."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outspan.messages import shown

DTYPES = {
    "ops": torch.int16,
    "levels": torch.float32,
    "places": torch.float32,
    "partners": torch.int64,
    "source": torch.int64,
    "out": torch.int64,
}


def parse_json(text: str) -> tuple[tuple[str, ...], dict[str, Tensor]]:
    """Return the names and tensors of a plan as JSON text; text that is not a complete plan raises a ValueError."""
    try:
        value: Any = json.loads(text)  # JSONDecodeError is a ValueError
    except RecursionError:
        raise ValueError("not a plan: nested too deeply") from None
    known = ["names", *DTYPES]
    if not isinstance(value, dict) or sorted(value) != sorted(known):
        keys = sorted(value) if isinstance(value, dict) else type(value).__name__
        raise ValueError(f"a plan has the keys {', '.join(known)}, got {shown(keys)}")
    names = value["names"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"names must be a list of strings, got {names!r:.100}")
    tensors = {}
    for name, dtype in DTYPES.items():
        try:
            tensors[name] = torch.tensor(value[name], dtype=dtype)
            if tensors[name].tolist() != value[name] and not dtype.is_floating_point:
                raise ValueError("whole numbers only")
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise ValueError(f"{name} must be nested lists of numbers of one shape: {error}") from None
    rows = tensors["source"].numel()
    for name, shape in {"ops": (rows, 0), "levels": (rows, 0), "places": (rows, 0, 4), "partners": (rows, 0)}.items():
        if not tensors[name].numel():  # an empty list does not keep its shape
            tensors[name] = tensors[name].reshape(shape)
    return tuple(names), tensors


def fill_column(name: str, column: Tensor, values: Sequence[Sequence[Any]] | None, steps: Sequence[Sequence[str]]) -> None:
    """Write values, one per step of each row, into a column of a plan. None leaves the column as it is."""
    if values is None:
        return
    sizes = [len(row) for row in steps]
    if not all(hasattr(row, "__len__") for row in values):
        raise ValueError(f"{name} must be one list per row, with one entry per step, got {shown(values)}")
    if [len(row) for row in values] != sizes:
        raise ValueError(f"{name} must have one entry per step, {sizes}, got {[len(row) for row in values]}")
    for i, row in enumerate(values):
        for t, value in enumerate(row):
            column[i, t] = _entry(name, value)


def _entry(name: str, value: Any) -> Tensor:
    entry = torch.as_tensor(value)
    if name == "places" and entry.shape != (4,):
        raise ValueError(f"a place must be 4 numbers, got {value!r}")
    if name == "partners" and entry.is_floating_point():
        raise ValueError(f"a partner must be a row number, got {value!r}")
    return entry


def check_range(name: str, tensor: Tensor, low: int, high: int | None) -> None:
    """Raise a ValueError unless all values lie in [low, high); with high None they only must not be negative."""
    if not tensor.numel():
        return
    values = tensor.numpy()  # numpy's reductions have a fraction of the overhead of torch's
    least, most = np.minimum.reduce(values, axis=None), np.maximum.reduce(values, axis=None)
    if least < low or (high is not None and most >= high):
        allowed = "not be negative" if high is None else f"lie in [{low}, {high - 1}]"
        raise ValueError(f"{name} must {allowed}, got {least} to {most}")
