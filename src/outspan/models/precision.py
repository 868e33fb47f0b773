"""The precision in which a model computes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

_DTYPES: Mapping[str, torch.dtype] = MappingProxyType({"bf16": torch.bfloat16, "fp16": torch.float16})


class InPrecision(nn.Module):
    """A model that computes in "bf16" or "fp16" where autocast allows it, or in "fp32", whatever autocast is active outside."""

    def __init__(self, model: nn.Module, precision: str) -> None:
        super().__init__()
        self.model, self.dtype = model, _DTYPES.get(precision)

    def forward(self, inputs: Any) -> Any:
        """Return the model's output."""
        device = next(self.model.parameters()).device.type
        # No cache: a recorded graph must not use a weight that was cast before the recording.
        with torch.autocast(device, self.dtype, enabled=self.dtype is not None, cache_enabled=False):
            return self.model(inputs)


def in_precision(model: nn.Module, precision: str) -> nn.Module:
    """Return a model that computes in a precision. With "auto" it is the model itself: bf16 on a GPU, otherwise fp32."""
    return model if precision == "auto" else InPrecision(model, precision)
