"""Weights of training samples in the loss. Only their ratios matter."""

from torch import Tensor

from outspan.messages import shown
from outspan.shapes import Float32, Num


def check_weights(weights: Num[Tensor, "..."] | None, count: int) -> None:
    """Refuse weights of samples that are not finite numbers of at least 0, one per sample."""
    if weights is None:
        return
    if not isinstance(weights, Tensor) or tuple(weights.shape) != (count,):
        got = list(weights.shape) if isinstance(weights, Tensor) else shown(weights)
        raise ValueError(f"sample weights must be a tensor with one number per sample, [{count}], got {got}")
    wrong = ~(weights.isfinite() & (weights >= 0)) if weights.is_floating_point() else weights < 0
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise ValueError(f"sample weights must be finite and at least 0, got {weights[row].item():g} for sample {row}")


def normalize_weights(weights: Tensor | None) -> Float32[Tensor, " N"] | None:
    """Return weights whose mean is 1, so that they leave the learning rate alone. Weights that are all 0 are refused."""
    if weights is None:
        return None
    mean = weights.double().mean()
    if not mean > 0:
        raise ValueError("sample weights must not all be 0: no sample would be trained on")
    return (weights.double() / mean).float()


def pick_weights(weights: Tensor | None, rows: Tensor) -> Tensor | None:
    """Return the weights of some samples."""
    return None if weights is None else weights[rows]


def weights_bytes(weights: Tensor | None) -> bytes:
    """Return weights as bytes for a digest, none if there are no weights."""
    return b"" if weights is None else weights.double().numpy().tobytes()
