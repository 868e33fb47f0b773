"""Check the tensors that a policy or a sampler reads from a checkpoint."""

from collections.abc import Mapping

from torch import Tensor

from outspan.shapes import describe


def check_state(expected: Mapping[str, Tensor], state: Mapping[str, Tensor], prefix: str = "policy") -> None:
    """Raise a ValueError unless a state has exactly the expected tensors, with the same shapes and types.

    Messages name a tensor as a checkpoint does, with the prefix.
    """
    if different := expected.keys() ^ state.keys():
        problem = "has no" if min(different) in expected else "has an unknown"
        raise ValueError(f"the checkpoint {problem} tensor {f'{prefix}.{min(different)}'!r}")
    for name, tensor in expected.items():
        stored = state[name]
        if (stored.shape, stored.dtype) != (tensor.shape, tensor.dtype):
            raise ValueError(
                f"the checkpoint's tensor {f'{prefix}.{name}'!r} must be {describe(tensor)}, got {describe(stored)}"
            )
